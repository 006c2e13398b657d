package main

import (
	"crypto/sha256"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/evalbuild/eval/cas/remote/remotetest"
)

// A fault is what happens to a server when it has answered a quarter of what a
// build asks.
type fault struct {
	name    string
	reading bool // the server has all results; else it has none, and is given them
	strike  func(*remotetest.BazelRemote) error
}

var faultList = []fault{
	{"reading: nothing happens", true, nil},
	{"reading: the server is killed", true, kill},
	{"reading: it is killed and started again", true, (*remotetest.BazelRemote).Restart},
	{"reading: it is paused (SIGSTOP)", true, (*remotetest.BazelRemote).Pause},
	{"reading: every blob is corrupted", true, corrupt},
	{"writing: nothing happens", false, nil},
	{"writing: the server is killed", false, kill},
	{"writing: it is killed and started again", false, (*remotetest.BazelRemote).Restart},
	{"writing: it is paused (SIGSTOP)", false, (*remotetest.BazelRemote).Pause},
	{"writing: its disk is full", false, func(s *remotetest.BazelRemote) error { return s.SetFull(true) }},
}

func kill(s *remotetest.BazelRemote) error {
	s.Kill()
	return nil
}

func corrupt(s *remotetest.BazelRemote) error {
	_, err := s.Corrupt(nil)
	return err
}

// faults times builds of n actions whose server fails in the middle against the
// same build without a server. Every build has to succeed with the same outputs,
// to say each trouble once, and to take no longer than twice what it takes alone,
// or with a server in good health, and twice the time-out; twice, since the times
// of a busy machine differ by that much.
func (b *bench) faults(n int) {
	root := filepath.Join(b.dir, "faults")
	generateActions(root, 4, n/4, 20_000) // too large to travel inside of a result
	b.row("", 0, 1, nil, root, "lock", "//...")
	fmt.Printf("\n%-*s %9s %9s %8s\n", nameWidth, fmt.Sprintf("%d actions, a fault after a quarter of them", n), "seconds", "v alone", "warnings")

	f := &faultRun{bench: b, root: root, store: filepath.Join(b.dir, "faults-store"), n: n}
	took, _ := f.build("")
	alone, want := took, f.outputs()
	f.print("no server", took, alone, 0)

	// What a server is that has everything, to copy from.
	seed := filepath.Join(b.dir, "faults-seed")
	server := f.start(seed)
	f.build(server.Address())
	check(server.Stop())

	plain := map[bool]time.Duration{} // with a server in good health
	for _, c := range faultList {
		dir := filepath.Join(b.dir, "faults-server")
		check(os.RemoveAll(dir))
		if c.reading {
			check(os.CopyFS(dir, os.DirFS(seed)))
		}
		server := f.start(dir)
		// Each answer is a line of the log: a look-up, or a result that was put.
		mark := "GRPC AC PUT"
		if c.reading {
			mark = "GRPC AC GET"
		}
		struck := make(chan error, 1)
		stop := make(chan struct{})
		go func() { struck <- f.strike(server, mark, c.strike, stop) }()
		took, warnings := f.build(server.Address())
		close(stop)
		check(<-struck)
		if got := f.outputs(); got != want {
			check(fmt.Errorf("%s: the outputs differ", c.name))
		}
		if limit := 2*max(alone, plain[c.reading]) + 2*timeout; took > limit {
			check(fmt.Errorf("%s: it took %v; the limit is %v", c.name, took, limit))
		}
		if c.strike == nil {
			plain[c.reading] = took
		}
		f.print(c.name, took, alone, warnings)
		check(server.Stop())
	}
}

type faultRun struct {
	*bench
	root, store string
	n, stores   int
}

func (f *faultRun) start(dir string) *remotetest.BazelRemote {
	s, err := remotetest.LaunchBazelRemote(remotetest.BazelRemoteOptions{Dir: dir, Args: []string{"--storage_mode", "uncompressed"}})
	check(err)
	return s
}

// strike waits until the server has answered a quarter of n, then does its worst.
func (f *faultRun) strike(s *remotetest.BazelRemote, mark string, do func(*remotetest.BazelRemote) error, stop chan struct{}) error {
	if do == nil {
		return nil
	}
	for strings.Count(s.Log(), mark) < f.n/4 {
		select {
		case <-stop:
			return fmt.Errorf("the build ended before the server had said %q %d times", mark, f.n/4)
		case <-time.After(5 * time.Millisecond):
		}
	}
	return do(s)
}

// timeout is --remote_timeout, and what a fault may cost at most beside what the
// build has to do itself then.
const timeout = 5 * time.Second

// troubles are what a build may say of a server, of each kind once.
var troubles = []string{
	"the build goes on without", "the result doesn't count", "such results don't count",
	"nothing more is uploaded", "a result is not uploaded", "what it can't give is made again",
}

// build builds all in an empty store and says how long it took and how many
// warnings it printed.
func (f *faultRun) build(address string) (time.Duration, int) {
	f.stores++
	store := fmt.Sprintf("%s-%d", f.store, f.stores)
	check(os.RemoveAll(filepath.Join(f.root, "eval-out")))
	args := []string{"build", "--store=" + store}
	if address != "" {
		args = append(args, "--remote_cache="+address, "--remote_upload=always", "--remote_timeout="+timeout.String())
	}
	took, _, text := f.measure(f.root, append(args, "//...")...)
	warnings := 0
	seen := map[string]bool{}
	for line := range strings.Lines(text) {
		if !strings.Contains(line, "warning: ") {
			continue
		}
		warnings++
		kind := ""
		for _, t := range troubles {
			if strings.Contains(line, t) {
				kind = t
			}
		}
		if kind == "" || seen[kind] {
			check(fmt.Errorf("a warning that is new or said twice: %s", line))
		}
		seen[kind] = true
		if os.Getenv("BENCH_WARNINGS") != "" {
			fmt.Print(line)
		}
	}
	return took, warnings
}

// outputs is a digest of all files below eval-out, by name.
func (f *faultRun) outputs() [sha256.Size]byte {
	h := sha256.New()
	n := 0
	top := filepath.Join(f.root, "eval-out")
	check(filepath.WalkDir(top, func(p string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() || !strings.HasPrefix(d.Name(), "said-") {
			return err
		}
		data, err := os.ReadFile(p)
		if err != nil {
			return err
		}
		n++
		fmt.Fprintf(h, "%s %x\n", strings.TrimPrefix(p, top), sha256.Sum256(data))
		return nil
	}))
	if n != f.n {
		check(fmt.Errorf("%d outputs, not %d", n, f.n))
	}
	return [sha256.Size]byte(h.Sum(nil))
}

func (f *faultRun) print(name string, took, alone time.Duration, warnings int) {
	fmt.Printf("%-*s %9.2f %9.2f %8d\n", nameWidth, name, took.Seconds(), float64(took)/float64(alone), warnings)
}
