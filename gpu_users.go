package main

import (
	"fmt"
	"os"
	"strings"
)

// users names the processes that compute on an AMD GPU, as far as they can be
// seen: the kernel lists what has opened /dev/kfd.
func (g *gpuGuard) users() string {
	if g.seen.Reading.Busy.Known && !g.next.Running {
		return "nothing runs on it, and it does not cool down"
	}
	pids := g.sensors().Users(g.ctx)
	if len(pids) == 0 {
		return "someone else uses the GPU, who is not to be seen"
	}
	var names []string
	for i, pid := range pids {
		if i == 5 {
			names = append(names, fmt.Sprintf("and %d more", len(pids)-i))
			break
		}
		name, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
		if err != nil {
			names = append(names, fmt.Sprintf("process %d", pid))
			continue
		}
		names = append(names, fmt.Sprintf("%s (%d)", strings.TrimSpace(string(name)), pid))
	}
	return "the GPU is used by " + strings.Join(names, ", ")
}
