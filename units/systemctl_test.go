package units

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestSystemctlShow(t *testing.T) {
	const nova = "Id=lab-a2a-nova.service\nLoadState=loaded\nActiveState=active\nDescription=a = b\nResult=\n"
	const gone = "Id=gone.service\nLoadState=not-found\nActiveState=inactive\n"
	for _, tc := range []struct {
		name   string
		units  []string
		result Result
		want   map[string]map[string]string
		err    string
	}{
		{"two, one of them not there", []string{"lab-a2a-nova.service", "gone.service"}, Result{Stdout: []byte(nova + "\n" + gone)},
			map[string]map[string]string{
				"lab-a2a-nova.service": {"Id": "lab-a2a-nova.service", "LoadState": "loaded", "ActiveState": "active", "Description": "a = b", "Result": ""},
				"gone.service":         {"Id": "gone.service", "LoadState": "not-found", "ActiveState": "inactive"},
			}, ""},
		{"an alias answers under its own name", []string{"alias.service"}, Result{Stdout: []byte("Id=real.service\n")},
			map[string]map[string]string{"alias.service": {"Id": "real.service"}}, ""},
		{"none asked for", nil, Result{Code: 1}, map[string]map[string]string{}, ""},
		{"no bus", []string{"x.service"}, Result{Code: 1, Stderr: []byte("Failed to connect to bus: No medium found\n")}, nil, "systemctl: exit 1: Failed to connect to bus: No medium found"},
		{"no bus, and exit 0", []string{"x.service"}, Result{Stderr: []byte("Failed to connect to bus: Connection refused\n")}, nil, "systemctl: Failed to connect to bus: Connection refused"},
		{"hangs", []string{"x.service"}, Result{Code: -1, TimedOut: true, limit: 15 * time.Second}, nil, "systemctl: no end in 15 s"},
		{"fewer answers than questions", []string{"x.service", "y.service"}, Result{Stdout: []byte("Id=x.service\n")}, nil, "systemctl: 1 answers to 2 units"},
		{"nothing", []string{"x.service"}, Result{}, nil, "systemctl: 0 answers to 1 units"},
		{"no Id", []string{"x.service"}, Result{Stdout: []byte("LoadState=loaded\n")}, map[string]map[string]string{"x.service": {"LoadState": "loaded"}}, ""},
		{"something else", []string{"x.service"}, Result{Stdout: []byte("hello\n")}, nil, `systemctl: not a property: "hello"`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var asked Command
			got, err := Systemctl{User: true, Run: says(tc.result, &asked)}.Show(context.Background(), tc.units, []string{"LoadState", "ActiveState"})
			if tc.err != "" {
				if err == nil || err.Error() != tc.err {
					t.Errorf("err = %v, want %q", err, tc.err)
				}
				return
			}
			if diff := cmp.Diff(tc.want, got); err != nil || diff != "" {
				t.Errorf("%v\n%s", err, diff)
			}
		})
	}
}

func TestSystemctlArgv(t *testing.T) {
	user, system := Systemctl{User: true}, Systemctl{}
	for _, tc := range []struct {
		got  []string
		want string
	}{
		{user.ShowArgv([]string{"a.service", "b.service"}, []string{"MainPID", "Result"}), "systemctl --user show --no-pager --property=Id,MainPID,Result -- a.service b.service"},
		{user.RestartArgv("a.service"), "systemctl --user restart a.service"},
		{user.ResetFailedArgv("a.service"), "systemctl --user reset-failed a.service"},
		{system.RestartArgv("a.service"), "systemctl restart a.service"},
		{system.DaemonReloadArgv(), "systemctl daemon-reload"},
		{user.DisableNowArgv("a.timer"), "systemctl --user disable --now a.timer"},
	} {
		if got := strings.Join(tc.got, " "); got != tc.want {
			t.Errorf("%s, want %s", got, tc.want)
		}
	}
	var asked Command
	s := Systemctl{Run: says(Result{}, &asked)}
	s.Restart(context.Background(), "a.service", time.Minute)
	if !slices.Equal(asked.Argv, s.RestartArgv("a.service")) || asked.Timeout != time.Minute {
		t.Errorf("restart ran %q within %v", asked.Argv, asked.Timeout)
	}
	s.ResetFailed(context.Background(), "a.service")
	if !slices.Equal(asked.Argv, s.ResetFailedArgv("a.service")) {
		t.Errorf("reset-failed ran %q", asked.Argv)
	}
}

// FuzzParseShow: whatever systemctl prints, no block that is accepted is empty
// or has a key that was not printed.
func FuzzParseShow(f *testing.F) {
	f.Add("Id=a.service\nLoadState=loaded\n\nId=b.service\nLoadState=not-found\n")
	f.Add("\n\n\nId=x\n=\n")
	f.Add("Id")
	f.Fuzz(func(t *testing.T, out string) {
		blocks, err := parseShow(out)
		if err != nil {
			return
		}
		for _, b := range blocks {
			if len(b) == 0 {
				t.Errorf("an empty block in %q", out)
			}
			for key, value := range b {
				if !strings.Contains(out, key+"="+value) {
					t.Errorf("%q=%q is not in %q", key, value, out)
				}
			}
		}
	})
}
