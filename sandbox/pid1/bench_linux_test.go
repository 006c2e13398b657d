package pid1

import (
	"os/exec"
	"testing"
)

// What PID 1 costs is the difference: one more execution, the probes, and two
// messages. os/exec is the floor of both.
func BenchmarkTarget(b *testing.B) {
	noop := &program{}
	noop.call("exit_group", imm(0))
	target := executable(b, noop)
	b.Run("alone", func(b *testing.B) {
		for b.Loop() {
			cmd := exec.Command("/proc/self/fd/0")
			cmd.Stdin = target
			if err := cmd.Run(); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("through PID 1", func(b *testing.B) {
		for b.Loop() {
			p := start(b, options{plain: true, stdin: target}, "/proc/self/fd/0")
			p.run()
			p.stop()
		}
	})
	b.Run("go to end", func(b *testing.B) {
		for b.Loop() {
			b.StopTimer()
			p := start(b, options{plain: true, stdin: target}, "/proc/self/fd/0")
			p.hello()
			b.StartTimer()
			p.say(Go)
			p.end()
			b.StopTimer()
			p.stop()
			b.StartTimer()
		}
	})
}
