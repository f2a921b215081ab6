// Package agents tells which A2A agents answer, which are busy, and which are
// wedged: their /health says that all is well, but a message is never answered.
//
// Looking and deciding are apart. Prober.Look asks every agent, side by side,
// and turns whatever happens into a Seen; Decide is a pure function of what was
// seen, what is remembered, the moment and the limits. Neither restarts
// anything, and neither ever returns an error: what could not be seen is a
// value of Seen.
//
// A probe costs the agent one turn of its model and runs to its end even when
// nobody waits any more, so that there is one of them a pass, and none while
// the last one is still what the agent works on.
package agents
