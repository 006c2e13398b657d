package sandbox

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/evalbuild/eval/cas"
	"github.com/evalbuild/eval/sandbox/pid1"
	"github.com/evalbuild/eval/workspace/graph"
)

// BenchmarkSeal times sealed processes that do nothing against bubblewrap's
// with the same namespaces, by turns, so that a loaded machine is unfair to
// all alike. It prints a table of CPU and wall time per process: medians, and
// the ratio of CPU to bubblewrap's. Where bwrap isn't installed there are no
// ratios. It runs as who runs it: root and ordinary users differ.
//
// "shared" is without a network namespace: a build of the seal for this
// benchmark only, which nothing else can ask for.
func BenchmarkSeal(b *testing.B) {
	image, err := pid1.Image(runtime.GOARCH) // outside of a seal it ends at once
	if err != nil {
		b.Fatal(err)
	}
	noop := filepath.Join(b.TempDir(), "noop")
	if err := os.WriteFile(noop, image, 0o755); err != nil {
		b.Fatal(err)
	}
	full, shared := New(Options{}), New(Options{})
	shared.edit = func(p *Program) { p.Clone &^= cloneNewNet }
	shared.forgive = map[string]error{"net": nil}
	spec := Spec{
		Args: []string{"/noop"}, Policy: graph.Policy{Limits: graph.DefaultLimits},
		Mounts: []graph.Mount{{Path: "/noop", Source: noop, Digest: cas.BLAKE3.Sum(image), Executable: true}},
	}
	sealed := func(s *Sandbox) func() error {
		return func() error { _, err := s.Run(context.Background(), spec); return err }
	}
	bwrap := func(args ...string) func() error {
		args = append(args, "--ro-bind", noop, "/noop", "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/scratch", "--clearenv", "/noop")
		return func() error { return ended(exec.Command("bwrap", args...).Run()) }
	}
	rows := []*benchRow{
		{name: "seal, private network", run: sealed(full), against: 3},
		{name: "seal, shared network", run: sealed(shared), against: 4},
		{name: "process alone (os/exec)", run: func() error { return ended(exec.Command(noop).Run()) }, against: -1},
		{name: "bwrap --unshare-all", run: bwrap("--unshare-all"), against: -1},
		{name: "bwrap --unshare-all --share-net", run: bwrap("--unshare-all", "--share-net"), against: -1},
	}
	if _, err := exec.LookPath("bwrap"); err != nil {
		rows = rows[:3]
	}
	b.ReportMetric(0, "ns/op") // of all rows together it says nothing
	for _, heap := range []int{0, 512} {
		ballast := make([]byte, heap<<20)
		for i := 0; i < len(ballast); i += 4096 {
			ballast[i] = 1
		}
		for _, r := range rows {
			r.cpu, r.wall = nil, nil
		}
		for range max(b.N/turn, 8) {
			for _, r := range rows {
				for range turn { // not one by one: the kernel still takes the last one's namespaces down
					c, t := cpuUsed(), time.Now()
					if err := r.run(); err != nil {
						b.Fatalf("%s: %v", r.name, err)
					}
					r.cpu, r.wall = append(r.cpu, cpuUsed()-c), append(r.wall, time.Since(t))
				}
			}
		}
		runtime.KeepAlive(ballast)
		fmt.Printf("\nuid %d, %d MiB of heap in the harness, medians of %d\n%-34s %10s %10s  %s\n", os.Geteuid(), heap, len(rows[0].cpu), "", "CPU µs", "wall µs", "CPU as a part of bwrap's (less is better)")
		for _, r := range rows {
			ratio := ""
			if r.against >= 0 && r.against < len(rows) {
				ratio = fmt.Sprintf("%.2f", float64(median(r.cpu))/float64(median(rows[r.against].cpu)))
			}
			fmt.Printf("%-34s %10d %10d  %s\n", r.name, median(r.cpu).Microseconds(), median(r.wall).Microseconds(), ratio)
		}
	}
}

// ended drops the error of a PID 1 that finds no seal around it.
func ended(err error) error {
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() == pid1.ExitNoGo {
		return nil
	}
	return err
}

const turn = 10 // runs of one row in a row

type benchRow struct {
	name      string
	run       func() error
	cpu, wall []time.Duration
	against   int // row that the ratio is to
}

func median(d []time.Duration) time.Duration {
	s := slices.Sorted(slices.Values(d))
	return s[len(s)/2]
}

// cpuUsed is what this process and the children that it waited for have used.
func cpuUsed() time.Duration {
	var sum time.Duration
	for _, who := range []int{syscall.RUSAGE_SELF, syscall.RUSAGE_CHILDREN} {
		var u syscall.Rusage
		syscall.Getrusage(who, &u)
		sum += time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	return sum
}
