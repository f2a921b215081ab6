// Package cycle decides about a background job of many calls that must end:
// stages in order, each a list of calls, with a budget for the whole that is
// checked between stages.
//
// [Decide] is the whole policy, asked before the first call and after each: it
// takes what became of the call, says which call comes next or that the cycle
// is over, and returns the [Record] that says so. It is pure: time comes in as
// a moment, and elapsed time is boottime, so that a clock step neither ends
// nor extends a budget while a night's suspend counts. How long one call may
// take is measured by whoever runs it, on the monotonic clock: a machine that
// wakes up does not find its call killed.
//
// Nothing is retried. A call that fails ends its stage and not the cycle; a
// budget that is used up ends the cycle and not the call.
//
// [Look] reads the records of earlier cycles. Which process runs what, where
// the records lie and who is told is the command's business.
package cycle
