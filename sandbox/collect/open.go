package collect

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// The flags of all opens. O_NONBLOCK is for what changes its type between
// fstatat and open: a FIFO would wait for its writer.
const (
	fileFlags   = unix.O_RDONLY | unix.O_NOFOLLOW | unix.O_CLOEXEC | unix.O_NONBLOCK | unix.O_NOCTTY
	folderFlags = unix.O_RDONLY | unix.O_NOFOLLOW | unix.O_CLOEXEC | unix.O_DIRECTORY
)

// statAt looks at a name without opening or following it.
func statAt(dirfd int, name string) (*unix.Stat_t, error) {
	var st unix.Stat_t
	for {
		err := unix.Fstatat(dirfd, name, &st, unix.AT_SYMLINK_NOFOLLOW)
		switch {
		case err == nil:
			return &st, nil
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.ENAMETOOLONG):
			return nil, errMissing
		case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM):
			return nil, refuse(Unreadable, "permission denied")
		}
		return nil, fmt.Errorf("stat %q: %w", name, err)
	}
}

func fileType(st *unix.Stat_t) uint32 { return uint32(st.Mode) & unix.S_IFMT }

func typeName(kind uint32) string {
	switch kind {
	case unix.S_IFREG:
		return "a file"
	case unix.S_IFDIR:
		return "a folder"
	case unix.S_IFIFO:
		return "a FIFO"
	case unix.S_IFSOCK:
		return "a socket"
	case unix.S_IFCHR, unix.S_IFBLK:
		return "a device"
	}
	return "a file of an unknown type"
}

// openSame opens what st was read from, or refuses it.
func (c *collector) openSame(dirfd int, name string, flags int, st *unix.Stat_t) (int, error) {
	fd, err := c.open(dirfd, name, flags)
	for errors.Is(err, unix.EINTR) {
		fd, err = c.open(dirfd, name, flags)
	}
	switch {
	case err == nil:
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM):
		return -1, refuse(Unreadable, "permission denied")
	case errors.Is(err, unix.EXDEV):
		return -1, refuse(Mount, "something is mounted on it")
	case changes(err):
		return -1, refuse(Changed, "%v", err)
	default:
		return -1, fmt.Errorf("open %q: %w", name, err)
	}
	var now unix.Stat_t
	if err := unix.Fstat(fd, &now); err != nil {
		unix.Close(fd)
		return -1, fmt.Errorf("stat %q: %w", name, err)
	}
	if now.Dev != st.Dev || now.Ino != st.Ino || now.Mode != st.Mode {
		unix.Close(fd)
		return -1, refuse(Changed, "another file took its place")
	}
	return fd, nil
}

// changes says whether an open fails so only since the file isn't any more what
// it was a moment ago. EAGAIN: another process has a lease on it.
func changes(err error) bool {
	for _, e := range []unix.Errno{unix.ENOENT, unix.ENOTDIR, unix.EISDIR, unix.ELOOP, unix.ENXIO, unix.ENODEV, unix.ESTALE, unix.ETXTBSY, unix.EAGAIN} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// readNames reads the names in a folder, but stops when it has more than limit.
func readNames(dir *os.File, limit int) ([]string, error) {
	var names []string
	for len(names) <= limit {
		more, err := dir.Readdirnames(1024)
		names = append(names, more...)
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, err
		}
	}
	return names, nil
}

func readLink(dirfd int, name string) (string, error) {
	buf := make([]byte, maxPath+1)
	n, err := unix.Readlinkat(dirfd, name, buf)
	switch {
	case errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENOENT):
		return "", refuse(Changed, "%v", err)
	case err != nil:
		return "", fmt.Errorf("read link %q: %w", name, err)
	case n > maxPath:
		return "", refuse(Long, "a link of more than %d bytes", maxPath)
	}
	return string(buf[:n]), nil
}

// reader yields a file that has to have the size that fstatat said. It goes
// past package os, which offers each file to the network poller.
type reader struct {
	ctx        context.Context
	fd         int
	want, read int64
	end        bool  // all of it was read
	err        error // why there is no more
}

func (r *reader) Read(p []byte) (int, error) {
	if r.end {
		return 0, io.EOF
	}
	if r.err == nil {
		r.err = r.ctx.Err()
	}
	if r.err != nil || len(p) == 0 {
		return 0, r.err
	}
	if int64(len(p)) > r.want-r.read+1 {
		p = p[:r.want-r.read+1]
	}
	n, err := unix.Read(r.fd, p)
	for errors.Is(err, unix.EINTR) {
		n, err = unix.Read(r.fd, p)
	}
	if err != nil {
		r.err = fmt.Errorf("read: %w", err)
		return 0, r.err
	}
	r.read += int64(n)
	switch {
	case r.read > r.want || n == 0 && r.read < r.want:
		r.err = refuse(Changed, "it had %d bytes, and then had not", r.want)
		return 0, r.err
	case n == 0:
		r.end = true
		return 0, io.EOF
	}
	return n, nil
}
