// Package statcache is what the stat caches of sources and of this machine's
// tools have in common: when stat facts may stand in for a file's bytes, and
// how the file of a cache is written. What they keep, and how they find it, is
// their own: one is bound to a root and used as it was read, the other serves
// all workspaces.
package statcache

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// granularity is how much older than its recording a file's last change must be
// for its facts to stand in for its bytes. Within one tick of a file system's
// clock a file can change again without its stamps changing (git calls such an
// entry racily clean). Ticks are 1 to 10 ms on ext4, xfs, btrfs and APFS (the
// kernel stamps with its coarse clock, whatever the unit), 1 s on ext3, HFS+
// and NFS over them, 2 s for the mtime of FAT; so 2 s covers all. The
// cost of a large value is small: files are hashed twice in their first seconds.
const granularity = 2 * time.Second

// Aged reports whether facts recorded at that time may ever be trusted; all are
// ns since 1970. ctime is in it since a program can set mtime back, but not
// ctime. A stamp in the future never ages; neither does anything recorded by a
// clock that was behind.
func Aged(mtime, ctime, at int64) bool {
	limit := at - int64(granularity)
	return mtime < limit && ctime < limit
}

// FileType gives the type bits of st_mode.
func FileType(mode uint32) fs.FileMode {
	switch mode & unix.S_IFMT {
	case unix.S_IFREG:
		return 0
	case unix.S_IFDIR:
		return fs.ModeDir
	case unix.S_IFLNK:
		return fs.ModeSymlink
	case unix.S_IFIFO:
		return fs.ModeNamedPipe
	case unix.S_IFSOCK:
		return fs.ModeSocket
	}
	return fs.ModeDevice
}

// TempPattern stands between the name of a cache's file and what tells its
// temporary files apart.
const TempPattern = ".tmp-"

// Replace writes a file so that others see the old or the new one, whole. There
// is no fsync: after a power cut the file's checksum fails, and what it would
// have said is found out again.
func Replace(name string, b []byte, now time.Time) error {
	dir := filepath.Dir(name)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	removeStale(name, now)
	f, err := os.CreateTemp(dir, filepath.Base(name)+TempPattern+"*")
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = os.Rename(f.Name(), name)
	}
	if err != nil {
		os.Remove(f.Name())
		var link *os.LinkError // which names the temporary file
		if errors.As(err, &link) {
			return link.Err
		}
	}
	return err
}

// removeStale removes what killed processes left; an hour is long enough not
// to take it from one that still writes.
func removeStale(name string, now time.Time) {
	entries, err := os.ReadDir(filepath.Dir(name))
	if err != nil {
		return
	}
	prefix := filepath.Base(name) + TempPattern
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), prefix) {
			continue
		}
		info, err := e.Info()
		if err == nil && info.Mode().IsRegular() && now.Sub(info.ModTime()) > time.Hour {
			os.Remove(filepath.Join(filepath.Dir(name), e.Name()))
		}
	}
}
