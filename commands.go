package main

import "github.com/urfave/cli/v2"

// commands is the tree, in the order --help lists it.
func (p *program) commands() []*cli.Command {
	return []*cli.Command{}
}

// fastPath serves the two starts that must cost next to nothing and so go
// without the command tree: the sensor child of a gpu pass, and an agent's hook.
func (p *program) fastPath(args []string) (status int, done bool) {
	return 0, false
}
