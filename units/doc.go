// Package units acts: it runs commands that must end, and knows the three
// programs through which tickdog changes anything (docker or podman,
// systemctl) well enough to ask, to act and to say beforehand what it would
// run. It also carries the unit files and sample configs that `tickdog units`
// prints and installs.
//
// Its contract: no shell, ever; whatever a command does (hang, ignore
// signals, print without end, leave children behind, block in the kernel),
// Run comes back within Timeout + Grace + about 3 seconds and says what
// happened. It decides nothing and remembers nothing: what a pass must not
// start twice is handed to the caller as a Stuck, to be kept in a state file.
package units
