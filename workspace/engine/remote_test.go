package engine

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/evalbuild/eval/cas"
	"github.com/evalbuild/eval/workspace/draws"
)

// A shelf is a Remote that is a second store: what Send gets is there at once.
type shelf struct {
	store *cas.Store // of the shelf
	mine  *cas.Store // of who asks

	mu       sync.Mutex
	calls    []string // "find pure", "fetch capture" ...
	captures map[[2]cas.Digest]cas.Result
	first    map[cas.Digest]cas.Result
	lost     bool                    // blobs, when they are fetched
	before   func(c cas.Class)       // of Find, may be nil
	outage   error                   // of Find
	told     sync.WaitGroup          // whose capture has a rival
	sent     map[cas.Digest][]string // key -> names of its outputs
}

func newShelf(t *testing.T) *shelf {
	dir := t.TempDir()
	s, err := cas.Open(cas.Options{Cache: dir, Data: dir})
	if err != nil {
		t.Fatal(err)
	}
	return &shelf{store: s, captures: map[[2]cas.Digest]cas.Result{}, first: map[cas.Digest]cas.Result{}, sent: map[cas.Digest][]string{}}
}

func (s *shelf) called(name string, c cas.Class) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls = append(s.calls, name+" "+c.String())
}

func (s *shelf) took() map[string]int {
	n := map[string]int{}
	for _, c := range s.calls {
		n[c]++
	}
	s.calls = nil
	return n
}

func (s *shelf) Find(_ context.Context, c cas.Class, key, want cas.Digest) (cas.Result, error) {
	if s.before != nil {
		s.before(c)
	}
	s.called("find", c)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.outage != nil {
		return cas.Result{}, s.outage
	}
	r, ok := s.first[key]
	if !want.IsZero() {
		r, ok = s.captures[[2]cas.Digest{key, want}]
	}
	if !ok {
		return r, &cas.MissError{Key: key, Reason: "no result on the shelf"}
	}
	r.Folders = slices.Clone(r.Folders)
	for i, f := range r.Folders {
		r.Folders[i].Root = must(s.store.ReadTree(f.Tree)).Digest()
	}
	return r, nil
}

func (s *shelf) Fetch(ctx context.Context, c cas.Class, key, want cas.Digest) error {
	r, err := s.Find(ctx, c, key, want)
	if err != nil {
		return err
	}
	s.called("fetch", c)
	if s.lost {
		return &cas.MissError{Key: key, Reason: "a blob is gone"}
	}
	return carry(c, s.store, s.mine, key, r)
}

func (s *shelf) Keep(_ context.Context, c cas.Class, _ cas.Digest) error {
	s.called("keep", c)
	return nil
}

func (s *shelf) Send(c cas.Class, key cas.Digest, r cas.Result, messages func() (action, command []byte, err error), rival func(cas.Digest)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	d := must(CaptureDigest(s.store.Func(), r))
	if _, ok := s.captures[[2]cas.Digest{key, d}]; ok {
		return
	}
	s.calls = append(s.calls, "send "+c.String())
	if messages != nil {
		action, _, err := messages()
		if err != nil || s.store.Func().Sum(action) != key {
			panic("the action is not the key's")
		}
	}
	for _, f := range r.Files {
		s.sent[key] = append(s.sent[key], f.Path)
	}
	s.captures[[2]cas.Digest{key, d}] = r
	if first, ok := s.first[key]; !ok {
		s.first[key] = r
	} else if has := must(CaptureDigest(s.store.Func(), first)); has != d && rival != nil {
		s.told.Go(func() { rival(has) })
	}
	for _, f := range r.Files {
		if !f.Inlined() {
			must(s.store.Put(cas.Pure, must(s.mine.Read(f.Digest))))
		}
	}
	for _, d := range []cas.Digest{r.Stdout, r.Stderr} {
		if !d.IsZero() {
			must(s.store.Put(cas.Pure, must(s.mine.Read(d))))
		}
	}
	for _, f := range r.Folders {
		t := must(s.mine.ReadTree(f.Tree))
		must(s.store.PutTree(cas.Pure, t))
		if err := t.Walk(func(_ string, f cas.FileNode) error {
			_, err := s.store.Put(cas.Pure, must(s.mine.Read(f.Digest)))
			return err
		}); err != nil {
			panic(err)
		}
	}
}

// carry copies a result with its blobs from one store to another.
func carry(c cas.Class, from, to *cas.Store, key cas.Digest, r cas.Result) error {
	put := func(d cas.Digest) error {
		b, err := from.Read(d)
		if err == nil {
			_, err = to.Put(c, b)
		}
		return err
	}
	var errs []error
	for _, f := range r.Files {
		if !f.Inlined() {
			errs = append(errs, put(f.Digest))
		}
	}
	for _, d := range []cas.Digest{r.Stdout, r.Stderr} {
		if !d.IsZero() {
			errs = append(errs, put(d))
		}
	}
	for _, f := range r.Folders {
		t, err := from.ReadTree(f.Tree)
		if err == nil {
			_, err = to.PutTree(c, t)
		}
		if err == nil {
			err = t.Walk(func(_ string, f cas.FileNode) error { return put(f.Digest) })
		}
		errs = append(errs, err)
	}
	if c == cas.Capture { // what is recorded stays
		d := must(CaptureDigest(to.Func(), r))
		if has, _, err := to.LookupCapture(key, d); err == nil && must(CaptureDigest(to.Func(), has)) != d {
			key = cas.SurplusKey(key, d)
		}
	}
	return errors.Join(append(errs, to.PutResult(c, key, r))...)
}

// share makes the fixture's builds use the shelf.
func (s *shelf) share(f *fixture, u Upload, d Download) {
	change := f.change
	f.change = func(o *Options) {
		change(o)
		s.mine = o.Store
		o.Remote, o.Upload, o.Download = s, u, d
	}
}

// elsewhere is the same workspace on a machine that has built nothing.
func (f *runFixture) elsewhere(t *testing.T) {
	f.dir = t.TempDir()
	f.took()
}

const pipeline = `
action(name = "a", tool = ":sh", args = ["o=@", "d/x=1", "d/y/z=2", "d/e/", "d/l->x"], srcs = ["a.txt"], outs = ["o", "d/"])
action(name = "b", tool = ":sh", args = ["o=@"], srcs = [":a"], outs = ["o"])
`

func newChain(t *testing.T) *runFixture {
	f := newRunFixture(t, pipeline)
	f.set("p/a.txt", strings.Repeat("A", 2000))
	return f
}

// TestRemoteRuns: what ran on one machine runs on no other, whatever is brought.
func TestRemoteRuns(t *testing.T) {
	for _, c := range []struct {
		download Download
		names    []string
		want     map[string]int
		outputs  []string
	}{
		{DownloadToplevel, nil, map[string]int{"find pure": 4, "fetch pure": 2}, []string{"p/a/d/x", "p/a/d/y/z", "p/a/o", "p/b/o"}},
		{DownloadToplevel, []string{"b"}, map[string]int{"find pure": 3, "fetch pure": 1, "keep pure": 1}, []string{"p/b/o"}},
		{DownloadAll, []string{"b"}, map[string]int{"find pure": 4, "fetch pure": 2}, []string{"p/b/o"}},
		{DownloadMinimal, []string{"b"}, map[string]int{"find pure": 2, "keep pure": 2}, nil},
	} {
		s := newShelf(t)
		f := newChain(t)
		s.share(f.fixture, UploadAll, c.download)
		f.wantRan(f.build(), "a o", "b o")
		was := f.outputs()
		if got := s.took(); got["send pure"] != 2 {
			t.Fatalf("the first: %v", got)
		}
		f.elsewhere(t)
		b := f.build(c.names...)
		if got := b.slots(Remotely); !slices.Equal(got, []string{"a o", "b o"}) || len(f.took()) != 0 || b.Remote != 2 {
			t.Errorf("%v of %v: from the remote %v", c.download, c.names, got)
		}
		if diff := cmp.Diff(c.want, s.took()); diff != "" {
			t.Errorf("%v of %v: calls %s", c.download, c.names, diff)
		}
		now := f.outputs()
		if got := keysOf(now); !slices.Equal(got, c.outputs) && len(got)+len(c.outputs) > 0 {
			t.Errorf("%v of %v: outputs %v", c.download, c.names, got)
		}
		for p, content := range now {
			if was[p] != content {
				t.Errorf("%s is %q, was %q", p, content, was[p])
			}
		}
	}
}

// TestRemoteLinks: a folder with a link that leads out of it was made by no action:
// it is a miss, also once the store has it.
func TestRemoteLinks(t *testing.T) {
	s := newShelf(t)
	f := newChain(t)
	s.share(f.fixture, UploadAll, DownloadAll)
	f.build()
	was := f.outputs()
	for _, r := range s.first {
		for i := range r.Folders {
			tree := cas.NewTree(cas.BLAKE3)
			tree.Symlink("l", "/etc/passwd")
			r.Folders[i].Tree = must(s.store.PutTree(cas.Pure, must(tree.Build())))
		}
	}
	f.elsewhere(t)
	f.wantRan(f.build(), "a o")
	if diff := cmp.Diff(was, f.outputs()); diff != "" {
		t.Error(diff)
	}
	f.wantRan(f.build())
}

// TestRemoteLeft: what was left on the remote is brought when something needs it,
// and made here when it is gone by then.
func TestRemoteLeft(t *testing.T) {
	for _, lost := range []bool{false, true} {
		s := newShelf(t)
		f := newChain(t)
		s.share(f.fixture, UploadAll, DownloadMinimal)
		f.build("a")
		f.elsewhere(t)
		s.took()
		s.lost = lost
		b := f.run(context.Background(), "b")
		f.check(b.err)
		want := []string{"b o"}
		if lost {
			want = []string{"a o", "b o"}
		}
		f.wantRan(b, want...)
		if got := string(must(os.ReadFile(f.out("p", "b", "o")))); !strings.Contains(got, "AAAA") || !strings.Contains(got, "p/a/d/y/z 2") {
			t.Errorf("lost %v: b has %.80q", lost, got)
		}
		if calls := s.took(); calls["fetch pure"] != 1 {
			t.Errorf("lost %v: %v", lost, calls)
		}
	}
}

// TestRemoteStale: in minimal mode the output folder has nothing that is not of
// this build.
func TestRemoteStale(t *testing.T) {
	s := newShelf(t)
	f := newChain(t)
	s.share(f.fixture, UploadAll, DownloadToplevel)
	f.build("b")
	one, dir := f.outputs(), f.dir
	f.set("p/a.txt", strings.Repeat("B", 2000))
	f.build("b")
	f.elsewhere(t)
	f.set("p/a.txt", strings.Repeat("A", 2000))
	f.dir = dir
	f.build("b")
	f.wantOutputs(one)
	s2 := f.change
	f.change = func(o *Options) { s2(o); o.Download = DownloadMinimal }
	f.set("p/a.txt", strings.Repeat("B", 2000))
	if err := os.RemoveAll(f.storeDir()); err != nil {
		t.Fatal(err)
	}
	if b := f.build("b"); b.Remote != 2 {
		t.Fatalf("remote %d", b.Remote)
	}
	if got := f.outputs(); len(got) != 0 {
		t.Errorf("outputs of an earlier build: %v", keysOf(got))
	}
}

// TestRemoteUnshared: what ran without a seal is neither sent nor asked for, nor
// what is made of it.
func TestRemoteUnshared(t *testing.T) {
	s := newShelf(t)
	f := newChain(t)
	f.redeclare(strings.Replace(pipeline, `srcs = ["a.txt"],`, `srcs = ["a.txt"], seal = ":no",`, 1) + `
seal(name = "no", wall = "5s")
`)
	s.share(f.fixture, UploadAll, DownloadToplevel)
	ts := f.targets()
	for _, x := range ts {
		for _, a := range x.Result.Actions {
			if x.Label.Name == "a" {
				p := *a.Policy
				p.Unsealed = true
				a.Policy = &p
			}
		}
	}
	rep, err := New(f.options(f.store(), nil)).Build(context.Background(), ts)
	if err != nil || rep.Ran != 2 {
		t.Fatalf("%+v, %v", rep, err)
	}
	if got := s.took(); len(got) != 0 {
		t.Errorf("calls %v", got)
	}
}

// TestRemoteRequired: an outage ends the build, and is not the action's fault.
func TestRemoteRequired(t *testing.T) {
	s := newShelf(t)
	f := newChain(t)
	s.share(f.fixture, UploadAll, DownloadToplevel)
	s.outage = errors.New("the remote cache is down")
	b := f.run(context.Background())
	if len(b.Problems) != 1 || !b.Problems[0].Infra || len(f.took()) != 0 {
		t.Errorf("problems %+v", b.Problems)
	}
}

// otherMachine forgets the store and what was built; the lock stays.
func (f *drawFixture) otherMachine(t *testing.T, withLock bool) {
	f.elsewhere(t)
	if !withLock {
		f.lockDir = t.TempDir()
	}
}

// TestRemoteDraws: a second machine draws nothing, with the lock and without; the
// scorecard is the same bytes with it. Only captures are sent.
func TestRemoteDraws(t *testing.T) {
	s := newShelf(t)
	f := newDrawFixture(t, luck)
	s.share(f.fixture, UploadCaptures, DownloadMinimal)
	f.draws(4)
	if got := s.took(); got["send capture"] != 4 || got["send pure"] != 0 {
		t.Fatalf("calls %v", got)
	}
	card := filepath.Join("p", "luck", "scorecard.json")
	was, lock := string(must(os.ReadFile(f.out(card)))), f.lockText("p")

	f.otherMachine(t, true)
	b := f.draws(0)
	if b.Remote != 4 || f.lockText("p") != lock || string(must(os.ReadFile(f.out(card)))) != was {
		t.Errorf("with the lock: %d from the remote; the lock is the same: %v", b.Remote, f.lockText("p") == lock)
	}
	if got := s.took(); got["send capture"] != 0 {
		t.Errorf("it was sent back: %v", got)
	}

	f.otherMachine(t, false)
	f.draws(0)
	c := f.countsOf("luck")
	if c.Adopted != 4 || c.Draws != 0 || !strings.Contains(f.lockText("p"), `"from":"remote"`) {
		t.Errorf("without: %+v", c)
	}
}

// TestRemoteLost: what neither has is not drawn again.
func TestRemoteLost(t *testing.T) {
	s := newShelf(t)
	f := newDrawFixture(t, luck)
	s.share(f.fixture, UploadNothing, DownloadMinimal)
	f.draws(4)
	if got := s.took(); got["send capture"] != 0 {
		t.Fatalf("calls %v", got)
	}
	f.otherMachine(t, true)
	b := f.run(context.Background())
	var lost *LostError
	if len(b.Problems) != 4 || !errors.As(b.Problems[0].Err, &lost) || len(f.took()) != 0 {
		t.Errorf("problems %+v", b.Problems)
	}
}

// TestRemotePlan: a plan asks, and stores nothing.
func TestRemotePlan(t *testing.T) {
	s := newShelf(t)
	f := newDrawFixture(t, luck)
	s.share(f.fixture, UploadAll, DownloadAll)
	f.draws(4)
	f.otherMachine(t, true)
	s.took()
	rep, err := New(f.options(f.store(), nil)).Plan(context.Background(), f.targets("luck"))
	f.check(err)
	if rep.Remote != 4 {
		t.Errorf("%d from the remote", rep.Remote)
	}
	for _, a := range rep.Stale {
		if a.Action.Sample != nil {
			t.Errorf("it would draw %v", a.Action.Slot())
		}
	}
	if got := s.took(); got["fetch capture"] != 0 || got["send capture"] != 0 {
		t.Errorf("calls %v", got)
	}
	if got := f.stored("ac"); len(got) != 0 {
		t.Errorf("stored %v", got)
	}
}

// TestRemotePlanSends: a plan sends nothing of what is here.
func TestRemotePlanSends(t *testing.T) {
	s := newShelf(t)
	f := newChain(t)
	f.build()
	s.share(f.fixture, UploadAll, DownloadToplevel)
	_, err := New(f.options(f.store(), nil)).Plan(context.Background(), f.targets())
	f.check(err)
	if got := s.took(); len(got) != 0 {
		t.Errorf("calls %v", got)
	}
	f.build()
	if got := s.took(); got["send pure"] != 2 {
		t.Errorf("a build: calls %v", got)
	}
}

// noteworthy is luck whose prompts, and whose reps, need what processes made.
const noteworthy = `
load("@eval//rules:action.star", "action")
action(name = "notes", tool = ":sh", args = ["o=@"], srcs = ["q.md"], outs = ["o"])
action(name = "rules", tool = ":sh", args = ["o=@"], srcs = ["t.md"], outs = ["o"])
producer(name = "die", driver = "command", tool = ":sh", srcs = [":rules"])
probe(name = "luck", question = "q.md", treatment = ":notes", producer = ":die", discriminator = six, reps = 2)
`

// TestRemoteLeftForDraws: a plan and a draw bring what they need of what was left
// on the remote; it is made again, before anything is begun, only if it is gone.
func TestRemoteLeftForDraws(t *testing.T) {
	for _, lost := range []bool{false, true} {
		s := newShelf(t)
		f := newDrawFixture(t, noteworthy)
		f.set("p/q.md", strings.Repeat("Roll. ", 400))
		f.set("p/t.md", strings.Repeat("Be lucky. ", 400))
		s.share(f.fixture, UploadAll, DownloadMinimal)
		f.build("notes", "rules")
		f.elsewhere(t)
		s.lost = lost
		if got := f.planned("luck"); len(got) != 4 {
			t.Errorf("lost %v: planned %q", lost, got)
		}
		f.elsewhere(t)
		b := f.run(context.Background(), "luck")
		f.check(b.err)
		if got := f.countsOf("luck"); got.Intents != 4 || got.Draws != 4 || got.Abandoned != 0 {
			t.Errorf("lost %v: counts %+v", lost, got)
		}
		for _, made := range []string{"notes o", "rules o"} {
			if ran := slices.Contains(b.slots(Ran), made); ran != lost || b.Drawn != 4 {
				t.Errorf("lost %v: %s ran: %v; %d drawn", lost, made, ran, b.Drawn)
			}
		}
	}
}

// TestRemoteFailsAtTheEnd: a remote that fails when a rep has ended costs no rep:
// it is kept, and the outage is told.
func TestRemoteFailsAtTheEnd(t *testing.T) {
	s := newShelf(t)
	f := newDrawFixture(t, luck)
	s.share(f.fixture, UploadCaptures, DownloadMinimal)
	f.jobs = 1
	words := f.runner.words
	f.runner.words = func(n int, in string) ([]string, error) {
		s.mu.Lock()
		s.outage = errors.New("the remote cache is down")
		s.mu.Unlock()
		return words(n, in)
	}
	b := f.run(context.Background())
	if len(b.Problems) != 1 || !b.Problems[0].Infra || !errors.Is(b.Problems[0].Err, s.outage) {
		t.Errorf("problems %+v", b.Problems)
	}
	if c := f.countsOf("luck"); c.Draws != 1 || c.Abandoned != 0 {
		t.Errorf("counts %+v", c)
	}
	if _, err := f.store().Lookup(cas.Capture, f.keyOf("control-1")); err != nil {
		t.Error(err)
	}
}

// TestRemoteForestalled: another machine draws the same reps while this one does.
// The captures that came to the remote first count on both, and the second ones
// are kept and disclosed.
func TestRemoteForestalled(t *testing.T) {
	s := newShelf(t)
	one, two := newDrawFixture(t, luck), newDrawFixture(t, luck)
	s.share(one.fixture, UploadCaptures, DownloadMinimal)
	s.share(two.fixture, UploadCaptures, DownloadMinimal)
	two.runner.words = func(int, string) ([]string, error) { return []string{"out:another six"}, nil }
	// The first draws when the second has looked and found nothing.
	var once sync.Once
	drew := make(chan struct{})
	two.runner.fail = nil
	words := two.runner.words
	two.runner.words = func(n int, in string) ([]string, error) {
		once.Do(func() {
			mine := s.mine
			one.draws(4)
			s.mine = mine
			close(drew)
		})
		<-drew
		return words(n, in)
	}
	two.jobs = 1
	b := two.draws(4)
	if b.Ran == 0 {
		t.Fatal("nothing ran")
	}
	if c := two.countsOf("luck"); c.Adopted != 4 || c.Surplus != 4 || c.Draws != 0 || c.Intents != 4 {
		t.Errorf("counts %+v", c)
	}
	for _, l := range one.lock().Lines() {
		if l.Kind != draws.Draw {
			continue
		}
		state := two.lock().State(l.ID)
		if state.Line.Capture != l.Capture || len(state.Surplus) != 1 {
			t.Errorf("%v: counts %v, want %v; surplus %d", l.ID, state.Line.Capture, l.Capture, len(state.Surplus))
		}
		if _, err := two.store().Lookup(cas.Capture, cas.SurplusKey(cas.Digest(l.Key), state.Surplus[0].Capture)); err != nil {
			t.Errorf("%v: the surplus is not kept: %v", l.ID, err)
		}
	}
	two.wantCard("luck", map[string]string{"arms.control.surplus": "2", "arms.control.drawn": "2"})
	if !strings.Contains(string(must(os.ReadFile(two.out("p", "luck", "scorecard.json")))), "4 further captures") {
		t.Error("the scorecard doesn't disclose it")
	}
	if was := two.lockText("p"); two.draws(0).Ran != 0 || two.lockText("p") != was {
		t.Error("a second build is not the same")
	}
}

// TestRemoteSurplus: captures that were drawn without the remote come to it when
// others have been there first: they stay, and the lock says so.
func TestRemoteSurplus(t *testing.T) {
	s := newShelf(t)
	one, two := newDrawFixture(t, luck), newDrawFixture(t, luck)
	two.runner.words = func(int, string) ([]string, error) { return []string{"out:another six"}, nil }
	two.draws(4)
	s.share(one.fixture, UploadCaptures, DownloadMinimal)
	one.draws(4)
	s.share(two.fixture, UploadCaptures, DownloadMinimal)
	two.draws(0)
	s.told.Wait()
	if c := two.countsOf("luck"); c.Draws != 4 || c.Adopted != 0 {
		t.Errorf("counts %+v", c)
	}
	two.draws(0)
	two.wantCard("luck", map[string]string{"arms.treatment.surplus": "2"})
	if c := two.countsOf("luck"); c.Surplus != 4 {
		t.Errorf("counts %+v", c)
	}
}

// TestRemoteWithdrawn: what was withdrawn is disclosed on every machine, so its
// captures are brought as well, those of earlier epochs, too.
func TestRemoteWithdrawn(t *testing.T) {
	for _, now := range []string{
		`reps = 2, withdraw = {"control-2": ["laptop slept"]}`,
		`reps = 2, epoch = 2, epochs = {1: "egress was open"}`,
	} {
		s := newShelf(t)
		f := newDrawFixture(t, luck)
		s.share(f.fixture, UploadCaptures, DownloadMinimal)
		f.draws(4)
		f.edit("p/BUILD.star", "reps = 2", now)
		f.build()
		card := filepath.Join("p", "luck", "scorecard.json")
		was, lock := string(must(os.ReadFile(f.out(card)))), f.lockText("p")
		f.otherMachine(t, true)
		f.draws(0)
		if got := string(must(os.ReadFile(f.out(card)))); got != was || f.lockText("p") != lock {
			t.Errorf("%s: elsewhere the scorecard is\n%s\nnot\n%s", now, got, was)
		}
	}
}

// TestRemoteUnusable: what somebody put under a rep's key that is no capture of it
// is a miss. It comes neither into the store nor into the lock, before a draw or
// after.
func TestRemoteUnusable(t *testing.T) {
	for name, spoil := range map[string]func(*cas.Result){
		"no outputs": func(r *cas.Result) { r.Files = nil },
		"an exit that can't be read": func(r *cas.Result) {
			r.Files = slices.Clone(r.Files)
			for i := range r.Files {
				if f := &r.Files[i]; f.Path == ".eval/exit" {
					f.Contents = []byte("hello")
					f.Digest = cas.BLAKE3.Sum(f.Contents)
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newShelf(t)
			f := newDrawFixture(t, luck)
			s.share(f.fixture, UploadCaptures, DownloadMinimal)
			f.draws(4)
			clear(s.captures)
			for key, r := range s.first {
				spoil(&r)
				s.first[key] = r
				s.captures[[2]cas.Digest{key, must(CaptureDigest(cas.BLAKE3, r))}] = r
			}
			f.otherMachine(t, false)
			f.draws(4)
			s.told.Wait()
			if c := f.countsOf("luck"); c.Draws != 4 || c.Adopted != 0 {
				t.Errorf("counts %+v", c)
			}
			f.draws(0)
		})
	}
}

// TestRemoteSlowFunction: a function that takes long here is asked for while it
// runs, and given up when the remote has it.
func TestRemoteSlowFunction(t *testing.T) {
	s := newShelf(t)
	f := newFixture(t, `node(name = "slow", fn = spin)`)
	f.change = func(*Options) {}
	s.share(f, UploadAll, DownloadMinimal)
	ts := f.targets()
	eng := New(f.options(f.store(), nil))
	plan, err := eng.Plan(context.Background(), ts)
	f.check(err)
	var key cas.Digest
	for _, a := range plan.Stale {
		key = cas.Digest(a.Key)
	}
	made := []byte("done")
	s.first[key] = cas.Result{Files: []cas.OutputFile{{Path: ts[0].Result.Actions[0].Outputs[0].Name, Digest: cas.BLAKE3.Sum(made), Contents: made}}}
	b := f.build()
	if got := b.slots(Remotely); !slices.Equal(got, []string{"slow"}) {
		t.Errorf("from the remote %v", got)
	}
	f.wantOutputs(map[string]string{"p/slow/out.txt": "done"})
}

// TestRemoteTools: a machine that has another tool than the lock pins, and whose
// store never saw it, gets the locked one from the remote.
func TestRemoteTools(t *testing.T) {
	s := newShelf(t)
	f := newLockFixture(t, useOne)
	s.share(f.fixture, UploadCaptures, DownloadToplevel)
	f.lock("prog", "prog", "link", "folder")
	s.mine = f.store()
	for _, m := range f.locks["prog"] {
		if m.Link == "" {
			key, r := mountResult(cas.BLAKE3, m)
			s.Send(cas.Pure, key, r, nil, nil)
		}
	}
	f.build("a")
	was := f.has()
	f.write("prog", "#!other", 0o755)
	f.write("folder/sub/f", "out", 0o644)
	f.elsewhere(t)
	f.wantRan(f.build("a"), "a o")
	if diff := cmp.Diff(was, f.has()); diff != "" {
		t.Error(diff)
	}
	// What is there under the key is another's.
	for key, r := range s.first {
		if len(r.Files) > 0 {
			r.Files = []cas.OutputFile{{Path: "file", Digest: cas.BLAKE3.Sum([]byte("#!bad")), Contents: []byte("#!bad")}}
			s.first[key] = r
		}
	}
	f.elsewhere(t)
	b := f.run(context.Background(), "a")
	var drift *DriftError
	if len(b.Problems) != 1 || !errors.As(b.Problems[0].Err, &drift) || !strings.Contains(drift.Lost, "remote") {
		t.Errorf("problems %+v", b.Problems)
	}
}

// TestRemoteMerged: two machines drew the same reps without the remote, and their
// locks are merged. The captures of one of them count, and the other machine, which
// keeps its own, gets these from the remote: it builds, verifies, and comes to the
// same scorecard.
func TestRemoteMerged(t *testing.T) {
	s := newShelf(t)
	one, two := newDrawFixture(t, luck), newDrawFixture(t, luck)
	two.runner.words = func(int, string) ([]string, error) { return []string{"out:another six"}, nil }
	both := []*drawFixture{one, two}
	for _, f := range both {
		f.draws(4)
	}
	for _, f := range both {
		s.share(f.fixture, UploadCaptures, DownloadMinimal)
		f.draws(0)
		s.told.Wait()
	}
	merged := one.lockText("p") + two.lockText("p")
	var cards []string
	for _, f := range both {
		f.check(os.WriteFile(f.lockPath("p"), []byte(merged), 0o644))
		f.draws(0)
		b := f.draws(0)
		f.wantRan(b)
		cards = append(cards, string(must(os.ReadFile(f.out("p", "luck", "scorecard.json")))))
		was := s.took()
		f.draws(0)
		if got := s.took(); got["fetch capture"] != 0 || got["send capture"] != 0 {
			t.Errorf("it is not settled: %v, then %v", was, got)
		}
		faults, rep, err := New(f.options(f.store(), nil)).Verify(context.Background(), f.targets("luck"))
		if err != nil || len(faults) > 0 || len(rep.Problems) > 0 {
			t.Errorf("verify: %v, %v, %+v", err, faults, rep.Problems)
		}
	}
	if cards[0] != cards[1] {
		t.Errorf("scorecards differ:\n%s\n%s", cards[0], cards[1])
	}
}
