// Package loop is the policy of an agent's run loop: after each action and
// each failure of its provider it says proceed, steer, back off or freeze.
//
// It is graded on purpose: a watchdog that can only kill, kills runs that
// could have been saved. A run that repeats itself is first told so (steer)
// and only frozen if it repeats itself again after it could have read that; a
// provider that fails is waited for, as long as it said or longer; only what
// cannot succeed by waiting freezes at once. A freeze is sticky: nothing but a
// person's thaw ends it.
//
// What decides ([State] and its methods, [Seed], [Wait]) is in decide.go and
// pure: it reads no clock, does no I/O, logs nothing and returns no error.
// Time, ids and fingerprints are arguments. [Classify] tells what a status or
// an exit code says about trying again, [Fingerprint] reduces an action to
// what makes it the same action. How a run is kept in a file, and how the
// agents' hooks speak, is the command's business.
package loop
