package hosttools

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/evalbuild/eval/workspace/graph"
)

func TestShell(t *testing.T) {
	m, err := New(Options{}).Program("/bin/sh")
	if err != nil {
		t.Fatal(err)
	}
	real, err := filepath.EvalSymlinks("/bin/sh")
	if err != nil {
		t.Fatal(err)
	}
	if leads(m, "/bin/sh") != real {
		t.Errorf("/bin/sh leads to %q, want %s: %+v", leads(m, "/bin/sh"), real, m)
	}
	for _, m := range m {
		fi, err := os.Lstat(m.Path)
		if err != nil || (fi.Mode()&os.ModeSymlink != 0) != (m.Link != "") || m.Link == "" && m.Digest.Size != fi.Size() {
			t.Errorf("%+v: %v %v", m, fi, err)
		}
	}
}

// leads resolves a path by mounts alone, as inside of a sealed root; "" if it
// doesn't lead to a file.
func leads(mounts []graph.Mount, name string) string {
	at := map[string]graph.Mount{}
	for _, m := range mounts {
		at[m.Path] = m
	}
	done, rest := "/", strings.TrimPrefix(name, "/")
	for range 100 {
		step, more, _ := strings.Cut(rest, "/")
		done, rest = filepath.Join(done, step), more
		m, ok := at[done]
		switch {
		case ok && m.Link != "":
			rest = m.Link + "/" + rest
			if done = filepath.Dir(done); filepath.IsAbs(m.Link) {
				done = "/"
			}
		case ok && m.Tree == nil:
			return done
		case rest == "":
			return ""
		}
	}
	return ""
}

// programs are tools that people name, as far as they are here.
func programs(t *testing.T) (list []string) {
	if runtime.GOOS != "linux" {
		t.Skip("libraries aren't files here")
	}
	for _, name := range []string{"sh", "bash", "python3", "node", "git", "env", "perl", "curl", "openssl", "gcc", "ssh", "jq"} {
		if _, err := os.Stat("/usr/bin/" + name); err == nil {
			list = append(list, "/usr/bin/"+name)
		}
	}
	return list
}

// TestAgainstLoader asks the loader itself what it would load.
func TestAgainstLoader(t *testing.T) {
	r := New(Options{})
	compared := 0
	for _, name := range programs(t) {
		mounts, err := r.Program(name)
		if err != nil {
			t.Errorf("%v", err)
			continue
		}
		p, err := r.locate(name)
		if err != nil {
			t.Fatal(err)
		}
		o, err := r.object(p)
		if err != nil || o == nil || o.interpreter == "" {
			continue
		}
		cmd := exec.Command(o.interpreter, p.real)
		cmd.Env = []string{"LD_TRACE_LOADED_OBJECTS=1"}
		out, err := cmd.Output()
		if err != nil {
			t.Logf("%s: the loader can't tell: %v", name, err)
			continue
		}
		for line := range strings.Lines(string(out)) {
			words := strings.Fields(line)
			for _, lib := range words {
				if !filepath.IsAbs(lib) {
					continue
				}
				real, err := filepath.EvalSymlinks(lib)
				if err != nil || leads(mounts, lib) != real {
					t.Errorf("%s: %s isn't in the closure, or leads elsewhere (%v)", name, lib, err)
				}
				compared++
			}
		}
	}
	t.Logf("compared %d libraries", compared)
}

// TestSufficient runs programs in a root with copies of their closures and
// nothing else. It needs chroot, so root.
func TestSufficient(t *testing.T) {
	if os.Getuid() != 0 || runtime.GOOS != "linux" {
		t.Skip("only root can chroot")
	}
	r := New(Options{})
	script := filepath.Join(t.TempDir(), "hello")
	if err := os.WriteFile(script, []byte("#!/usr/bin/env -S sh -e\necho $0\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args []string
		data []string
		want string
	}{
		{[]string{"/bin/sh", "-c", "echo hello"}, nil, "hello"},
		{[]string{script}, nil, script},
		{[]string{"/usr/bin/git", "--version"}, nil, "git version"},
		{[]string{"/usr/bin/perl", "-e", "print 6*7"}, nil, "42"},
		{[]string{"/usr/bin/python3", "-c", "import ssl, sqlite3, hashlib; print(ssl.OPENSSL_VERSION)"}, []string{"/usr/lib/python3.11"}, "OpenSSL"},
	} {
		if _, err := os.Stat(c.args[0]); err != nil {
			continue
		}
		mounts, err := r.Program(c.args[0])
		if err != nil {
			t.Error(err)
			continue
		}
		for _, name := range c.data {
			more, err := r.Data(name)
			if err != nil {
				t.Logf("%v", err)
				continue
			}
			if mounts, err = Merge(mounts, more); err != nil {
				t.Fatal(err)
			}
		}
		if len(c.data) > 0 && testing.Short() {
			continue
		}
		root := t.TempDir()
		if err := populate(root, mounts); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(c.args[0], c.args[1:]...)
		cmd.Path, cmd.Dir, cmd.Env = c.args[0], "/", []string{"PATH=" + strings.Join(searchPath, ":")}
		cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: root}
		out, err := cmd.CombinedOutput()
		if err != nil && os.IsPermission(err) {
			t.Skip(err)
		}
		if err != nil || !strings.Contains(string(out), c.want) {
			t.Errorf("%q: %v: %s", c.args, err, out)
		}
	}
}

// populate copies. A plain file will do for /dev/null, which every sealed root has.
func populate(root string, mounts []graph.Mount) error {
	if err := os.Mkdir(root+"/dev", 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(root+"/dev/null", nil, 0o666); err != nil {
		return err
	}
	for _, m := range mounts {
		to := filepath.Join(root, m.Path)
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			return err
		}
		switch {
		case m.Link != "":
			if err := os.Symlink(m.Link, to); err != nil {
				return err
			}
		case m.Tree != nil:
			if err := exec.Command("cp", "-a", m.Source, to).Run(); err != nil {
				return err
			}
		default:
			b, err := os.ReadFile(m.Source)
			if err == nil {
				err = os.WriteFile(to, b, 0o755)
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// TestSelf is about a static program: it needs nothing but itself.
func TestSelf(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(exe)
	if err != nil {
		t.Fatal(err)
	}
	r := New(Options{})
	m, err := r.Needs(bytes.NewReader(b), int64(len(b)))
	if err != nil {
		t.Fatal(err)
	}
	if o, err := parseELF(bytes.NewReader(b), int64(len(b))); err == nil && o.interpreter == "" && len(m) > 0 {
		t.Errorf("%+v", m)
	}
	if exe, err = filepath.EvalSymlinks(exe); err != nil {
		t.Fatal(err)
	}
	m, err = r.Program(exe)
	if err != nil || !slices.ContainsFunc(m, func(m graph.Mount) bool { return m.Path == exe && m.Executable }) {
		t.Error(m, err)
	}
}

// TestUser is that whoever runs a build needs no rights.
func TestUser(t *testing.T) {
	unprivileged(t, func() {
		if _, err := New(Options{}).Program("/bin/sh"); err != nil {
			t.Error(err)
		}
	})
}

func TestGoroutines(t *testing.T) {
	r := New(Options{})
	done := make(chan error)
	for i := range 8 {
		go func() {
			_, err := r.Program([]string{"/bin/sh", "/usr/bin/env"}[i%2])
			done <- err
		}()
	}
	for range 8 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

// BenchmarkSecondStart is what a build pays for a large folder that it knows.
func BenchmarkSecondStart(b *testing.B) {
	folder := ""
	for _, name := range []string{"/usr/lib/python3.11", "/usr/lib/python3.12", "/usr/lib/python3.13", "/usr/lib/python3"} {
		if _, err := os.Stat(name); err == nil {
			folder = name
			break
		}
	}
	if folder == "" {
		b.Skip("no large folder")
	}
	cache := filepath.Join(b.TempDir(), "cache")
	start := func() {
		r := New(Options{Cache: cache, Now: func() time.Time { return time.Now().Add(time.Minute) }})
		if _, err := r.Data(folder); err != nil {
			b.Fatal(err)
		}
		if err := r.Save(); err != nil {
			b.Fatal(err)
		}
	}
	start()
	for b.Loop() {
		start()
	}
}
