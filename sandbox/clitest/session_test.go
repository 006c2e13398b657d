//go:build linux

package clitest

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/evalbuild/eval/sandbox/egress"
	"github.com/evalbuild/eval/workspace/graph"
)

// allowed is what the sessions may reach besides the model, as most agents may
// reach something: so the proxy's variables are set inside, and what a CLI asks
// for is seen and refused instead of lost. Nobody asks for this one.
var allowed = []graph.Endpoint{{Host: "allowed.test", Ports: []uint16{443}}}

// sessions runs a CLI twice: once told to keep to itself, when it only talks,
// and once as it is, when it has a command run.
func sessions(t *testing.T, c cli) {
	t.Run("turn", func(t *testing.T) {
		const said = "Four, by the usual rules."
		m := newModel(t, c.protocol, turn{say: said})
		s := c.run(t, m, "What is two and two?", c.config(true))
		c.check(t, m, s, said, nil)
		if !strings.Contains(string(m.bodies[0]), "What is two and two?") {
			t.Errorf("the prompt isn't in the request: %.3000s", m.bodies[0])
		}
		if !slices.Equal(s.Missing, []string{"made.txt"}) {
			t.Errorf("made %q from nothing", s.files)
		}
	})
	t.Run("tool turn", func(t *testing.T) {
		const said = "I made the file."
		m := newModel(t, c.protocol, turn{run: command}, turn{say: said})
		attempts := newAttempts(t, m)
		control(t, attempts)
		files := c.config(false)
		files["/in/attempts.sh"] = script(attempts)
		s := c.run(t, m, "Make a file.", files)
		c.check(t, m, s, said, append([]string{"elsewhere.test"}, c.strays...))
		if s.files["made.txt"] != "made\n" {
			t.Errorf("made %q", s.files)
		}
		want := []string{"the model is reached", "HTTP/1.1 403 ", "home is /scratch/home"}
		for _, a := range attempts {
			want = append(want, "denied: "+a.at)
		}
		printed := c.protocol.result(m.bodies[1])
		for _, want := range want {
			if !strings.Contains(printed, want) {
				t.Errorf("%q is not in what the command printed:\n%s", want, printed)
			}
		}
		if !slices.ContainsFunc(s.Egress, func(e egress.Attempt) bool { return e.Host == "elsewhere.test" && e.Port == 443 }) {
			t.Errorf("the command's CONNECT isn't in the log: %+v", s.Egress)
		}
	})
}

// command is what the model has run: it makes an output, shows that the one
// declared port leads to the model, asks the proxy for a host that isn't
// allowed, and makes the attempts.
const command = `echo made > made.txt
bash -c 'exec 3<>/dev/tcp/127.0.0.1/8080' && echo the model is reached
bash -c 'exec 3<>/dev/tcp/127.0.0.1/3128; printf "CONNECT elsewhere.test:443 HTTP/1.1\r\n\r\n" >&3; cat <&3'
echo home is $HOME
bash /in/attempts.sh`

// check wants a session that came to its end, said so, reached nothing but the
// model, and asked for no other hosts than expected. Which of these it gets to
// before it ends is a matter of time.
func (c cli) check(t *testing.T, m *model, s session, said string, expected []string) {
	t.Helper()
	t.Logf("%v after %v, limits %q, %d survivors", s.Status, s.Wall.Round(1e6), s.Limits, s.Survivors)
	got, done := c.said(s.Stdout.Data)
	if s.Status.Code != 0 || !done || got != said || len(s.Limits) > 0 || len(s.Rejected) > 0 {
		t.Errorf("%v, limits %q, rejected %v, it said %q, stdout:\n%s\nstderr:\n%s", s.Status, s.Limits, s.Rejected, got, s.Stdout.Data, s.Stderr.Data)
	}
	m.check(c.endpoint)
	forwards := 0
	var refused []string
	for _, e := range s.Egress {
		switch {
		case e.Via == egress.ViaForward && e.Verdict == egress.Allowed && e.Address == m.Listener.Addr().String() && e.Port == 8080:
			forwards++
		case e.Via == egress.ViaConnect && e.Verdict == egress.Refused && e.Address == "" && e.Sent+e.Received == 0:
			refused = append(refused, e.Host)
		default:
			t.Errorf("egress %+v", e)
		}
	}
	if forwards == 0 {
		t.Errorf("nothing came through the forward: %+v", s.Egress)
	}
	slices.Sort(refused)
	t.Logf("refused: %q", refused)
	for _, host := range refused {
		if !slices.Contains(expected, host) {
			t.Errorf("it asked for %s; expected are no others than %q", host, expected)
		}
	}
}

// An attempt is something that must fail inside, in bash, which can connect
// without a further program.
type attempt struct{ at, code string }

// newAttempts makes things of the harness to be after, and the list.
func newAttempts(t *testing.T, m *model) []attempt {
	t.Helper()
	t.Setenv("CLITEST_SECRET", "of the harness")
	home := t.TempDir()
	if err := os.WriteFile(filepath.Join(home, "secret.txt"), []byte("of the harness"), 0o644); err != nil {
		t.Fatal(err)
	}
	t.Setenv("HOME", home)
	other, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { other.Close() })
	repository, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	name, err := os.ReadFile("/proc/self/comm")
	if err != nil {
		t.Fatal(err)
	}
	dial := func(ln net.Listener) string {
		return fmt.Sprintf("exec 3<>/dev/tcp/127.0.0.1/%d", ln.Addr().(*net.TCPAddr).Port)
	}
	return []attempt{
		{"a variable of the harness", `[ -n "$CLITEST_SECRET" ]`},
		{"a file in the home of the harness", fmt.Sprintf("cat %q", home+"/secret.txt")},
		{"the repository", fmt.Sprintf("cat %q", repository+"/go.mod")},
		{"the process of the harness", fmt.Sprintf(`[[ "$(cat /proc/[0-9]*/comm)" == *%q* ]]`, strings.TrimSpace(string(name)))},
		{"the model at its own port", dial(m.Listener)},
		{"another port of the host", dial(other)},
	}
}

// script makes the attempts, each in a shell of its own.
func script(list []attempt) string {
	var b strings.Builder
	for _, a := range list {
		fmt.Fprintf(&b, "if (%s) >/dev/null 2>&1; then echo reached: %s; else echo denied: %s; fi\n", a.code, a.at, a.at)
	}
	return b.String()
}

// control shows that each attempt succeeds where there is no seal.
func control(t *testing.T, list []attempt) {
	t.Helper()
	out, err := exec.Command("/bin/bash", "-c", script(list)).CombinedOutput()
	if err != nil || strings.Count(string(out), "reached: ") != len(list) {
		t.Fatalf("outside the seal: %v\n%s", err, out)
	}
}

// TestOrdinaryUser has the tool turns run once more by a user who isn't root:
// the seal is put up in another way, and limits may be those of each process.
func TestOrdinaryUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("all tests run as an ordinary user already")
	}
	if dir := private(t, "."); dir != "" {
		t.Skip("the repository lies in a folder that others can't enter: " + dir) // nobody's defect
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.ReadFile(exe)
	if err != nil {
		t.Fatal(err)
	}
	// go test's own folder can't be read by others.
	dir, err := os.MkdirTemp("", "clitest")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	cmd := exec.Command(filepath.Join(dir, "clitest.test"), "-test.v", "-test.run=^(TestCodex|TestGemini)$/^tool_turn$")
	if err := errors.Join(os.Chmod(dir, 0o755), os.WriteFile(cmd.Path, program, 0o755)); err != nil {
		t.Fatal(err)
	}
	const nobody = 65534
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	out, err := cmd.CombinedOutput()
	t.Logf("%s", out)
	switch {
	case err != nil:
		t.Error(err)
	case strings.Contains(string(out), "--- SKIP"):
		t.Skip("see above")
	}
}

// private gives a folder on the way to name that others can't enter, or "".
func private(t *testing.T, name string) string {
	t.Helper()
	dir, err := filepath.Abs(name)
	for ; err == nil; dir = filepath.Dir(dir) {
		var info os.FileInfo
		if info, err = os.Stat(dir); err == nil && info.Mode()&0o001 == 0 {
			return dir
		}
		if dir == "/" {
			return ""
		}
	}
	t.Fatal(err)
	return ""
}
