package pid1

import (
	"os"
	"os/exec"
	"testing"
)

// The emulator makes a vfork a fork, so execve's errno does not reach PID 1
// there.
func TestARM64UnderEmulation(t *testing.T) {
	qemu, err := exec.LookPath("qemu-aarch64")
	if err != nil {
		t.Skip(err)
	}
	o := options{plain: true, arch: "arm64", runner: []string{qemu}}
	p := start(t, o, sh("(exit 1); echo ran; exit 137")...)
	if e := p.run(); e.WaitStatus != 137<<8 || e.ExecErrno != 0 || e.Reaped != 1 {
		t.Errorf("%+v", e)
	}
	if got := p.output(); got != "ran\n" {
		t.Errorf("output %q", got)
	}
	p = start(t, o, "/bin/true")
	p.hello()
	p.say('x')
	if code := p.exitCode(); code != ExitNoGo {
		t.Errorf("exit code %d", code)
	}

	// Here the target survives PID 1, so it is one that ends by its input.
	in, feed, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	defer feed.Close()
	o.stdin = in
	p = start(t, o, "/bin/cat")
	p.hello()
	p.say(Go)
	if _, err := feed.WriteString("x"); err != nil {
		t.Fatal(err)
	}
	if _, err := p.stdout.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	p.death.Close()
	feed.Close()
	if code := p.exitCode(); code != ExitDeath {
		t.Errorf("exit code %d", code)
	}
}
