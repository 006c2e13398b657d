package hosttools

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/evalbuild/eval/cas"
	"github.com/evalbuild/eval/workspace/graph"
)

func TestFolder(t *testing.T) {
	w := newWorld(t)
	w.loader("lib/ld-musl-x86_64.so.1")
	w.elf("lib/libssl.so.3", elfFile{needed: []string{"libcrypto.so.3"}})
	w.elf("lib/libcrypto.so.3", elfFile{})
	w.write("py/a.py", "pass", 0o644)
	w.write("py/bin/run", "#!/nowhere\n", 0o755)
	w.link("py/out", "../../elsewhere")
	w.check(os.MkdirAll(w.path("py/empty"), 0o755))
	w.elf("py/dyn/_ssl.so", elfFile{needed: []string{"libssl.so.3", "libinside.so", "libnot.so"}, runpath: "$ORIGIN/../lib"})
	w.elf("py/lib/libinside.so.1", elfFile{})
	w.link("py/lib/libinside.so", "libinside.so.1")
	w.write("py/dyn/_bad.so", elfMagic+"\x02\x01 truncated", 0o644)
	w.link("data", "py")
	m, err := w.Data(w.path("data"))
	w.is(m, err, "data -> py", "lib/libcrypto.so.3", "lib/libssl.so.3", "py/")
	if err != nil {
		return
	}
	b := cas.NewTree(cas.BLAKE3)
	empty, _ := cas.NewTree(cas.BLAKE3).Build()
	b.File("a.py", digest("pass"), false)
	b.File("bin/run", digest("#!/nowhere\n"), true)
	b.Symlink("out", "../../elsewhere")
	b.Mount("empty", empty)
	for _, rel := range []string{"dyn/_ssl.so", "dyn/_bad.so", "lib/libinside.so.1"} {
		content, err := os.ReadFile(w.path("py/" + rel))
		w.check(err)
		b.File(rel, digest(string(content)), rel != "dyn/_bad.so")
	}
	b.Symlink("lib/libinside.so", "libinside.so.1")
	want, err := b.Build()
	w.check(err)
	if got := m[3]; got.Digest != want.Digest() || got.Tree.Digest() != want.Digest() {
		t.Errorf("tree %v, want %v", got.Digest, want.Digest())
	}

	m, err = w.Data(w.path("py/dyn/_ssl.so")) // a single file
	w.is(m, err, "lib/libcrypto.so.3", "lib/libssl.so.3", "py/dyn/_ssl.so", "py/lib/libinside.so -> libinside.so.1", "py/lib/libinside.so.1")
	m, err = w.Data(w.path("py/empty"))
	w.is(m, err, "py/empty/")
	_, err = w.Data(w.path("py/nope"))
	w.fails(err, "data /py/nope: no such file or directory")

	w.check(unix.Mkfifo(w.path("py/bin/pipe"), 0o644))
	_, err = w.Data(w.path("py/bin/pipe"))
	w.fails(err, "data /py/bin/pipe: is not a file")
	w.restart()
	_, err = w.Data(w.path("py"))
	w.fails(err, "data /py: bin/pipe: is a named pipe")
	w.check(os.Remove(w.path("py/bin/pipe")))
	if runtime.GOOS == "linux" { // APFS refuses the name
		w.write("py/\xff", "", 0o644)
		w.restart()
		_, err = w.Data(w.path("py"))
		w.fails(err, "UTF-8")
	}
}

func TestUnreadable(t *testing.T) {
	w := newWorld(t)
	w.write("d/secret", "x", 0o000)
	w.write("p", static, 0o111)
	unprivileged(t, func() {
		_, err := w.Data(w.path("d"))
		w.fails(err, "data /d: secret: permission denied")
		_, err = w.Program(w.path("p"))
		w.fails(err, "tool /p: permission denied")
	})
}

// A changed file is noticed even if nothing but its bytes and stamps differ,
// and nothing that is too fresh is believed.
func TestStatCache(t *testing.T) {
	w := newWorld(t)
	name := w.write("d/f", "one", 0o644)
	digestNow := func() cas.Digest {
		t.Helper()
		w.check(w.Save())
		w.restart()
		m, err := w.Data(name)
		w.check(err)
		return m[0].Digest
	}
	known := func() bool {
		f, err := lstat(name)
		w.check(err)
		_, ok := w.stats.get(name, f)
		return ok
	}
	if digestNow() != digest("one") || !known() || digestNow() != digest("one") || !known() {
		t.Error("not known")
	}
	w.write("d/f", "two", 0o644)
	if known() || digestNow() != digest("two") {
		t.Error("a change of the same size went unnoticed")
	}
	fi, err := os.Stat(name)
	w.check(err)
	w.write("d/f", "tre", 0o644)
	w.check(os.Chtimes(name, fi.ModTime(), fi.ModTime())) // ctime tells
	if digestNow() != digest("tre") {
		t.Error("a change with mtime set back went unnoticed")
	}

	w.now = time.Now() // just written: not to be believed
	w.restart()
	w.write("d/f", "for", 0o644)
	if digestNow(); known() {
		t.Error("a fresh file is believed")
	}
	w.now = time.Now().Add(time.Hour)
	if digestNow(); !known() {
		t.Error("an aged file is not kept")
	}
	w.check(w.Save())
	w.now = time.Now().Add(time.Minute) // the clock was ahead
	w.restart()
	if known() {
		t.Error("a record from the future is believed")
	}

	cache := w.path("state/hosttools")
	whole, err := os.ReadFile(cache)
	w.check(err)
	for i := range whole {
		b := append([]byte{}, whole...)
		b[i] ^= 1
		if _, _, err := decodeTable(b, cas.BLAKE3, w.now.UnixNano()); err == nil {
			t.Fatalf("byte %d damaged: read all the same", i)
		}
		if _, _, err := decodeTable(whole[:i], cas.BLAKE3, w.now.UnixNano()); err == nil {
			t.Fatalf("cut at %d: read all the same", i)
		}
	}
	w.check(os.WriteFile(cache, whole[:40], 0o644))
	w.now = time.Now().Add(time.Hour)
	if digestNow() != digest("for") || !known() {
		t.Error("a damaged cache is not replaced")
	}

	w.write("state/hosttools.tmp-1", "", 0o644)
	w.check(os.Chtimes(w.path("state/hosttools.tmp-1"), time.Now(), time.Now().Add(-2*time.Hour)))
	w.stats.kept, w.stats.unsaved = -minPrune, true // due for pruning
	w.check(os.Remove(name))
	w.check(w.Save())
	w.restart()
	if w.stats.loaded(); len(w.stats.records) != 0 {
		t.Error("a file that is gone is kept")
	}
	if left, err := filepath.Glob(w.path("state/*")); err != nil || len(left) != 1 {
		t.Error(left, err)
	}
	w.stats.file = w.path("d") // a folder
	w.stats.unsaved = true
	w.fails(w.Save(), "save stat cache /d:")
}

func TestMerge(t *testing.T) {
	tree := func(files map[string]string) graph.Mount {
		b := cas.NewTree(cas.BLAKE3)
		for name, content := range files {
			if to, ok := strings.CutPrefix(content, "-> "); ok {
				b.Symlink(name, to)
			} else {
				b.File(name, digest(content), false)
			}
		}
		built, err := b.Build()
		if err != nil {
			t.Fatal(err)
		}
		return graph.Mount{Digest: built.Digest(), Tree: built}
	}
	at := func(path string, m graph.Mount) graph.Mount { m.Path, m.Source = path, path; return m }
	file := func(path, content string) graph.Mount {
		return graph.Mount{Path: path, Source: path, Digest: digest(content)}
	}
	link := func(path, to string) graph.Mount { return graph.Mount{Path: path, Link: to} }
	d := at("/d", tree(map[string]string{"f": "1", "sub/g": "2", "l": "-> f"}))
	sub := at("/d/sub", tree(map[string]string{"g": "2"}))

	got, err := Merge(
		[]graph.Mount{file("/z", "z"), d, file("/d-x", "x"), link("/bin", "usr/bin")},
		[]graph.Mount{link("/bin", "usr/bin"), file("/d/f", "1"), sub, file("/d/sub/g", "2"), link("/d/l", "f"), file("/a", "a")},
		nil,
	)
	w := &world{TB: t}
	w.is(got, err, "a", "bin -> usr/bin", "d/", "d-x", "z")
	if got, err := Merge(); err != nil || len(got) != 0 {
		t.Error(got, err)
	}
	executable := file("/a", "1")
	executable.Executable = true
	for want, list := range map[string][]graph.Mount{
		"mount /a: is a file " + digest("1").String() + " and a link to b": {file("/a", "1"), link("/a", "b")},
		"mount /a: is a file " + digest("1").String() + " and a file":      {file("/a", "1"), file("/a", "2")},
		"mount /a: is a file " + digest("1").String() + " and an exec":     {file("/a", "1"), executable},
		"mount /a/b: /a is a link to c, not a folder":                      {link("/a", "c"), file("/a/b", "1")},
		"mount /d/f: is a file":   {d, file("/d/f", "2")},
		"mount /d/new: is a file": {d, file("/d/new", "2")},
		"mount /d/f/x: is a file": {d, file("/d/f/x", "2")},
		"mount /d/sub: is a link to x, and in the folder /d a folder": {d, link("/d/sub", "x")},
	} {
		_, err := Merge(list)
		w.fails(err, want)
	}
}

// unprivileged runs f so that permissions count, also for root: with the file
// system user of this one thread set to nobody.
func unprivileged(t *testing.T, f func()) {
	t.Helper()
	if os.Getuid() == 0 {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer dropFiles()()
	}
	f()
}

// A process that saves while another reads is never seen half.
func TestProcesses(t *testing.T) {
	if os.Getenv("HOSTTOOLS_CACHE") != "" {
		r := New(Options{Cache: os.Getenv("HOSTTOOLS_CACHE")})
		if _, err := r.Data(os.Getenv("HOSTTOOLS_DATA")); err != nil {
			t.Fatal(err)
		}
		r.stats.unsaved = true
		if err := r.Save(); err != nil {
			t.Fatal(err)
		}
		return
	}
	w := newWorld(t)
	w.write("d/f", "one", 0o644)
	exe, err := os.Executable()
	w.check(err)
	var running []*exec.Cmd
	for range 4 {
		cmd := exec.Command(exe, "-test.run=^TestProcesses$")
		cmd.Env = append(os.Environ(), "HOSTTOOLS_CACHE="+w.path("c/x"), "HOSTTOOLS_DATA="+w.path("d"))
		w.check(cmd.Start())
		running = append(running, cmd)
	}
	for _, cmd := range running {
		w.check(cmd.Wait())
	}
	if left, err := filepath.Glob(w.path("c/*")); err != nil || len(left) != 1 {
		t.Error(left, err)
	}
}
