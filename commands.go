package main

import (
	"tickdog/check/gpu"

	"github.com/urfave/cli/v2"
)

// commands is the tree, in the order --help lists it.
func (p *program) commands() []*cli.Command {
	return []*cli.Command{
		p.gpuCommand(), p.agentsCommand(), p.cycleCommand(), p.loopCommand(),
		p.statusCommand(), p.doctorCommand(), p.pauseCommand(), p.resumeCommand(), p.thawCommand(), p.replayCommand(), p.unitsCommand(),
	}
}

// fastPath serves the two starts that must cost next to nothing and so go
// without the command tree: the sensor child of a gpu pass, and an agent's hook.
func (p *program) fastPath(args []string) (status int, done bool) {
	if len(args) >= 3 && args[1] == gpu.SysfsCommand {
		card := ""
		if len(args) > 3 {
			card = args[3]
		}
		return gpu.ReadSysfs(p.stdout, args[2], card), true
	}
	return 0, p.hookStart(args)
}
