package main

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/evalbuild/eval/cas"
	"github.com/evalbuild/eval/cas/remote/remotetest"
)

// TestReadme runs every command of README.md, in order, and compares what it
// prints with what the page shows: line by line, where "..." stands for any
// lines, and for anything at the end of a line. Where there is no seal, what
// needs one is left out: its exit code is 5 there, by design.
func TestReadme(t *testing.T) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(filepath.Join(root, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	home := t.TempDir()
	bin := filepath.Join(home, "bin")
	if err := os.Mkdir(bin, 0o755); err != nil {
		t.Fatal(err)
	}
	build := exec.Command("go", "build", "-o", bin, ".", "../eval-world", "../eval-play")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if err := os.Symlink("eval", bin+"/ev"); err != nil {
		t.Fatal(err)
	}
	scratch := filepath.Join(home, "scratch")
	if err := os.Mkdir(scratch, 0o755); err != nil {
		t.Fatal(err)
	}
	env := []string{
		"PATH=" + bin + ":" + os.Getenv("PATH"), "HOME=" + home, "XDG_CACHE_HOME=" + home + "/cache", "XDG_DATA_HOME=" + home + "/data",
		"GOPATH=" + goEnv(t, "GOPATH"), "GOMODCACHE=" + goEnv(t, "GOMODCACHE"), "GOCACHE=" + goEnv(t, "GOCACHE"), "GOFLAGS=-mod=mod",
	}
	// Commands about the examples run in a copy of the repository, so that the
	// test leaves no trace in it; the others in an empty folder.
	repo := filepath.Join(home, "repo")
	copyTree(t, root, repo, "examples", "rules", "MODULE.star")
	dropLocks(t, repo)
	sealed, err := needed(canSeal(), "whole seal here (see ev doctor)")
	if err != nil {
		t.Fatal(err)
	}
	server := remotetest.Start(t, remotetest.Knobs{Funcs: []cas.Func{cas.SHA256}, Zstd: true, Complete: true}) // as bazel-remote is
	commands := 0
	for _, block := range regexp.MustCompile("(?s)```console\n(.*?)```").FindAllStringSubmatch(string(page), -1) {
		for _, step := range strings.Split("\n"+block[1], "\n$ ")[1:] {
			commands++
			line, want, _ := strings.Cut(step, "\n")
			dir := scratch
			examples := strings.Contains(line, "//examples") || line == "make examples"
			if !sealed && (examples || line != "ev new probe asks") { // reps are programs
				continue
			}
			if examples {
				dir = repo
				line = strings.Replace(line, "make examples", "ev lock //examples/... && ev build --draws=allow //examples/...", 1)
			}
			line = strings.Replace(line, "grpc://127.0.0.1:9092", server.Address, 1)
			cmd := exec.Command("sh", "-c", line)
			cmd.Dir, cmd.Env = dir, env
			out, err := cmd.CombinedOutput()
			if err != nil && !strings.Contains(want, "error:") {
				t.Errorf("$ %s: %v\n%s", line, err, out)
				continue
			}
			if !matches(trimmed(want), trimmed(string(out))) {
				t.Errorf("$ %s printed\n%s\nthe page says\n%s", line, out, want)
			}
		}
	}
	if commands < 10 {
		t.Errorf("only %d commands found: the test proves little", commands)
	}
}

func goEnv(t *testing.T, name string) string {
	t.Helper()
	out, err := exec.Command("go", "env", name).Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}

func copyTree(t *testing.T, from, to string, names ...string) {
	t.Helper()
	for _, name := range names {
		src := filepath.Join(from, name)
		fi, err := os.Stat(src)
		if err != nil {
			t.Fatal(err)
		}
		if fi.IsDir() {
			err = os.CopyFS(filepath.Join(to, name), os.DirFS(src))
		} else {
			var data []byte
			if data, err = os.ReadFile(src); err == nil {
				err = os.WriteFile(filepath.Join(to, name), data, 0o644)
			}
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// dropLocks makes of a copy what a clean clone has: no locks of this machine.
func dropLocks(t *testing.T, dir string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err == nil && (d.Name() == "draws.lock" || d.Name() == "tools.lock") {
			return os.Remove(p)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// trimmed drops trailing blanks and empty lines.
func trimmed(s string) []string {
	var out []string
	for line := range strings.SplitSeq(s, "\n") {
		if line = strings.TrimRight(line, " "); line != "" {
			out = append(out, line)
		}
	}
	return out
}

func matches(want, got []string) bool {
	if len(want) == 0 {
		return len(got) == 0
	}
	if want[0] == "..." {
		for skip := range len(got) + 1 {
			if matches(want[1:], got[skip:]) {
				return true
			}
		}
		return false
	}
	if len(got) == 0 {
		return false
	}
	if prefix, ok := strings.CutSuffix(want[0], "..."); ok && strings.HasPrefix(got[0], prefix) || want[0] == got[0] {
		return matches(want[1:], got[1:])
	}
	return false
}
