package pid1

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func sh(script string) []string { return []string{"/bin/sh", "-c", script} }

func TestStatus(t *testing.T) {
	for _, tt := range []struct {
		name   string
		argv   []string
		status int32
		errno  syscall.Errno
	}{
		{"zero", sh("exit 0"), 0, 0},
		{"three", sh("exit 3"), 3 << 8, 0},
		{"137 is not SIGKILL", sh("exit 137"), 137 << 8, 0},
		{"SIGKILL is not 137", sh("kill -9 $$"), 9, 0},
		{"no such file", []string{"/no/such/file"}, 127 << 8, syscall.ENOENT},
		{"not executable", []string{"/etc/passwd"}, 127 << 8, syscall.EACCES},
		{"no target", nil, 127 << 8, syscall.EFAULT},
	} {
		for _, plain := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s/plain=%v", tt.name, plain), func(t *testing.T) {
				if !plain {
					needNamespaces(t)
				}
				e := start(t, options{plain: plain}, tt.argv...).run()
				if e.WaitStatus != tt.status || e.ExecErrno != int32(tt.errno) || e.Survivors != 0 || e.Reaped != 1 {
					t.Errorf("got %+v, want status %#x and errno %d", e, tt.status, tt.errno)
				}
			})
		}
	}
}

func TestArgumentsAndEnvironment(t *testing.T) {
	p := start(t, options{plain: true, env: []string{"A=b c", "E="}}, "/bin/sh", "-c", `printf '%s|' "$@" "$A" "${E-unset}"`, "zero", "one", "", "two words")
	if e := p.run(); e.WaitStatus != 0 {
		t.Errorf("%+v", e)
	}
	if got := p.output(); got != "one||two words|b c||" {
		t.Errorf("got %q", got)
	}
}

// A seal makes every probe hold; here there are only namespaces, so only
// those that a namespace or PID 1 itself answers for do.
func TestProbes(t *testing.T) {
	t.Run("control", func(t *testing.T) {
		raw := start(t, options{plain: true}, "/bin/true").hello()
		for i, p := range Probes {
			t.Logf("%-40s %-8s %d", p.Name, p.Layer, raw[i])
			switch p.Name {
			case "getpid()", "getppid()", `openat("/proc/sys", O_PATH)`, "fcntl(6, F_GETFD)":
				if p.Holds(raw[i]) {
					t.Errorf("%s = %d without a seal", p.Name, raw[i])
				}
			}
		}
	})
	t.Run("namespaces", func(t *testing.T) {
		needNamespaces(t)
		raw := start(t, options{}, "/bin/true").hello()
		for i, p := range Probes {
			switch p.Layer {
			case "pid", "user", "fds":
				if !p.Holds(raw[i]) {
					t.Errorf("%s = %d, want one of %d", p.Name, raw[i], p.Want)
				}
			}
		}
	})
	t.Run("harmless", func(t *testing.T) {
		if _, err := os.Lstat("/.probe"); err == nil {
			t.Error("/.probe was left")
		}
		p := start(t, options{plain: true}, sh("for f in 7 8 9; do [ -e /proc/self/fd/$f ] && echo $f; done; exit 0")...)
		p.run()
		if got := p.output(); got != "" {
			t.Errorf("descriptors left by probes: %q", got)
		}
	})
}

func TestSurvivors(t *testing.T) {
	needNamespaces(t)
	for _, tt := range []struct {
		name      string
		script    string
		survivors int32
		reaped    uint32 // at least
	}{
		{"daemon", "(setsid sleep 1000 &); exit 3", 1, 2},
		// The substitution ends when nobody holds its pipe: both are there then.
		{"two of one family", "x=$(sh -c 'sleep 1000 >/dev/null & exec >/dev/null; wait' &); exit 3", 2, 3},
		{"stopped", "(sh -c 'kill -STOP $$' &); exit 3", 1, 2},
		{"deaf", "(sh -c 'trap \"\" TERM INT HUP; exec sleep 1000' &); exit 3", 1, 2},
		{"ends within the grace", "(sleep 0.01 &); exit 3", 0, 2},
		{"killed before", "sleep 1000 & kill -9 $!; exit 3", 0, 1},
		{"zombies of the target", "for i in 1 2 3 4 5 6 7 8; do : & done; exec sh -c 'exit 3'", 0, 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var e End
			// A loaded machine may not run a child for as long as the grace,
			// so that one which would end becomes a survivor.
			for try := 0; try == 0 || tt.survivors == 0 && e.Survivors != 0 && try < 10; try++ {
				p := start(t, options{}, sh(tt.script)...)
				e = p.run()
				p.output() // until all are gone
			}
			if e.Survivors != tt.survivors || e.Reaped < tt.reaped || e.WaitStatus != 3<<8 {
				t.Errorf("got %+v, want %d survivors", e, tt.survivors)
			}
		})
	}
}

func TestForkBomb(t *testing.T) {
	needNamespaces(t)
	p := start(t, options{}, sh("(while :; do (:&); done) & (while :; do (sleep 0.001 &) ; done) & sleep 0.1; exit 3")...)
	p.hello()
	p.say(Go)
	begin := time.Now()
	if e := p.end(); e.Survivors < 1 || e.WaitStatus != 3<<8 {
		t.Errorf("%+v", e)
	}
	p.output()
	if d := time.Since(begin); d > 2*time.Second {
		t.Errorf("took %v", d)
	}
}

func TestZombieFlood(t *testing.T) {
	needNamespaces(t)
	for _, tt := range []struct {
		name      string
		n         int
		last      func(*program)
		survivors int32
	}{
		// Each child leaves a child: they come to PID 1 one by one.
		{"orphans", 600, func(p *program) {
			p.unless(rA, ne, imm(0), func() {
				p.call("clone", imm(sigChld), imm(0), imm(0), imm(0), imm(0))
				p.call("exit_group", imm(0))
			})
			p.call("wait4", rA, imm(0), imm(waitAll), imm(0))
		}, 0},
		// Nobody waits for them: they come at once, and are more than a batch.
		{"heirs", 2000, func(p *program) {
			p.unless(rA, ne, imm(0), func() { p.call("exit_group", imm(0)) })
		}, 0},
		// The same, killed: what was dead before isn't a survivor.
		{"killed heirs", 600, func(p *program) {
			p.unless(rA, ne, imm(0), func() { p.call("ppoll", imm(0), imm(0), imm(0), imm(0), imm(0)) })
			p.call("kill", rA, imm(sigKill))
		}, 0},
		{"killed heirs and a survivor", 600, func(p *program) {
			p.unless(rA, ne, imm(0), func() { p.call("ppoll", imm(0), imm(0), imm(0), imm(0), imm(0)) })
			p.unless(rB, eq, imm(1), func() { p.call("kill", rA, imm(sigKill)) })
		}, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := &program{}
			p.move(rB, imm(tt.n))
			next := p.here()
			p.call("clone", imm(sigChld), imm(0), imm(0), imm(0), imm(0))
			tt.last(p)
			p.sub(rB, imm(1))
			p.branch(rB, gt, imm(0), next)
			p.call("exit_group", imm(3))

			pid1 := start(t, options{stdin: executable(t, p)}, "/proc/self/fd/0")
			e := pid1.run()
			if e.Reaped != uint32(tt.n)+1 || e.WaitStatus != 3<<8 || e.Survivors < tt.survivors {
				t.Errorf("%+v", e)
			}
			// All but the last few are dead for sure when the target ends.
			if e.Survivors > tt.survivors+20 {
				t.Errorf("%d survivors, want %d", e.Survivors, tt.survivors)
			}
			pid1.output()
		})
	}
}

func TestNoGraceWithoutChildren(t *testing.T) {
	best := time.Hour
	for range 10 {
		p := start(t, options{plain: true}, "/bin/true")
		p.hello()
		begin := time.Now()
		p.say(Go)
		p.end()
		best = min(best, time.Since(begin))
	}
	if best > Grace*3/4 {
		t.Errorf("%v from go to the end", best)
	}
}

func TestSignalsFromInside(t *testing.T) {
	needNamespaces(t)
	e := start(t, options{}, sh("for s in STOP TSTP KILL TERM CHLD USR1; do kill -$s 1; done; kill -STOP -1; exit 7")...).run()
	if e.WaitStatus != 7<<8 || e.Survivors != 0 {
		t.Errorf("%+v", e)
	}
}

// The death pipe ends all at each stage, and nobody is left who holds stdout.
func TestDeath(t *testing.T) {
	needNamespaces(t)
	family := sh("(setsid sh -c 'while :; do sleep 1000; done' &); (setsid sleep 1000 &); echo x; sleep 1000")
	ready := func(p *process) {
		p.hello()
		p.say(Go)
		if _, err := p.stdout.Read(make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
	}
	for _, tt := range []struct {
		name   string
		dead   bool
		script []string
		until  func(*process)
		code   int
	}{
		{"before the hello", true, family, func(*process) {}, ExitNoGo},
		{"before go", false, family, func(p *process) { p.hello() }, ExitNoGo},
		{"while the target runs", false, family, ready, ExitDeath},
		{"while it floods", false, sh("echo x; while :; do (:&); done"), ready, ExitDeath},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := start(t, options{dead: tt.dead}, tt.script...)
			tt.until(p)
			begin := time.Now()
			p.death.Close()
			if code := p.exitCode(); code != tt.code {
				t.Errorf("exit code %d, want %d", code, tt.code)
			}
			p.output()
			if d := time.Since(begin); d > time.Second && !tt.dead {
				t.Errorf("took %v", d)
			}
			if b := make([]byte, 1); !tt.dead {
				if n, err := p.control.Read(b); n != 0 || err == nil {
					t.Errorf("a message after death: %d bytes, %v", n, err)
				}
			}
		})
	}
}

func TestNoGo(t *testing.T) {
	for _, tt := range []struct {
		name string
		do   func(*process)
	}{
		{"control closed", func(p *process) { p.control.Close() }},
		{"control half closed", func(p *process) {
			if err := unix.Shutdown(int(p.control.Fd()), unix.SHUT_WR); err != nil {
				p.t.Fatal(err)
			}
		}},
		{"another byte", func(p *process) { p.say('G') }},
		{"zero", func(p *process) { p.say(0) }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := start(t, options{plain: true}, "/bin/echo", "ran")
			p.hello()
			tt.do(p)
			if code := p.exitCode(); code != ExitNoGo {
				t.Errorf("exit code %d, want %d", code, ExitNoGo)
			}
			if out := p.output(); out != "" {
				t.Errorf("the target ran: %q", out)
			}
		})
	}
}

// What the target starts with. The control is the same target without PID 1.
func TestTargetState(t *testing.T) {
	needNamespaces(t)
	script := sh("grep -E '^Sig(Blk|Ign)' /proc/self/status; for f in 3 4 5 6 7 8 9; do [ -e /proc/self/fd/$f ] && echo fd $f; done; exit 0")
	const clean = "SigBlk:\t0000000000000000\nSigIgn:\t0000000000000000\n"
	p := start(t, options{}, script...)
	p.run()
	if got := p.output(); got != clean {
		t.Errorf("got\n%s", got)
	}
	got := start(t, options{direct: true}, script...).output()
	if strings.Contains(got, clean) || !strings.Contains(got, "fd 3\nfd 4\n") {
		t.Errorf("control shows nothing to reset:\n%s", got)
	}
}

// The target can neither read PID 1 nor speak in its name. In the control PID 1
// is a shell, and all of it works.
func TestAttack(t *testing.T) {
	needNamespaces(t)
	stdin := func() *os.File {
		f, err := os.Open("/proc/self/exe")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		return f
	}
	argv := sh(roleVar + "=" + attack + " /proc/self/fd/0; exit 0")
	p := start(t, options{stdin: stdin()}, argv...)
	if e := p.run(); e.WaitStatus != 0 {
		t.Errorf("%+v", e)
	}
	lines := strings.Split(strings.TrimSpace(p.output()), "\n")
	if len(lines) != 10 {
		t.Errorf("%d attempts, want 10: %q", len(lines), lines)
	}
	for _, line := range lines {
		open := strings.HasPrefix(line, "pidfd_open: ")
		if strings.HasSuffix(line, "<nil>") != open {
			t.Error(line)
		}
	}
	got := start(t, options{stdin: stdin(), direct: true}, argv...).output()
	for _, want := range []string{"open mem: <nil>", "open environ: <nil>", "open fd: <nil>", "forge: <nil>"} {
		if !strings.Contains(got, want) {
			t.Errorf("control: no %q in\n%s", want, got)
		}
	}
}
