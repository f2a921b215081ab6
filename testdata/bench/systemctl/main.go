// Systemctl stands in for the real one in the bench: every unit it is asked
// about has been running for long.
package main

import (
	"os"
	"strconv"
)

func main() {
	var out []byte
	units := false
	for _, arg := range os.Args[1:] {
		switch {
		case arg == "--":
			units = true
		case units:
			if len(out) > 0 {
				out = append(out, '\n')
			}
			out = append(out, "Id="+arg+"\nLoadState=loaded\nActiveState=active\nSubState=running\nResult=success\nMainPID="+
				strconv.Itoa(os.Getppid())+"\nNRestarts=0\nCPUUsageNSec=1000000\nInactiveExitTimestampMonotonic=1\n"+
				"ActiveExitTimestampMonotonic=0\nExecMainExitTimestampMonotonic=0\n"...)
		}
	}
	os.Stdout.Write(out)
}
