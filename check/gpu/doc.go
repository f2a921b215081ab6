// Package gpu looks at a GPU and decides whether it has run too long or too
// hot.
//
// It has three parts, and only the first touches the world:
//
//   - [Source] looks: at sysfs (look_sysfs.go) or through rocm-smi or amd-smi
//     (look_tools.go), bounded by whoever runs the commands for it. [Pick]
//     says which of the cards is meant.
//   - [Parse] reads what the tools print, in all the forms that their releases
//     have had (parse.go and parse_*.go, one file a family). It is pure.
//   - [Decide] applies the two rules to one look and what is remembered of the
//     card (decide.go; remember.go is its line in the state file). It is pure
//     too, and the same function serves the timer, a dry run and a replay.
//
// # What is promised of a reading
//
// A [Number] is known or not. One that is not known is never a zero, an idle
// or a cool one, and every caller has three cases to think of. One that is
// known can be true: busy is 0 to 100 %, a junction is above 0 and below
// 150 °C and comes from a sensor labelled junction or hotspot. An edge, memory
// or unlabelled temperature never takes its place. A card that says 0 % while
// none of its temperatures can be read has no reading, for that is how
// rocm-smi prints a read that failed. A card that is not there has none
// either; no other card takes its place.
//
// A reading that cannot be told for certain (cut off, printed twice with
// different values, under another header, with another unit) is none. The
// guard can bridge a pass without a reading; it cannot take back a stop.
package gpu
