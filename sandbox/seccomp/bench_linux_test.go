//go:build amd64 || arm64

package seccomp

import (
	"runtime"
	"slices"
	"testing"
	"time"
)

// BenchmarkInstall is what the filter costs a spawn, beside the least that any
// filter costs and a chain of comparisons. Each install is on a thread of its
// own, which ends: a second filter would be read only where the first allows.
func BenchmarkInstall(b *testing.B) {
	tree, err := Compile(runtime.GOARCH)
	if err != nil {
		b.Fatal(err)
	}
	programs := []struct {
		name string
		p    []Instruction
	}{
		{"floor", []Instruction{{Code: returnConst, K: retAllow}}},
		{"tree", tree},
		{"linear", linear(machines[runtime.GOARCH])},
	}
	for _, c := range programs {
		b.Run(c.name, func(b *testing.B) {
			var took []time.Duration
			for b.Loop() {
				took = append(took, installOnce(b, c.p))
			}
			slices.Sort(took)
			b.ReportMetric(float64(len(c.p)), "instructions")
			b.ReportMetric(float64(took[len(took)/10].Nanoseconds())/1e3, "p10-µs")
			b.ReportMetric(float64(took[len(took)/2].Nanoseconds())/1e3, "median-µs")
		})
	}
}

func installOnce(b *testing.B, p []Instruction) time.Duration {
	var took time.Duration
	var err error
	done := make(chan bool)
	go func() {
		defer close(done)
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		from := time.Now()
		err = install(p, 0)
		took = time.Since(from)
	}()
	<-done
	if err != nil {
		skip(b, "no filter can be installed here: "+err.Error())
	}
	return took
}

func BenchmarkCompile(b *testing.B) {
	for b.Loop() {
		if _, err := Compile("amd64"); err != nil {
			b.Fatal(err)
		}
	}
}

// linear is the filter without arguments as one comparison for each number that
// is allowed or EPERM.
func linear(m machine) []Instruction {
	var a asm
	a.answers()
	next := a.unknown
	for nr, v := range slices.Backward(verdicts(m)) {
		switch v {
		case nosys:
		case deny:
			next = a.jump(jumpEqual, uint32(nr), a.denied, next)
		default:
			next = a.jump(jumpEqual, uint32(nr), a.allowed, next)
		}
	}
	a.load(offArch, a.jump(jumpEqual, m.audit, a.load(offNumber, next), a.killed))
	return a.program()
}
