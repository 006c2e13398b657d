package escape

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
)

// binVariable says where the binaries are: the caller can build, whom it starts
// as another can't.
const binVariable = "EVAL_ESCAPE_BIN"

// nobody is the ordinary user that a root caller runs all of this as, too.
const nobody = 65534

// TestAsUser runs all other tests as an ordinary user.
func TestAsUser(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("this is one already")
	}
	dir, err := os.MkdirTemp("", "escape-user")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	for _, d := range []string{"bin", "tmp", "home", "testdata"} {
		if err := os.Mkdir(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	copies := map[string]string{self: "escape.test", binary("ev"): "bin/ev", binary("attempt"): "bin/attempt"}
	golden, _ := filepath.Glob("testdata/*")
	for _, g := range golden {
		copies[g] = g
	}
	for from, to := range copies {
		b, err := os.ReadFile(from)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, to), b, 0o755)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	err = filepath.Walk(dir, func(p string, _ os.FileInfo, err error) error {
		if err == nil {
			err = os.Chown(p, nobody, nobody)
		}
		return err
	})
	if err == nil {
		err = os.Chmod(dir, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(filepath.Join(dir, "escape.test"), "-test.v", "-test.timeout=5m", "-test.skip=^TestAsUser$")
	cmd.Dir = dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	cmd.Env = []string{
		"HOME=" + filepath.Join(dir, "home"), "TMPDIR=" + filepath.Join(dir, "tmp"), "PATH=" + systemPath,
		"EVAL_STRICT=" + os.Getenv("EVAL_STRICT"), binVariable + "=" + filepath.Join(dir, "bin"),
	}
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err = cmd.Run()
	if err != nil && cmd.ProcessState == nil {
		missing(t, "no test can be run as uid %d here (is TMPDIR open to it?): %v", nobody, err)
	}
	if err != nil {
		t.Errorf("as uid %d: %v\n%s", nobody, err, out.String())
	}
	for line := range strings.Lines(out.String()) {
		if summary.MatchString(line) {
			t.Log(strings.TrimSpace(line))
		}
	}
}

var summary = regexp.MustCompile(`^\s*--- |_test.go:\d+: (as user: |no control|nothing to attack|.*skipped)`)
