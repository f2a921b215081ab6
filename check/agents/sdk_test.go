package agents

import (
	"bufio"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestRealAgents probes agents made with the A2A SDK of either generation. The
// SDKs live in a module of their own, so that the product depends on neither.
func TestRealAgents(t *testing.T) {
	if testing.Short() {
		t.Skip("builds two agents")
	}
	dir := t.TempDir()
	build := exec.Command("go", "build", "-o", dir, "./agent03", "./agent10")
	build.Dir = filepath.Join("..", "..", "testdata", "a2a")
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off")
	if out, err := build.CombinedOutput(); err != nil {
		t.Skipf("the SDKs' agents cannot be built: %v\n%s", err, out)
	}
	for _, c := range []struct {
		flags  string
		class  DispatchClass
		detail string
	}{
		{"-manner=answer", DispatchCompleted, ""},
		{"-manner=task", DispatchCompleted, ""},
		{"-manner=early", DispatchCompleted, ""},
		{"-manner=fail", DispatchCompleted, "its task is failed"},
		{"-manner=error", DispatchCompleted, "JSON-RPC error -32603"},
		{"-manner=input", DispatchRefused, "its task is input-required"},
		{"-manner=hang", DispatchDead, "no answer in 2 s"},
		{"-manner=working", DispatchDead, "no answer in 2 s, its task is "},
		{"-manner=hang -quota=1", DispatchOverloaded, "quota"},
	} {
		for _, generation := range []string{"0.3", "1.0"} {
			t.Run(c.flags+" "+generation, func(t *testing.T) {
				t.Parallel()
				program := filepath.Join(dir, "agent"+strings.ReplaceAll(generation, ".", ""))
				agent := Agent{Name: "sol", URL: startAgent(t, program, strings.Fields(c.flags)...)}
				prober := patient
				if c.class == DispatchDead {
					prober.DispatchTimeout = 2 * time.Second
				}
				if c.class == DispatchOverloaded { // the slot has to be taken first, and stays so
					first := prober
					first.DispatchTimeout = 2 * time.Second
					first.Dispatch(t.Context(), agent)
				}
				d := prober.Dispatch(t.Context(), agent)
				h := prober.Health(t.Context(), agent)
				if h.Class != HealthOK || d.Class != c.class || !strings.Contains(d.Detail, c.detail) {
					t.Errorf("health %s, dispatch %s (%s); want %s (%s)", h.Class, d.Class, d.Detail, c.class, c.detail)
				}
				if speaks := d.Class == DispatchCompleted || d.Class == DispatchRefused; speaks != (d.Protocol == generation) {
					t.Errorf("remembers %q", d.Protocol)
				}
				if hangs := c.class == DispatchDead || c.class == DispatchOverloaded; h.Task.Ours != hangs {
					t.Errorf("shows %+v", h.Task)
				}
			})
		}
	}
}

// startAgent runs an agent until the test ends and returns its address.
func startAgent(t *testing.T, program string, flags ...string) string {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, program, flags...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stop(); cmd.Wait() })
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(line)
}
