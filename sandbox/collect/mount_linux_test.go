package collect

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// TestMount looks at a mount that every machine has: nothing is mounted for it.
func TestMount(t *testing.T) {
	if _, err := os.Stat("/proc/version"); err != nil {
		lacking(t, "/proc: %v", err)
	}
	got := collected(t, "/", plain, Output{"proc", true}, Output{"proc/version", false}, Output{"proc/self/root/proc/version", false})
	same(t, "rejected", codes(got), map[string]string{"proc": Mount, "proc/version": Mount, "proc/self/root/proc/version": Mount})
}

// TestOpenOne shows what openat2 adds to a name with slashes, which openat
// would take; where it is filtered there is nothing to show.
func TestOpenOne(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "a/f", "x")
	link(t, dir, "a", "l")
	fd := openDir(t, dir)
	if _, err := unix.Openat2(fd, "a/f", &unix.OpenHow{Flags: unix.O_PATH}); err != nil {
		lacking(t, "openat2: %v", err)
	}
	for _, p := range []string{"l/f", "../x", "/etc", "l"} {
		if got, err := openOne(fd, p, fileFlags); err == nil {
			unix.Close(got)
			t.Errorf("%s was opened", p)
		}
	}
}

// TestDetached collects from a tmpfs that is mounted nowhere, as a scratch
// folder is when its namespace is gone.
func TestDetached(t *testing.T) {
	fs, err := unix.Fsopen("tmpfs", unix.FSOPEN_CLOEXEC)
	if err != nil {
		if os.Geteuid() != 0 {
			t.Skipf("only root may fsopen: %v", err)
		}
		lacking(t, "fsopen: %v", err)
	}
	defer unix.Close(fs)
	must(t, unix.FsconfigCreate(fs))
	at, err := unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, unix.MOUNT_ATTR_NODEV|unix.MOUNT_ATTR_NOSUID)
	must(t, err)
	defer unix.Close(at)
	must(t, unix.Mkdirat(at, "d", 0o755))
	f := mustOpen(t, at, "d/f")
	_, err = unix.Write(f, []byte("content"))
	must(t, err)
	must(t, unix.Fchmod(f, 0o755))
	must(t, unix.Ftruncate(mustOpen(t, at, "d/huge"), 1<<40))
	got, err := Collect(t.Context(), at, []Output{{"d", true}, {"../etc/passwd", false}}, plain, new(store).put)
	must(t, err)
	same(t, "files", got.Files, []File{{Path: "d/f", Executable: true, Digest: sum("content")}})
	same(t, "rejected", codes(got), map[string]string{"../etc/passwd": Name, "d/huge": Bytes})
}

func mustOpen(t *testing.T, at int, name string) int {
	t.Helper()
	fd, err := unix.Openat(at, name, unix.O_CREAT|unix.O_WRONLY|unix.O_CLOEXEC, 0o644)
	must(t, err)
	t.Cleanup(func() { unix.Close(fd) })
	return fd
}

func mknod(p string, mode uint32, major, minor uint32) error {
	return unix.Mknod(p, mode, int(unix.Mkdev(major, minor)))
}
