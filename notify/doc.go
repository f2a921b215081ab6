// Package notify tells people: an ntfy topic, the board, the action log and a
// heartbeat, and an outbox in between, so that no alert is lost because a
// server was away, a disk was full or a pass was killed.
//
// What it promises:
//   - An alert that was written down is delivered to every channel at least
//     once, in the order of writing, and twice only if a crash or a lost answer
//     stood between the sending and its confirmation.
//   - Whatever a server does, sending ends: 10 s a pass for all alerts
//     together, 3 s for the heartbeat, 64 KiB of any answer, no proxy, no
//     redirect followed.
//   - An alert that a server refuses for good is parked, and shown, never lost.
//   - A file of the outbox that cannot be understood is set aside; the others
//     still go.
package notify
