package toolslock

import (
	"bufio"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) {
	if len(os.Args) == 5 && os.Args[1] == "update" {
		if err := helpUpdate(os.Args[2], os.Args[3], os.Args[4]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// helpUpdate is another process: it locks a tool n times, each time as another,
// and tells of each; 0 is for ever.
func helpUpdate(dir, tool, n string) error {
	times, err := strconv.Atoi(n)
	for i := 0; err == nil && (i < times || times == 0); i++ {
		if _, err = Update(dir, all, entry(tool, strconv.Itoa(i))); err == nil {
			fmt.Println(i)
		}
	}
	return err
}

func all(string) bool { return true }

func helper(t *testing.T, dir, tool string, n int) *exec.Cmd {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe, "update", dir, tool, strconv.Itoa(n))
	cmd.Stderr = os.Stderr
	return cmd
}

func readAll(t *testing.T, dir string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, Name))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestUpdate(t *testing.T) {
	dir := t.TempDir()
	update := func(has func(string) bool, entries ...Entry) []*Entry {
		t.Helper()
		before, err := Update(dir, has, entries...)
		if err != nil {
			t.Fatal(err)
		}
		return before
	}
	other := entry("sh", "of arm")
	other.Platform = arm
	if before := update(all, entry("z", "1"), entry("a", "2"), other); before[0] != nil || before[1] != nil || before[2] != nil {
		t.Error("something was there before")
	}
	// Lines of others stay, byte for byte; the new ones are where they belong.
	before := update(all, entry("sh", "dash"), entry("a", "3"))
	if before[0] != nil || before[1] == nil || before[1].Mounts[1].Digest != digest("2") {
		t.Errorf("%+v", before)
	}
	want := text(entry("a", "3"), other, entry("sh", "dash"), entry("z", "1"))
	if got := readAll(t, dir); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	// Nothing new: nothing is written.
	info, _ := os.Stat(filepath.Join(dir, Name))
	if before := update(all, entry("a", "3")); before[0] == nil {
		t.Error("nothing was there before")
	}
	if now, _ := os.Stat(filepath.Join(dir, Name)); !os.SameFile(info, now) {
		t.Error("the file was replaced")
	}
	// A tool that is gone goes, on all platforms.
	update(func(tool string) bool { return tool != "sh" })
	if got := readAll(t, dir); got != text(entry("a", "3"), entry("z", "1")) {
		t.Error(got)
	}
	update(func(string) bool { return false })
	if _, err := os.Lstat(filepath.Join(dir, Name)); !errors.Is(err, os.ErrNotExist) {
		t.Error("an empty file stays")
	}
}

// TestUpdateRepairs: the lines at fault are replaced, others are left alone and
// are an error.
func TestUpdateRepairs(t *testing.T) {
	mine, theirs, z := text(entry("sh", "mine")), text(entry("sh", "theirs")), text(entry("z", "1"))
	for name, content := range map[string]string{
		"marks":         "<<<<<<< HEAD\n" + mine + "=======\n" + theirs + ">>>>>>> x\n" + z,
		"diff3 marks":   "<<<<<<< HEAD\n" + mine + "||||||| base\n=======\n" + theirs + ">>>>>>> x\n" + z,
		"union":         mine + theirs + z,
		"lost":          mine[:strings.LastIndexByte(mine[:len(mine)-1], '\n')+1] + z,
		"others' twice": z + mine + z,
	} {
		dir := t.TempDir()
		write(t, dir, content)
		if _, err := Update(dir, all, entry("sh", "new")); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if got := readAll(t, dir); got != text(entry("sh", "new"))+z {
			t.Errorf("%s:\n%s", name, got)
		}
	}
	for name, content := range map[string]string{
		"of another": mine + theirs + z,
		"no line":    z + "x\n",
		"cut":        z + mine[:20],
	} {
		dir := t.TempDir()
		write(t, dir, content)
		if _, err := Update(dir, all, entry("a", "new")); err == nil {
			t.Errorf("%s: no error", name)
		}
		if got := readAll(t, dir); got != content {
			t.Errorf("%s: the file was changed:\n%s", name, got)
		}
	}
}

func TestUpdateRefuses(t *testing.T) {
	dir := t.TempDir()
	bad := entry("sh", "dash")
	bad.Mounts[0].Path = "/bin/\xff"
	if _, err := Update(dir, all, bad); err == nil || !strings.HasPrefix(err.Error(), "write "+dir) {
		t.Error(err)
	}
	if err := os.Symlink("elsewhere", filepath.Join(dir, Name)); err != nil {
		t.Fatal(err)
	}
	if _, err := Update(dir, all, entry("sh", "dash")); err == nil || !strings.HasSuffix(err.Error(), "it is a symbolic link") {
		t.Error(err)
	}
	if _, err := Read(filepath.Join(dir, Name)); err == nil {
		t.Error("a link was followed")
	}
	os.Remove(filepath.Join(dir, Name))
	if err := unix.Mkfifo(filepath.Join(dir, Name), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(filepath.Join(dir, Name)); err == nil || !strings.HasSuffix(err.Error(), "it is no regular file") {
		t.Error(err)
	}
	if _, err := Update(filepath.Join(dir, "none"), all, entry("sh", "dash")); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}

// TestTwoProcesses: of processes that lock at once, none loses a line of another.
func TestTwoProcesses(t *testing.T) {
	dir := t.TempDir()
	var wg sync.WaitGroup
	tools := []string{"a", "b", "c"}
	const times = 40
	for _, tool := range tools {
		cmd := helper(t, dir, tool, times)
		wg.Go(func() {
			if out, err := cmd.Output(); err != nil || strings.Count(string(out), "\n") != times {
				t.Errorf("%s: %v %q", tool, err, out)
			}
		})
	}
	wg.Wait()
	last := strconv.Itoa(times - 1)
	if got := readAll(t, dir); got != text(entry("a", last), entry("b", last), entry("c", last)) {
		t.Error(got)
	}
}

// TestKill: who is killed at any moment leaves the old file or the new one,
// and nothing that the next doesn't remove.
func TestKill(t *testing.T) {
	dir := t.TempDir()
	if _, err := Update(dir, all, entry("z", "1")); err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(1, 2))
	for range 25 {
		cmd := helper(t, dir, "sh", 0)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(out)
		last := -1
		for range 1 + rng.IntN(3) {
			lines.Scan()
			last, _ = strconv.Atoi(lines.Text())
		}
		cmd.Process.Kill()
		for lines.Scan() {
			last, _ = strconv.Atoi(lines.Text())
		}
		cmd.Wait()
		got := readAll(t, dir)
		if want := []string{
			text(entry("sh", strconv.Itoa(last)), entry("z", "1")), text(entry("sh", strconv.Itoa(last+1)), entry("z", "1")),
		}; !slices.Contains(want, got) {
			t.Fatalf("after %d:\n%s", last, got)
		}
	}
	// As one that was killed before its rename leaves it.
	if err := os.WriteFile(filepath.Join(dir, tempPrefix+"1"), []byte("{"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Update(dir, all, entry("sh", "end")); err != nil {
		t.Fatal(err)
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != 1 {
		t.Error(left, err)
	}
}
