package main

import (
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"tickdog/check"

	"github.com/rogpeppe/go-internal/testscript"
)

// testCommands are the programs that scripts find on PATH: tickdog itself with
// a clock that a script sets, and the fakes that the test files register.
var testCommands = map[string]func(){"tickdog": tickdogWithTestClock}

func TestMain(m *testing.M) {
	testscript.Main(m, testCommands)
}

// TestScripts runs the command line's scripts.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireUniqueNames:  true,
		RequireExplicitExec: true,
		UpdateScripts:       os.Getenv("UPDATE_SCRIPTS") != "",
		Setup: func(e *testscript.Env) error {
			wd, err := os.Getwd()
			if err != nil {
				return err
			}
			e.Setenv("REPO", wd)
			e.Setenv("HOME", e.WorkDir)
			e.Setenv("TZ", "UTC")
			e.Setenv("TICKDOG_CONFIG", e.WorkDir+"/tickdog.toml")
			return nil
		},
		Cmds: scriptCommands,
	})
}

// scriptCommands are commands of the scripts' own language.
var scriptCommands = map[string]func(ts *testscript.TestScript, neg bool, args []string){
	"at": setClock,
}

// setClock is `at SECONDS [BOOT]`: the moment of the passes that follow, counted
// from 2026-09-27T22:00:00Z, with the boottime the same number of seconds above
// 10000. A second word names another boot.
func setClock(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 1 || len(args) > 2 {
		ts.Fatalf("usage: at SECONDS [BOOT]")
	}
	if _, err := strconv.ParseFloat(args[0], 64); err != nil {
		ts.Fatalf("at: %v", err)
	}
	ts.Setenv("TEST_AT", strings.Join(args, " "))
}

// testStart is where the scripts' clock begins.
var testStart = time.Date(2026, 9, 27, 22, 0, 0, 0, time.UTC)

// tickdogWithTestClock is the shipped program but for its clock: TEST_AT sets
// it; without it the real one goes.
func tickdogWithTestClock() {
	p := &program{stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr, getenv: os.Getenv, moment: readClock}
	if at := os.Getenv("TEST_AT"); at != "" {
		p.moment = func() check.Moment { return testMoment(at) }
	}
	os.Exit(p.run(os.Args))
}

func testMoment(at string) check.Moment {
	words := strings.Fields(at)
	s, _ := strconv.ParseFloat(words[0], 64)
	boot := "boot-1"
	if len(words) > 1 {
		boot = words[1]
	}
	return check.Moment{
		Wall:   testStart.Add(time.Duration(s * float64(time.Second))).Local(),
		Boot:   10000 + s,
		BootID: boot,
	}
}
