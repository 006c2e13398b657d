package collect

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Collect takes the declared outputs from the folder that dirfd is open on (for
// reading or O_PATH). Files come before folders, each in the order of paths, so
// that a folder without end doesn't use up what a declared file needs. Outputs
// that overlap are listed once. An error is one of this machine or of put,
// never of what the process did; there is no result with it.
func Collect(ctx context.Context, dirfd int, outs []Output, lim Limits, put Put) (Result, error) {
	if lim.Entries == 0 {
		lim.Entries = DefaultEntries
	}
	if lim.Depth == 0 {
		lim.Depth = DefaultDepth
	}
	c := collector{ctx: ctx, put: put, lim: lim, bytes: lim.Bytes, entries: lim.Entries, open: openOne}
	return c.collect(dirfd, outs)
}

// collector is the state of one call.
type collector struct {
	ctx  context.Context
	put  Put
	lim  Limits
	open func(dirfd int, name string, flags int) (int, error)

	root     unix.Stat_t
	bytes    int64  // that may still be taken
	entries  int    // that may still be seen
	output   string // whose entries are being taken
	rejected int    // entries of it so far
	res      Result
}

// A refusal says why an output or entry isn't taken. One that is whole counts
// for the output around it.
type refusal struct {
	code, words string
	whole       bool
}

func (r *refusal) Error() string { return r.code + ": " + r.words }

func refuse(code, format string, args ...any) *refusal {
	return &refusal{code: code, words: fmt.Sprintf(format, args...)}
}

var errMissing = errors.New("not there")

func (c *collector) collect(dirfd int, outs []Output) (Result, error) {
	if err := unix.Fstat(dirfd, &c.root); err != nil {
		return Result{}, fmt.Errorf("collect outputs: %w", err)
	}
	outs = slices.Clone(outs)
	slices.SortFunc(outs, func(a, b Output) int {
		if a.Folder != b.Folder {
			if b.Folder {
				return -1
			}
			return 1
		}
		return cmp.Compare(a.Path, b.Path)
	})
	for _, o := range slices.Compact(outs) {
		c.output, c.rejected = o.Path, 0
		mark := len(c.res.Files)
		err := c.declared(dirfd, o)
		var no *refusal
		switch {
		case errors.Is(err, errMissing):
			c.res.Missing = append(c.res.Missing, o.Path)
		case errors.As(err, &no):
			c.res.Files = c.res.Files[:mark]
			c.reject(o.Path, no)
		case err != nil:
			return Result{}, fmt.Errorf("collect output %q: %w", o.Path, err)
		}
	}
	return c.res.sorted(), nil
}

func (r Result) sorted() Result {
	slices.SortFunc(r.Files, func(a, b File) int { return cmp.Compare(a.Path, b.Path) })
	r.Files = slices.CompactFunc(r.Files, func(a, b File) bool { return a.Path == b.Path })
	if len(r.Files) == 0 {
		r.Files = nil // whether some were given back again doesn't show
	}
	slices.Sort(r.Missing)
	r.Missing = slices.Compact(r.Missing)
	slices.SortFunc(r.Rejected, func(a, b Rejection) int {
		return cmp.Or(cmp.Compare(a.Path, b.Path), cmp.Compare(a.Reason, b.Reason))
	})
	r.Rejected = slices.Compact(r.Rejected)
	return r
}

func (c *collector) reject(path string, no *refusal) {
	c.res.Rejected = append(c.res.Rejected, Rejection{path, no.Error()})
}

// declared takes one output: it goes down to the folder that the output is in
// by real folders only, one component at a time. With one openat2 for the whole
// path, root would pass folders that an ordinary user can't.
func (c *collector) declared(dirfd int, o Output) error {
	if no := checkPath(o.Path); no != nil {
		return no
	}
	at, name := dirfd, o.Path
	for {
		first, rest, more := strings.Cut(name, "/")
		if !more {
			break
		}
		st, err := statAt(at, first)
		if err == nil {
			err = c.through(st)
		}
		next := -1
		if err == nil {
			next, err = c.openSame(at, first, throughFlags, st)
		}
		if at != dirfd {
			unix.Close(at)
		}
		if err != nil {
			return err
		}
		at, name = next, rest
	}
	if at != dirfd {
		defer unix.Close(at)
	}
	st, err := statAt(at, name)
	if err != nil {
		return err
	}
	switch kind := fileType(st); {
	case kind == unix.S_IFLNK:
		return refuse(Link, "the output is a symbolic link")
	case o.Folder && kind == unix.S_IFDIR:
		return c.folder(at, name, o.Path, 0, st)
	case !o.Folder && kind == unix.S_IFREG:
		return c.file(at, name, o.Path, st)
	case o.Folder:
		return refuse(Type, "%s, want a folder", typeName(kind))
	default:
		return refuse(Type, "%s, want a file", typeName(kind))
	}
}

// through says whether the way to an output may go through st.
func (c *collector) through(st *unix.Stat_t) error {
	switch {
	case fileType(st) == unix.S_IFLNK:
		return refuse(Link, "the way to it goes through a symbolic link")
	case fileType(st) != unix.S_IFDIR:
		return errMissing
	case st.Dev != c.root.Dev:
		return refuse(Mount, "the way to it goes through a mount")
	case st.Mode&unix.S_IXUSR == 0:
		return refuse(Unreadable, "the way to it goes through a folder of mode %04o", st.Mode&0o7777)
	}
	return nil
}

// folder takes what is in a folder at level depth of the current output.
func (c *collector) folder(dirfd int, name, path string, depth int, st *unix.Stat_t) error {
	switch {
	case st.Dev != c.root.Dev:
		return refuse(Mount, "something is mounted on it")
	case st.Mode&(unix.S_IRUSR|unix.S_IXUSR) != unix.S_IRUSR|unix.S_IXUSR:
		return refuse(Unreadable, "a folder of mode %04o", st.Mode&0o7777)
	}
	fd, err := c.openSame(dirfd, name, folderFlags, st)
	if err != nil {
		return err
	}
	dir := os.NewFile(uintptr(fd), "folder")
	defer dir.Close()
	names, err := readNames(dir, c.entries)
	if err != nil {
		return err
	}
	if len(names) > c.entries {
		c.entries = 0
		return &refusal{Entries, fmt.Sprintf("more than %d entries in all folders", c.lim.Entries), true}
	}
	c.entries -= len(names)
	slices.Sort(names)
	collides := collisions(names)
	mark := len(c.res.Files)
	for _, name := range names {
		if err := c.ctx.Err(); err != nil {
			return err
		}
		below := path + "/" + name
		var err error
		if other := collides[name]; other != "" {
			err = refuse(Collision, "differs from %q in case alone", other)
		} else {
			err = c.entry(fd, name, below, depth+1)
		}
		if err := c.left(below, err); err != nil {
			return err
		}
	}
	if len(c.res.Files) == mark {
		c.res.Files = append(c.res.Files, File{Path: path, Folder: true})
	}
	return nil
}

// left notes an entry that was not taken, and passes on errors that end more
// than the entry.
func (c *collector) left(path string, err error) error {
	if errors.Is(err, errMissing) {
		err = refuse(Changed, "it went while its folder was read")
	}
	var no *refusal
	if !errors.As(err, &no) || no.whole {
		return err
	}
	if c.rejected++; c.rejected > maxRejected {
		return &refusal{Rejections, fmt.Sprintf("more than %d entries are rejected", maxRejected), true}
	}
	c.reject(path, no)
	return nil
}

// entry takes one name of an open folder.
func (c *collector) entry(dirfd int, name, path string, depth int) error {
	if no := checkName(name); no != nil {
		return no
	}
	if len(path) > maxPath {
		return refuse(Long, "a path of %d bytes, at most %d", len(path), maxPath)
	}
	if depth > c.lim.Depth {
		return refuse(Depth, "more than %d levels", c.lim.Depth)
	}
	st, err := statAt(dirfd, name)
	if err != nil {
		return err
	}
	switch kind := fileType(st); kind {
	case unix.S_IFREG:
		return c.file(dirfd, name, path, st)
	case unix.S_IFDIR:
		return c.folder(dirfd, name, path, depth, st)
	case unix.S_IFLNK:
		target, err := readLink(dirfd, name)
		if err != nil {
			return err
		}
		target, err = checkLink(c.output, path, target)
		if err != nil {
			return err
		}
		c.res.Files = append(c.res.Files, File{Path: path, Link: target})
		return nil
	default:
		return refuse(Type, "%s", typeName(kind))
	}
}

// file puts a regular file.
func (c *collector) file(dirfd int, name, path string, st *unix.Stat_t) error {
	switch {
	case st.Mode&unix.S_IRUSR == 0:
		return refuse(Unreadable, "a file of mode %04o", st.Mode&0o7777)
	case st.Size > c.bytes:
		return refuse(Bytes, "%d bytes, %d are left of %d", st.Size, c.bytes, c.lim.Bytes)
	}
	fd, err := c.openSame(dirfd, name, fileFlags, st)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	r := reader{ctx: c.ctx, fd: fd, want: st.Size}
	digest, err := c.put(&r)
	if r.err != nil {
		return r.err
	}
	if err != nil {
		return err
	}
	if !r.end {
		return fmt.Errorf("%d of %d bytes of %q were stored", r.read, r.want, path)
	}
	c.bytes -= st.Size
	c.res.Files = append(c.res.Files, File{Path: path, Executable: st.Mode&0o111 != 0, Digest: digest})
	return nil
}
