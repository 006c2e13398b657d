package sets

import (
	"bytes"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/evalbuild/eval/cas"
	"github.com/evalbuild/eval/workspace/draws"
	"github.com/evalbuild/eval/workspace/graph"
)

func TestFiles(t *testing.T) {
	s := made(t)
	var got []string
	for _, p := range s.Paths() {
		p, hex, ok := strings.Cut(p, "blobs/")
		if ok && len(hex) == 64 {
			p = "blobs/X"
		}
		if i := strings.LastIndexByte(p, '-'); i > 0 && len(p)-i == len("-0123456789abcdef.bin") {
			p = p[:i] + "-X.bin"
		}
		got = append(got, p)
	}
	want := []string{
		".gitattributes", "blobs/X", "draws.jsonl", "egress/control-1.jsonl",
		"external/other/MODULE.star", "external/other/lib/words.star", "outputs/prompts/control.txt",
		"replies/control-1.txt", "replies/control-2.txt", "results/control-1.bin", "results/control-2.bin",
		"results/processes/reps/control-1/judge.json.bin", "results/stopped/control-2-X.bin", "results/withdrawn/1-0/control-1-X.bin",
		"scorecard.json", "sources.json", "sources/MODULE.star", "sources/p/BUILD.star", "sources/p/judge.sh", "sources/p/q.md", "tools.json",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	m := s.Manifest
	if m.Epoch != 2 || !strings.HasPrefix(s.Name(), "2-") || len(m.Reps) != 2 {
		t.Errorf("epoch %d, name %s, reps %v", m.Epoch, s.Name(), m.Reps)
	}
	if want := captureName(cas.BLAKE3.Sum(s.File("results/control-1.bin"))); m.Reps["control-1"].Capture != want {
		t.Errorf("the capture is %s, not %s", m.Reps["control-1"].Capture, want)
	}
	if !slices.Equal(m.Executable, []string{"sources/p/judge.sh"}) {
		t.Errorf("executable: %q", m.Executable)
	}
	if string(s.File("sources.json")) != `{"exists":["@other//lib/passed.md"],"globs":[{"exclude":[],"files":["q.md","unread.md"],"include":["*.md"],"package":"//p"}],`+
		`"modules":{"eval":"eval","other":"other","ws":""},"packages":["//p","@other//lib"]}`+"\n" {
		t.Errorf("sources.json is %s", s.File("sources.json"))
	}
	if !bytes.Equal(archive(t, s), archive(t, made(t))) {
		t.Error("two sets of one content differ")
	}
}

// TestView shows that a set answers as the workspace did.
func TestView(t *testing.T) {
	v, err := made(t).View()
	check(t, err)
	ask(t, evalFiles{v})
	if _, err := v.ReadFile("", "p/unread.md"); err == nil {
		t.Error("a file that was never read is in the set")
	}
	if _, err := v.Glob("", "p", []string{"*.txt"}, nil); err == nil {
		t.Error("a glob that was never asked has an answer")
	}
	if _, err := v.Canonical("lost"); err == nil {
		t.Error("a module that was never asked for is there")
	}
	if v.OwnRules() {
		t.Error("the rules are the program's")
	}
	v.asked.Modules[Builtin] = ""
	if !v.OwnRules() {
		t.Error("the rules are the set's own")
	}
}

func TestMountsComeBack(t *testing.T) {
	s, c := made(t), content(t)
	mounts, err := s.Mounts()
	check(t, err)
	got, err := mounts(c.Tools[0].Tools)
	check(t, err)
	for i, m := range got {
		want := c.Tools[0].Mounts[i]
		if m.Path != want.Path || m.Digest != want.Digest || m.Executable != want.Executable || m.Link != want.Link || (m.Tree == nil) != (want.Tree == nil) {
			t.Errorf("mount %d is %+v, not %+v", i, m, want)
		}
		if m.Tree != nil && m.Tree.Digest() != m.Digest {
			t.Errorf("mount %d has another tree", i)
		}
	}
	if _, err := mounts([]graph.Label{{Pkg: "p", Name: "other"}}); err == nil {
		t.Error("a tool that isn't recorded has mounts")
	}
}

func TestResults(t *testing.T) {
	s, c := made(t), content(t)
	got, err := s.Results()
	check(t, err)
	if len(got) != len(c.Results) {
		t.Fatalf("%d results, not %d", len(got), len(c.Results))
	}
	for _, r := range got {
		if r.Draw == strings.Contains(r.Path, "processes") {
			t.Errorf("%s: draw is %v", r.Path, r.Draw)
		}
		for _, d := range r.Blobs {
			if _, ok := s.Blobs()[d]; !ok {
				t.Errorf("%s: the set has no blob %v", r.Path, d)
			}
		}
		if len(r.Blobs) != 1 {
			t.Errorf("%s names %d blobs, not 1", r.Path, len(r.Blobs))
		}
	}
}

func TestNewRefuses(t *testing.T) {
	for name, spoil := range map[string]func(*Content){
		"twice": func(c *Content) {
			c.Outputs["outcomes"] = nil
			c.Outputs["reps/x/outcome.json"] = nil
			c.Results = append(c.Results, c.Results[0])
		},
		"blob lost":      func(c *Content) { c.Blob = func(cas.Digest) ([]byte, error) { return nil, errNotIn } },
		"path":           func(c *Content) { c.Outputs["a\nb"] = nil },
		"file in file":   func(c *Content) { c.Outputs["a"] = nil; c.Outputs["a/b"] = nil },
		"other module":   func(c *Content) { c.Target.Repo = "other" },
		"missing digest": func(c *Content) { c.Results[0].Result.Files[0].Digest = cas.Digest{} },
	} {
		c := content(t)
		spoil(&c)
		if _, err := New(c); err == nil || !strings.HasPrefix(err.Error(), "publish ") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestCompare(t *testing.T) {
	again := made(t)
	texts := func(f func(*Content)) (out []string) {
		c := content(t)
		f(&c)
		s, err := New(c)
		check(t, err)
		for _, f := range s.Compare(again) {
			out = append(out, f.String())
		}
		return out
	}
	const differs, missing, more = ": it is not what the recorded bytes give", ": it is missing: the sources and results give it", ": the sources and results don't give it"
	const manifest = "manifest.json: its epoch, reps or results are not those of the recorded bytes"
	for name, c := range map[string]struct {
		spoil func(*Content)
		want  []string
	}{
		"equal":   {func(*Content) {}, nil},
		"version": {func(c *Content) { c.Eval = "0.0.1" }, nil}, // is said apart
		"sources": {func(c *Content) { c.Sources.files[source{"", "p/more"}] = nil }, nil},
		"differs": {func(c *Content) { c.Outputs["scorecard.json"] = []byte("[]\n") }, []string{"scorecard.json" + differs}},
		"missing": {func(c *Content) { delete(c.Outputs, "scorecard.json") }, []string{"scorecard.json" + missing}},
		"more":    {func(c *Content) { c.Outputs["more"] = nil }, []string{"outputs/more" + more}},
		"key": {func(c *Content) {
			id := *c.Results[0].ID
			id.Key = graph.Key(cas.BLAKE3.Sum(nil))
			c.Results[0].ID, c.Results[0].Key = &id, id.Key
		}, []string{manifest}},
		"key of a process": {func(c *Content) { c.Results[4].Key = graph.Key(cas.BLAKE3.Sum(nil)) }, []string{manifest}},
		"a rep less":       {func(c *Content) { c.Results = c.Results[1:] }, []string{"results/control-1.bin" + missing, manifest}},
		"draws":            {func(c *Content) { c.Draws = []byte("{}\n{}\n") }, []string{"draws.jsonl" + differs}},
		"tools":            {func(c *Content) { c.Tools = nil }, []string{"tools.json" + differs}},
	} {
		if d := cmp.Diff(c.want, texts(c.spoil)); d != "" {
			t.Errorf("%s: %s", name, d)
		}
	}
}

func TestCompareEpoch(t *testing.T) {
	s, again := made(t), made(t)
	s.Manifest.Epoch++
	if f := s.Compare(again); len(f) != 1 || f[0].Path != ManifestName {
		t.Errorf("another epoch: %v", f)
	}
}

func TestManifestRefuses(t *testing.T) {
	made := made(t)
	good, reps := made.manifest, made.Manifest.Reps
	if _, err := decodeManifest(good); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ from, to, want string }{
		{`{"digest"`, `{ "digest"`, "not canonical"},
		{`"schema":"eval.set/1"`, `"schema":"eval.set/2"`, `of schema "eval.set/2"`},
		{`"schema":"eval.set/1"`, `"schema":"eval.set/1","x":1`, "unknown field"},
		{`"epoch":2`, `"epoch":0`, "epoch is 0"},
		{`"digest":"blake3"`, `"digest":"sha256"`, "not one of sha256"},
		{`"digest":"blake3"`, `"digest":"md5"`, "md5"},
		{`"target":"//p:live"`, `"target":"p:live"`, "target"},
		{`"target":"//p:live"`, `"target":"@x//p:live"`, "target"},
		{`"settings":{"k":"<v>"}`, `"settings":null`, "a list is missing"},
		{`"executable":["sources/p/judge.sh"]`, `"executable":["sources/p/none.sh"]`, "not listed"},
		{`"executable":["sources/p/judge.sh"]`, `"executable":["sources/p/q.md","sources/p/judge.sh"]`, "not sorted"},
		{`".gitattributes":`, `"../x":`, "no clean path"},
		{`".gitattributes":`, `"/x":`, "no clean path"},
		{`".gitattributes":`, `".git/config":`, "can't be the name"},
		{`".gitattributes":`, `"\u0007":`, "control character"},
		{`".gitattributes":`, `"":`, "no clean path"},
		{`"result":"results/control-1.bin"`, `"result":"results/control-2.bin"`, "don't belong together"},
		{reps["control-1"].Key + `","result"`, reps["control-2"].Key + `","result"`, "don't belong together"},
		{reps["control-1"].Capture + `"`, reps["control-2"].Capture + `"`, "don't belong together"},
	} {
		if !bytes.Contains(good, []byte(c.from)) {
			t.Fatalf("the manifest has no %s", c.from)
		}
		_, err := decodeManifest(bytes.Replace(good, []byte(c.from), []byte(c.to), 1))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", c.to, err)
		}
	}
	var m Manifest
	check(t, decodeCanonical(good, &m))
	m.Digest, m.Files = cas.BLAKE3, maps.Clone(m.Files)
	m.Files["sources/huge"] = cas.Digest{Func: cas.BLAKE3, Hash: cas.BLAKE3.Sum(nil).Hash, Size: MaxBytes + 1}.String()
	if err := m.check(); err == nil || !strings.Contains(err.Error(), "bytes") {
		t.Errorf("a huge file: %v", err)
	}
}

func TestResultPaths(t *testing.T) {
	id := &draws.ID{Key: graph.Key(cas.BLAKE3.Sum(nil)), Sample: graph.Sample{Stream: "treatment", Index: 12, Epoch: 3, Redraw: 1}}
	hex := cas.Digest(id.Key).Hex()[:16]
	for want, r := range map[string]Result{
		"results/treatment-12.bin":                           {ID: id, Key: id.Key},
		"results/withdrawn/3-1/treatment-12-" + hex + ".bin": {ID: id, Key: id.Key, Withdrawn: true},
		"results/stopped/treatment-12-" + hex + ".bin":       {ID: id, Key: id.Key, Stopped: true},
		"results/processes/a/b.json.bin":                     {Slot: "a/b.json"},
	} {
		if got := r.path(); got != want {
			t.Errorf("%s, not %s", got, want)
		}
	}
}
