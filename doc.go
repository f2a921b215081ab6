// Tickdog watches GPUs, A2A agents, background jobs and agent run loops from
// systemd timers. Each start is one pass: lock, load, look, decide,
// save → act → tell, and exit.
//
// This package is the thin shell around four pure decisions (check/gpu,
// check/agents, check/cycle, check/loop): one file per command holds the steps
// of its pass in order, config.go reads the one configuration file, pass.go
// holds what every pass shares, and report.go writes every line and every JSON
// object that leaves the program. main.go has the command tree, the clock and
// the only os.Exit.
package main
