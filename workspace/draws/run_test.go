package draws

import (
	"bytes"
	"crypto/rand"
	"os"
	"path/filepath"
	"testing"
)

func TestRun(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state", "runs")
	r, err := NewRun(dir, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	if !validRun(r.ID) || !Alive(dir, r.ID) {
		t.Errorf("run %q is dead", r.ID)
	}
	if Alive(dir, runA) || Alive(dir, "../"+r.ID) {
		t.Error("a run that never was is alive")
	}
	put(t, runPath(dir, runA), "") // killed
	other, err := NewRun(dir, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(runPath(dir, runA)); err == nil || !Alive(dir, r.ID) {
		t.Error("sweeping removes the wrong files")
	}
	for _, r := range []*Run{r, other} {
		if err := r.Close(); err != nil || Alive(dir, r.ID) {
			t.Errorf("closed: %v, alive %v", err, Alive(dir, r.ID))
		}
	}
	if left, _ := os.ReadDir(dir); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
}

func TestRunNumberTwice(t *testing.T) {
	dir := t.TempDir()
	number := bytes.Repeat([]byte{7}, 16)
	r, err := NewRun(dir, bytes.NewReader(number))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if _, err := NewRun(dir, bytes.NewReader(number)); err == nil || !Alive(dir, r.ID) {
		t.Errorf("two runs have one number: %v", err)
	}
	if _, err := NewRun(dir, bytes.NewReader(nil)); err == nil {
		t.Error("a run without randomness")
	}
}

func TestRecover(t *testing.T) {
	path := lockPath(t)
	l := open(t, path)
	runC := runID(3)
	for i, run := range []string{runA, runB, runC, runA} {
		appendOK(t, l, NewIntent(labelA, rep("c", i+1), run))
	}
	appendOK(t, l, NewIntent(labelA, rep("c", 4), runA).Drawn(cap1, 1))
	got, err := open(t, path).Recover(runC, func(run string) bool { return run == runB })
	if err != nil || len(got) != 1 || got[0].Run != runA || got[0].Why != "the run ended" || got[0].Sample.Index != 1 {
		t.Errorf("recovered %v, %v", got, err)
	}
	if again, err := l.Recover(runC, func(run string) bool { return run == runB }); err != nil || len(again) != 0 {
		t.Errorf("recovered twice: %v, %v", again, err)
	}
	if s := l.State(rep("c", 1)); s.Status != StatusAbandoned {
		t.Errorf("status %v", s.Status)
	}
}
