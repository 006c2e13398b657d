package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/evalbuild/eval/cas"
	"github.com/evalbuild/eval/workspace/draws"
	"github.com/evalbuild/eval/workspace/engine"
	"github.com/evalbuild/eval/workspace/graph"
)

var (
	soak      = flag.Bool("soak", false, "kill 1,000 builds that draw, instead of 5")
	soakKills = flag.Int("soak_kills", 1000, "how many, with -soak")
)

// soakPackage is a probe of reps that take a few milliseconds, and say what they
// would not say again.
const soakPackage = `
-- MODULE.star --
module(name = "soak")
-- p/BUILD.star --
load("@eval//rules:probe.star", "probe")
load("@eval//rules:producer.star", "producer")
load("@eval//rules:tool.star", "tool")

def six(rep):
    return PRESENT if rep.reply.startswith("six") else ABSENT

tool(name = "die_sh", path = "die.sh", data = ["/usr/bin/od"])
producer(name = "die", driver = "command", tool = ":die_sh")
probe(name = "luck", question = "q.md", treatment = "t.md", producer = ":die", discriminator = six, reps = REPS)
-- p/die.sh --
#!/bin/sh
n=$(od -An -N3 -tu4 /dev/urandom)
case $n in *[02468]) echo six $n;; *) echo no $n;; esac
-- p/q.md --
Roll.
-- p/t.md --
Be lucky.
`

// A soaking is one workspace whose builds are killed.
type soaking struct {
	*testing.T
	dir    string
	store  *cas.Store
	stored map[draws.ID]cas.Digest // what the store had of reps when a build was killed
	listed map[draws.ID]cas.Digest // what the lock had
}

func newSoaking(t *testing.T, reps int) *soaking {
	s := &soaking{T: t, dir: t.TempDir(), stored: map[draws.ID]cas.Digest{}, listed: map[draws.ID]cas.Digest{}}
	text := bytes.Replace([]byte(soakPackage), []byte("REPS"), fmt.Append(nil, reps), 1)
	if err := txtar.Write(txtar.Parse(text), s.dir); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Join(s.dir, "p/die.sh"), 0o755); err != nil {
		t.Fatal(err)
	}
	for dir := s.dir; dir != filepath.Clean(os.TempDir()) && dir != "/"; dir = filepath.Dir(dir) {
		os.Chmod(dir, 0o755) // for the sealed process, which is another user
	}
	if out, err := s.ev("lock", "//...").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	var err error
	s.store, err = cas.Open(cas.Options{Cache: filepath.Join(s.dir, ".cache", "eval"), Data: filepath.Join(s.dir, ".data", "eval")})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *soaking) ev(args ...string) *exec.Cmd {
	cmd := exec.Command("ev", args...)
	cmd.Dir = s.dir
	cmd.Env = append(os.Environ(), "HOME="+s.dir, "XDG_CACHE_HOME="+filepath.Join(s.dir, ".cache"), "XDG_DATA_HOME="+filepath.Join(s.dir, ".data"))
	return cmd
}

func (s *soaking) lockPath() string { return filepath.Join(s.dir, "p", draws.Name) }

// size is the lock's, 0 if there is none.
func (s *soaking) size() int64 {
	fi, err := os.Stat(s.lockPath())
	if err != nil {
		return 0
	}
	return fi.Size()
}

// build runs a build that is killed at a random moment: after some time, or
// some lines in the lock. It says whether it was done before.
func (s *soaking) build() (finished bool) {
	var out bytes.Buffer
	cmd := s.ev("build", "//p:luck", "--draws=allow", "--jobs=2")
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		s.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	lines, last := rand.IntN(6), s.size()
	deadline := time.Now().Add(time.Minute)
	if lines == 0 {
		deadline = time.Now().Add(time.Duration(rand.IntN(200)) * time.Millisecond)
	}
	for {
		select {
		case err := <-ended:
			if err != nil {
				s.Fatalf("a build that was not killed: %v\n%s", err, out.String())
			}
			return true
		case <-time.After(200 * time.Microsecond):
		}
		if now := s.size(); now != last && lines > 0 {
			last = now
			if lines--; lines == 0 {
				deadline = time.Now().Add(time.Duration(rand.IntN(8000)) * time.Microsecond)
			}
		}
		if time.Now().After(deadline) {
			cmd.Process.Kill()
			var exit *exec.ExitError
			if err := <-ended; err == nil {
				return true
			} else if !errors.As(err, &exit) || exit.ExitCode() != -1 {
				s.Fatalf("%v\n%s", err, out.String())
			}
			return false
		}
	}
}

var soakLabel = graph.Label{Pkg: "p", Name: "luck"}

// check looks at the lock and the store after a build: each rep has at most one
// capture, the store has all that the lock lists, and nothing that either had
// has gone or become another.
func (s *soaking) check() *draws.Lock {
	s.Helper()
	l, err := draws.Open(s.lockPath())
	if err != nil {
		s.Fatal(err)
	}
	held := map[draws.ID]bool{}
	for _, x := range l.Lines() {
		if x.Kind != draws.Draw && x.Kind != draws.Adopted {
			if x.Kind == draws.Intent {
				s.had(x.ID)
			}
			continue
		}
		if held[x.ID] {
			s.Fatalf("%v was drawn twice", x.ID)
		}
		held[x.ID] = true
		s.had(x.ID)
		if s.stored[x.ID] != x.Capture {
			s.Fatalf("%v: the lock lists %v, the store has %v", x.ID, x.Capture, s.stored[x.ID])
		}
		s.listed[x.ID] = x.Capture
	}
	for id := range s.listed {
		if !held[id] {
			s.Fatalf("%v was in the lock, and is gone", id)
		}
	}
	return l
}

// had notes which capture the store has of a rep; once it has one, it is that.
func (s *soaking) had(id draws.ID) {
	s.Helper()
	r, err := s.store.Lookup(cas.Capture, cas.Digest(id.Key))
	was, known := s.stored[id]
	if err != nil {
		if known {
			s.Fatalf("%v: the store had a capture, and has none: %v", id, err)
		}
		return
	}
	d, err := engine.CaptureDigest(s.store.Func(), r)
	if err != nil || known && d != was {
		s.Fatalf("%v: the store had %v, and has %v (%v)", id, was, d, err)
	}
	s.stored[id] = d
}

// TestSoak kills builds that draw, at random moments, until all is drawn: what
// was paid for is never drawn again, nothing that is listed is lost, and what
// was interrupted is counted.
func TestSoak(t *testing.T) {
	if ok, err := needed(canSeal(), "whole seal here (see ev doctor)"); err != nil {
		t.Fatal(err)
	} else if !ok {
		t.Skip("no whole seal here")
	}
	kills, reps := 5, 10
	switch {
	case *soak:
		kills, reps = *soakKills, 100
	case testing.Short():
		kills = 2
	}
	var all draws.Counts
	for done := 0; done < kills; {
		s := newSoaking(t, reps)
		for !s.build() {
			done++
			if s.size() > 0 {
				s.check()
			}
			if done == kills {
				if out, err := s.ev("build", "//p:luck", "--draws=allow").CombinedOutput(); err != nil {
					t.Fatalf("%v\n%s", err, out)
				}
				break
			}
		}
		c := s.check().Counts(soakLabel)
		if c.Draws+c.Adopted != 2*reps || c.Intents != c.Draws+c.Abandoned || c.Adopted > c.Abandoned || c.Attempts != c.Draws {
			t.Errorf("%d reps: %+v", reps, c)
		}
		lock, err := os.ReadFile(s.lockPath())
		if err != nil {
			t.Fatal(err)
		}
		if out, err := s.ev("build", "//p:luck").CombinedOutput(); err != nil || !bytes.Contains(out, []byte(" 0 ran,")) {
			t.Errorf("the next build: %v\n%s", err, out)
		}
		if out, err := s.ev("verify", "//p:luck").CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
		if now, err := os.ReadFile(s.lockPath()); err != nil || !bytes.Equal(now, lock) {
			t.Errorf("the lock changed: %v", err)
		}
		all.Intents, all.Draws, all.Abandoned, all.Adopted = all.Intents+c.Intents, all.Draws+c.Draws, all.Abandoned+c.Abandoned, all.Adopted+c.Adopted
	}
	t.Logf("%d kills: %+v", kills, all)
}
