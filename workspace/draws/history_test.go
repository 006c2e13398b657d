package draws

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// A repo is a git repository whose lock is at p/draws.lock.
type repo struct {
	t    *testing.T
	dir  string
	path string
}

func newRepo(t *testing.T) repo {
	t.Helper()
	if _, err := exec.LookPath("git"); err != nil {
		if os.Getenv("EVAL_STRICT") != "" {
			t.Fatal("git is not installed")
		}
		t.Skip("git is not installed")
	}
	r := repo{t, t.TempDir(), ""}
	r.path = filepath.Join(r.dir, "p", Name)
	if err := os.Mkdir(filepath.Join(r.dir, "p"), 0o755); err != nil {
		t.Fatal(err)
	}
	r.git("init", "-q", "-b", "main")
	put(t, filepath.Join(r.dir, ".gitattributes"), Attributes+"\n")
	r.commit()
	return r
}

func (r repo) git(args ...string) string {
	r.t.Helper()
	cmd := exec.Command("git", append([]string{"-c", "user.name=n", "-c", "user.email=e@x", "-c", "commit.gpgSign=false"}, args...)...)
	cmd.Dir = r.dir
	cmd.Env = append(gitEnv(), "GIT_ALLOW_PROTOCOL=file")
	out, err := cmd.CombinedOutput()
	if err != nil {
		r.t.Fatalf("git %v: %v\n%s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

func (r repo) commit() string {
	r.t.Helper()
	r.git("add", "-A")
	r.git("commit", "-q", "--allow-empty", "-m", "x")
	return r.git("rev-parse", "HEAD")
}

// draw appends an intent and its draw.
func (r repo) draw(stream string, index int) {
	r.t.Helper()
	i := NewIntent(labelA, rep(stream, index), runA)
	appendOK(r.t, open(r.t, r.path), i, i.Drawn(cap1, 1))
}

func (r repo) check() History {
	r.t.Helper()
	h, err := CheckHistory(r.t.Context(), r.dir, "p/"+Name)
	if err != nil {
		r.t.Fatal(err)
	}
	abs, err := CheckHistory(r.t.Context(), r.dir, r.path)
	if err != nil || fmt.Sprint(abs) != fmt.Sprint(h) {
		r.t.Errorf("by absolute path %v, %v; else %v", abs, err, h)
	}
	return h
}

func (r repo) clean(commits int) {
	r.t.Helper()
	if h := r.check(); !h.Known || len(h.Removed) != 0 || h.Commits != commits {
		r.t.Errorf("%+v, want %d commits and nothing removed", h, commits)
	}
}

func TestHistory(t *testing.T) {
	r := newRepo(t)
	r.clean(0)
	r.draw("c", 1)
	r.clean(0)
	r.commit()
	r.draw("c", 2)
	second := r.commit()
	r.draw("c", 3) // not committed
	r.clean(2)
	whole := contents(t, r.path)
	lines := strings.SplitAfter(whole, "\n")

	put(t, r.path, strings.Join(append(lines[:2:2], lines[3:]...), ""))
	h := r.check()
	if len(h.Removed) != 1 || h.Removed[0] != (Removed{second, 3, strings.TrimSpace(lines[2]), ""}) {
		t.Errorf("a removed line: %+v", h)
	}
	changed := strings.Replace(lines[3], `"attempts":1`, `"attempts":2`, 1)
	put(t, r.path, strings.Replace(whole, lines[3], changed, 1))
	h = r.check()
	if len(h.Removed) != 1 || h.Removed[0].Now != strings.TrimSpace(changed) || !strings.Contains(h.Removed[0].String(), ":4: changed: ") {
		t.Errorf("a changed line: %+v", h)
	}
	put(t, r.path, strings.Join(append(lines[3:6:6], lines[:3]...), "")) // another order
	r.clean(2)

	put(t, r.path, strings.Join(lines[:2], "")) // removed and committed
	r.commit()
	if h = r.check(); len(h.Removed) != 2 || h.Commits != 3 {
		t.Errorf("a removal that was committed: %+v", h)
	}
	if err := os.RemoveAll(filepath.Dir(r.path)); err != nil {
		t.Fatal(err)
	}
	if h = r.check(); len(h.Removed) != 4 {
		t.Errorf("a removed folder: %+v", h)
	}
	r.commit()
	if h = r.check(); len(h.Removed) != 4 || h.Commits != 4 {
		t.Errorf("a removed folder that was committed: %+v", h)
	}
}

// TestHistoryOfMerges: lines of a branch that a merge did away with are missed.
func TestHistoryOfMerges(t *testing.T) {
	r := newRepo(t)
	r.draw("c", 1)
	r.commit()
	r.git("checkout", "-q", "-b", "side")
	r.draw("side", 1)
	side := r.commit()
	r.git("checkout", "-q", "main")
	r.git("merge", "-q", "-s", "ours", "-m", "x", "side")
	h := r.check()
	if len(h.Removed) != 2 || h.Removed[0].Commit != side {
		t.Errorf("merged away: %+v", h)
	}
}

// TestMerge is a real merge of two branches that both appended.
func TestMerge(t *testing.T) {
	r := newRepo(t)
	r.draw("c", 1)
	r.commit()
	r.git("checkout", "-q", "-b", "side")
	r.draw("side", 1)
	r.draw("both", 1)
	r.commit()
	r.git("checkout", "-q", "main")
	r.draw("main", 1)
	i := NewIntent(labelA, rep("both", 1), runB)
	appendOK(t, open(t, r.path), i, i.Drawn(cap2, 1))
	r.commit()
	r.git("merge", "-q", "-m", "x", "side")
	l := open(t, r.path)
	if n := len(l.Lines()); n != 10 || l.Torn() != nil {
		t.Errorf("%d lines\n%s", n, contents(t, r.path))
	}
	for _, stream := range []string{"c", "side", "main", "both"} {
		if s := l.State(rep(stream, 1)); s.Status != StatusDrawn || len(s.Open) != 0 || (len(s.Rivals) == 1) != (stream == "both") {
			t.Errorf("%s: %+v", stream, s)
		}
	}
	if h := r.check(); !h.Known || len(h.Removed) != 0 {
		t.Errorf("%+v", h)
	}
	r.draw("later", 1)
	if last := open(t, r.path).Lines(); last[len(last)-1].Seq != 8 {
		t.Errorf("the next seq is %d", last[len(last)-1].Seq)
	}
}

func TestHistoryUnknown(t *testing.T) {
	unknown := func(h History, err error, want string) {
		t.Helper()
		if err != nil || h.Known || !strings.Contains(h.Unknown, want) {
			t.Errorf("%+v, %v; want %s", h, err, want)
		}
	}
	t.Setenv("PATH", t.TempDir())
	h, err := CheckHistory(t.Context(), t.TempDir(), Name)
	unknown(h, err, "not installed")
}

func TestHistoryUnknownRepository(t *testing.T) {
	r := newRepo(t)
	h, err := CheckHistory(t.Context(), t.TempDir(), Name)
	if err != nil || h.Known || !strings.Contains(h.Unknown, "not a git repository") {
		t.Errorf("no repository: %+v, %v", h, err)
	}
	r.draw("c", 1)
	r.commit()
	r.draw("c", 2)
	r.commit()
	shallow := repo{t: t, dir: t.TempDir()}
	shallow.path = filepath.Join(shallow.dir, "p", Name)
	shallow.git("clone", "-q", "--depth=1", "file://"+r.dir, ".")
	put(t, shallow.path, "")
	if h := shallow.check(); h.Known || h.Unknown != "the clone is shallow" || len(h.Removed) != 4 {
		t.Errorf("shallow: %+v", h)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := CheckHistory(ctx, r.dir, r.path); err == nil {
		t.Error("a context that is done is no error")
	}
}

// TestHistoryRunsNothing has a repository, and an environment, that name a
// program wherever git would run one; a control shows that git does.
func TestHistoryRunsNothing(t *testing.T) {
	r := newRepo(t)
	r.draw("c", 1)
	r.commit()
	r.draw("c", 2)
	mark := filepath.Join(t.TempDir(), "ran")
	script := filepath.Join(t.TempDir(), "script")
	if err := os.WriteFile(script, []byte("#!/bin/sh\ntouch "+mark+"\ncat\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	hooks := filepath.Join(r.dir, ".git", "hooks")
	os.MkdirAll(hooks, 0o755)
	for _, name := range []string{"post-index-change", "pre-commit", "reference-transaction", "fsmonitor-watchman"} {
		if err := os.Symlink(script, filepath.Join(hooks, name)); err != nil {
			t.Fatal(err)
		}
	}
	for _, key := range []string{"core.fsmonitor", "core.pager", "diff.external", "core.sshCommand", "gpg.program", "filter.f.smudge", "filter.f.clean", "diff.d.textconv"} {
		r.git("config", key, script)
	}
	put(t, filepath.Join(r.dir, ".gitattributes"), Attributes+" filter=f diff=d\n")
	t.Setenv("GIT_DIR", t.TempDir())
	t.Setenv("GIT_EXTERNAL_DIFF", script)
	if h := r.check(); !h.Known || h.Commits != 1 || len(h.Removed) != 0 {
		t.Errorf("%+v", h)
	}
	if _, err := os.Lstat(mark); err == nil {
		t.Error("git ran a program")
	}
	r.git("status") // runs core.fsmonitor or the filter
	if _, err := os.Lstat(mark); err != nil {
		t.Error("the control ran nothing: the test proves nothing")
	}
}

func TestHistoryOddPaths(t *testing.T) {
	r := newRepo(t)
	r.path = filepath.Join(r.dir, "p", "*[a] :x", Name)
	if err := os.Mkdir(filepath.Dir(r.path), 0o755); err != nil {
		t.Fatal(err)
	}
	r.draw("c", 1)
	r.commit()
	put(t, r.path, "")
	h, err := CheckHistory(t.Context(), r.dir, r.path)
	if err != nil || len(h.Removed) != 2 {
		t.Errorf("%+v, %v", h, err)
	}
}

// TestHistoryDamaged: a commit that isn't there is no clean history.
func TestHistoryDamaged(t *testing.T) {
	r := newRepo(t)
	r.draw("c", 1)
	id := r.commit()
	object := filepath.Join(r.dir, ".git", "objects", id[:2], id[2:])
	if err := os.Remove(object); err != nil {
		t.Fatal(err)
	}
	if h, err := CheckHistory(t.Context(), r.dir, r.path); err == nil {
		t.Errorf("%+v", h)
	}
}

// TestHistoryUnborn: a repository without a commit is known to have none.
// TestHistoryNested: a repository that was made in the package doesn't hide what
// the one around it has.
func TestHistoryNested(t *testing.T) {
	r := newRepo(t)
	put(t, r.path, "{\"a\":1}\n{\"a\":2}\n")
	r.git("add", ".")
	r.commit()
	put(t, r.path, "{\"a\":1}\n")
	for _, also := range []string{"", "committed there, too"} {
		inner := repo{t, filepath.Join(r.dir, "p"), r.path}
		inner.git("init", "-q", "-b", "main")
		if also != "" {
			inner.git("add", ".")
			inner.commit()
		}
		h, err := CheckHistory(t.Context(), r.dir, r.path)
		if err != nil || !h.Known || len(h.Removed) != 1 {
			t.Errorf("%s: %+v, %v", also, h, err)
		}
	}
}

func TestHistoryUnborn(t *testing.T) {
	r := newRepo(t)
	r.git("update-ref", "-d", "HEAD")
	r.draw("c", 1)
	r.clean(0)
}

// TestCommitted: every lock that a commit has had is listed, wherever it is now.
func TestCommitted(t *testing.T) {
	r := newRepo(t)
	list := func(root string, want ...string) {
		t.Helper()
		got, err := Committed(t.Context(), root)
		if err != nil || strings.Join(got, " ") != strings.Join(want, " ") {
			t.Errorf("%q, %v; want %q", got, err, want)
		}
	}
	list(r.dir)
	list(t.TempDir()) // no repository
	r.draw("control", 1)
	list(r.dir) // not committed
	r.commit()
	list(r.dir, "p/draws.lock")
	for _, name := range []string{"draws.lock", "ü *[a]/q/draws.lock", "p/my-draws.lock"} {
		path := filepath.Join(r.dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		put(t, path, name)
	}
	r.commit()
	if err := os.RemoveAll(filepath.Join(r.dir, "p")); err != nil {
		t.Fatal(err)
	}
	r.commit()
	list(r.dir, "draws.lock", "p/draws.lock", "ü *[a]/q/draws.lock")
	list(filepath.Join(r.dir, "ü *[a]"), "q/draws.lock")

	first := repo{t, t.TempDir(), ""}
	first.git("init", "-q", "-b", "main")
	put(t, filepath.Join(first.dir, Name), "1")
	first.commit()
	list(first.dir, "draws.lock") // of the first commit of all

	// One that only a side branch had, that its merge did away with.
	r.git("checkout", "-q", "-b", "side")
	if err := os.Mkdir(filepath.Join(r.dir, "s"), 0o755); err != nil {
		t.Fatal(err)
	}
	put(t, filepath.Join(r.dir, "s", Name), "s")
	r.commit()
	r.git("checkout", "-q", "main")
	list(r.dir, "draws.lock", "p/draws.lock", "ü *[a]/q/draws.lock")
	r.git("merge", "-q", "-s", "ours", "-m", "x", "side")
	list(r.dir, "draws.lock", "p/draws.lock", "s/draws.lock", "ü *[a]/q/draws.lock")
}
