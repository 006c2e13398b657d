package engine

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/evalbuild/eval/cas"
	"github.com/evalbuild/eval/workspace/graph"
	"github.com/evalbuild/eval/workspace/hosttools"
)

// fakeLocks pins tools by their names.
type fakeLocks map[string][]graph.Mount

func (l fakeLocks) Locked(t graph.Tool, p graph.Platform) ([]graph.Mount, []graph.Platform, bool, error) {
	switch t.Label.Name {
	case "broken":
		return nil, nil, false, errors.New("read tools.lock:1: broken")
	case "elsewhere":
		return nil, []graph.Platform{graph.PlatformOf("plan9", "mips"), {OSFamily: "dos", ISA: "x86"}}, false, nil
	}
	m, ok := l[t.Label.Name]
	return m, nil, ok, nil
}

// dataTools takes programs for data: their closures don't matter here.
type dataTools struct{ *hosttools.Resolver }

func (t dataTools) Program(p string) ([]graph.Mount, error) { return t.Data(p) }
func (dataTools) Merge(lists ...[]graph.Mount) ([]graph.Mount, error) {
	return hosttools.Merge(lists...)
}
func (dataTools) Needs(io.ReaderAt, int64) ([]graph.Mount, error) { return nil, nil }

// A lockFixture is a workspace with tools on a machine that is a folder.
type lockFixture struct {
	*runFixture
	host  string
	locks fakeLocks
}

const lockRules = `
def _impl(ctx):
    out = ctx.actions.declare_file("o")
    ctx.actions.run(executable = ctx.attr.tools[0], tools = ctx.attr.tools[1:], arguments = ["o=" + ctx.attr.text], outputs = [out])
    return [DefaultInfo(files = [out])]

use = rule(_impl, attrs = {"tools": attr.label_list(), "text": attr.string(default = "made")})
`

func newLockFixture(t *testing.T, build string) *lockFixture {
	host, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	f := &lockFixture{newRunFixture(t, ""), host, fakeLocks{}}
	f.set("use.star", lockRules)
	f.redeclare(build)
	f.change = func(o *Options) { // a new process, which sees what the machine has now
		f.runner.store = o.Store
		o.Runner, o.Tools, o.Locks = f.runner, dataTools{hosttools.New(hosttools.Options{})}, f.locks
	}
	for p := host; len(p) > len(os.TempDir()); p = filepath.Dir(p) {
		os.Chmod(p, 0o755)
	}
	f.write("prog", "#!prog", 0o755)
	f.write("folder/sub/f", "in", 0o644)
	f.write("folder/x", "#!x", 0o755)
	f.check(os.MkdirAll(f.path("folder/empty"), 0o755))
	f.check(os.Symlink("sub/f", f.path("folder/l")))
	f.check(os.Symlink("prog", f.path("link")))
	return f
}

func (f *lockFixture) redeclare(build string) {
	f.declare("p", `load("//:use.star", "use")`+"\n"+loadRunRules+strings.ReplaceAll(build, "HOST", f.host))
}

func (f *lockFixture) path(rel string) string { return filepath.Join(f.host, rel) }

func (f *lockFixture) write(rel, content string, mode os.FileMode) {
	f.Helper()
	f.check(os.MkdirAll(filepath.Dir(f.path(rel)), 0o755))
	f.check(os.WriteFile(f.path(rel), []byte(content), mode))
	f.check(os.Chmod(f.path(rel), mode))
}

// lock pins paths as they are, and stores them.
func (f *lockFixture) lock(tool string, paths ...string) {
	f.Helper()
	r, s := hosttools.New(hosttools.Options{}), f.store()
	var lists [][]graph.Mount
	for _, p := range paths {
		list, err := r.Data(f.path(p))
		f.check(err)
		lists = append(lists, list)
	}
	list, err := hosttools.Merge(lists...)
	f.check(err)
	put := func(p string, d cas.Digest) {
		f.check(s.PutFile(cas.Capture, d, func() (io.ReadCloser, error) { return os.Open(p) }))
	}
	for i, m := range list {
		switch {
		case m.Link != "":
		case m.Tree == nil:
			put(m.Source, m.Digest)
		default:
			f.check(m.Tree.Walk(func(p string, n cas.FileNode) error { put(filepath.Join(m.Source, p), n.Digest); return nil }))
			_, err := s.PutTree(cas.Capture, m.Tree)
			f.check(err)
			list[i].Tree = cas.HollowTree(m.Digest, m.Tree.Message())
		}
		list[i].Source = ""
	}
	f.locks[tool] = list
}

// lose removes the blob of a locked mount, or of a folder's tree.
func (f *lockFixture) lose(tool, rel string) {
	f.Helper()
	for _, m := range f.locks[tool] {
		if m.Path != f.path(rel) {
			continue
		}
		d := m.Digest
		if m.Tree != nil {
			d = m.Tree.Message()
		}
		n := 0
		for _, p := range f.stored("cas") {
			if strings.Contains(p, d.Hex()) {
				f.check(os.Remove(p))
				n++
			}
		}
		f.check(os.RemoveAll(filepath.Join(f.storeDir(), "plain")))
		f.check(os.RemoveAll(f.state("folders")))
		if n != 1 {
			f.Fatalf("%d blobs of %s", n, rel)
		}
		return
	}
	f.Fatalf("%s is not locked", rel)
}

// has are the mounts of the one process that ran, by path below the host, as
// "content" or "path=content …" of a folder.
func (f *lockFixture) has() map[string]string {
	f.Helper()
	specs := f.took()
	if len(specs) != 1 {
		f.Fatalf("%d processes ran", len(specs))
	}
	out := map[string]string{}
	for _, m := range specs[0].Mounts {
		rel := strings.TrimPrefix(m.Path, f.host+"/")
		switch {
		case m.Link != "":
			out[rel] = "-> " + m.Link
		case m.Tree == nil:
			b, err := os.ReadFile(m.Source)
			f.check(err)
			out[rel] = string(b)
		default:
			var list []string
			f.check(filepath.WalkDir(m.Source, func(p string, d os.DirEntry, err error) error {
				f.check(err)
				name, _ := filepath.Rel(m.Source, p)
				info, err := d.Info()
				f.check(err)
				to, _ := os.Readlink(p)
				b, _ := os.ReadFile(p)
				if d.IsDir() {
					b = nil
				}
				list = append(list, name+"="+to+string(b)+map[bool]string{true: "*"}[info.Mode()&0o111 != 0 && info.Mode().IsRegular()])
				return nil
			}))
			out[rel] = strings.Join(list, " ")
		}
	}
	return out
}
