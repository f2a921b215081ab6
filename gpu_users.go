package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// gpuUsers names the processes that compute on an AMD GPU, as far as they can
// be seen: the kernel lists what has opened /dev/kfd.
func gpuUsers(sysfs string) string {
	entries, _ := os.ReadDir(filepath.Join(sysfs, "class/kfd/kfd/proc")) // not there: nobody is seen
	var pids []int
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil {
			pids = append(pids, pid)
		}
	}
	if len(pids) == 0 {
		return "someone else uses the GPU, who is not to be seen"
	}
	slices.Sort(pids)
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
