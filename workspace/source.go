package workspace

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/evalbuild/eval/workspace/graph"
	"github.com/evalbuild/eval/workspace/statcache"
)

// ReadFile gives the content of a source, of any size. See OpenFile.
func (w *Workspace) ReadFile(repo, rel string) ([]byte, error) {
	t, err := w.tree(repo)
	if err != nil {
		return nil, err
	}
	f, err := t.open("read", rel)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var size int64
	if info, err := f.Stat(); err == nil {
		size = min(info.Size(), 1<<20) // a hint: a sparse file may claim terabytes
	}
	b := make([]byte, 0, size+1) // +1, so that the read that fills it meets the end
	for {
		n, err := f.Read(b[len(b):cap(b)])
		b = b[:len(b)+n]
		if err == io.EOF {
			return b, nil
		}
		if err != nil {
			return nil, t.fail("read", rel, bare(err))
		}
		if len(b) == cap(b) {
			b = append(b, 0)[:len(b)]
		}
	}
}

// OpenFile opens a source to be read: a regular file below the root of the
// repository, also by symbolic links that stay below it. Whatever else it is
// (a folder, a fifo, a device, nothing) is an error, and no wait.
func (w *Workspace) OpenFile(repo, rel string) (*os.File, error) {
	t, err := w.tree(repo)
	if err != nil {
		return nil, err
	}
	return t.open("read", rel)
}

// Executable reports whether the owner of a source may execute it, which is
// what git keeps of a file's mode too. Of a symbolic link it is that of the file
// it leads to.
func (w *Workspace) Executable(repo, rel string) (bool, error) {
	t, err := w.tree(repo)
	if err != nil {
		return false, err
	}
	if err := checkPath(rel); err != nil {
		return false, t.fail("read", rel, err)
	}
	if f, err := t.lstat(rel); err == nil && statcache.FileType(f.mode).IsRegular() {
		return f.mode&unix.S_IXUSR != 0, nil
	}
	f, err := t.open("read", rel)
	if err != nil {
		return false, err
	}
	defer f.Close()
	info, err := fstat(f)
	if err != nil {
		return false, t.fail("read", rel, bare(err))
	}
	return info.mode&unix.S_IXUSR != 0, nil
}

// open does what OpenFile says. The type is looked at first, since to open a
// device can already do something, and again on the open file.
func (t *tree) open(op, rel string) (*os.File, error) {
	if err := checkPath(rel); err != nil {
		return nil, t.fail(op, rel, err)
	}
	if rel == "" {
		return nil, t.fail(op, rel, errDirectory)
	}
	st, err := t.lstat(rel)
	mode := statcache.FileType(st.mode)
	if err == nil && mode == fs.ModeSymlink {
		var info fs.FileInfo
		if info, err = t.root.Stat(rel); err == nil {
			mode = info.Mode().Type()
		}
	}
	if err == nil {
		err = wrongType(mode)
	}
	var f *os.File
	if err == nil {
		f, err = t.openBeneath(rel) // it may have become a fifo just now
	}
	if err != nil {
		return nil, t.fail(op, rel, t.openCause(rel, err))
	}
	info, err := f.Stat()
	if err == nil {
		err = wrongType(info.Mode().Type())
	}
	if err != nil {
		f.Close()
		return nil, t.fail(op, rel, bare(err))
	}
	return f, nil
}

var errDirectory = errors.New("is a directory, a file is meant")

func wrongType(mode fs.FileMode) error {
	switch {
	case mode.IsRegular():
		return nil
	case mode.IsDir():
		return errDirectory
	case mode&fs.ModeNamedPipe != 0:
		return errors.New("is a fifo, a file is meant")
	case mode&fs.ModeSocket != 0:
		return errors.New("is a socket, a file is meant")
	}
	return errors.New("is a device, a file is meant")
}

// openCause says in the user's terms why rel could not be opened.
func (t *tree) openCause(rel string, err error) error {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) || errors.Is(err, syscall.ELOOP) || escaped(err) {
		return t.explain(rel, err)
	}
	return bare(err)
}

// explain looks for the first part of rel at which the way ends.
func (t *tree) explain(rel string, err error) error {
	at := ""
	for name := range strings.SplitSeq(rel, "/") {
		here := path.Join(at, name)
		info, lerr := t.root.Lstat(here)
		switch {
		case errors.Is(lerr, fs.ErrNotExist):
			what := "does not exist"
			if here != rel {
				what = "its folder " + printable(here) + " does not exist"
			}
			return said{what + graph.DidYouMean(name, t.siblings(at)), fs.ErrNotExist}
		case lerr != nil:
			return bare(lerr)
		case info.Mode()&fs.ModeSymlink != 0:
			if _, serr := t.root.Stat(here); serr != nil {
				cause := t.linkFault(here, serr)
				if here != rel {
					return fmt.Errorf("its folder %s %w", printable(here), cause)
				}
				return cause
			}
		case !info.IsDir() && here != rel:
			return said{printable(here) + " is a file, not a folder", err}
		}
		at = here
	}
	return bare(err) // it changed in between
}

// linkFault is why the symbolic link rel, which is there, leads to no file.
func (t *tree) linkFault(rel string, err error) error {
	target, _ := t.root.Readlink(rel)
	link := fmt.Sprintf("is a symbolic link to %q, ", target)
	switch {
	case escaped(err) && path.IsAbs(target):
		return errors.New(link + "an absolute path; a link of a workspace must be relative and stay in it")
	case escaped(err):
		return errors.New(link + "which leaves the workspace")
	case errors.Is(err, fs.ErrNotExist):
		return said{link + "which does not exist", fs.ErrNotExist}
	case errors.Is(err, syscall.ELOOP):
		return said{link + "which leads round in a circle", syscall.ELOOP}
	}
	return fmt.Errorf("%s%w", link, bare(err))
}

func (t *tree) siblings(dir string) []string {
	d, err := t.root.Open(path.Join(".", dir))
	if err != nil {
		return nil
	}
	defer d.Close()
	names, _ := d.Readdirnames(10_000) // a suggestion isn't worth more
	return names
}

// facts are what stat says of a file; equal facts, once aged, mean equal bytes.
type facts struct {
	size  int64
	mtime int64 // ns since 1970
	ctime int64
	ino   uint64
	mode  uint32 // type and permissions
}

func factsOf(st *unix.Stat_t) facts {
	return facts{
		size: st.Size, mtime: st.Mtim.Nano(), ctime: st.Ctim.Nano(),
		ino: uint64(st.Ino), mode: uint32(st.Mode),
	}
}

// lstat gives the facts of rel itself after checking the folders on its way.
func (t *tree) lstat(rel string) (facts, error) {
	if err := t.checkParents(parent(rel)); err != nil {
		return facts{}, err
	}
	return t.fstatat(rel)
}

func (t *tree) fstatat(rel string) (facts, error) {
	var st unix.Stat_t
	for {
		err := unix.Fstatat(int(t.dir.Fd()), rel, &st, unix.AT_SYMLINK_NOFOLLOW)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return facts{}, err
		}
		return factsOf(&st), nil
	}
}

// checkParents finds out whether dir lies below the root, once for the life of
// the workspace: walking each path with os.Root costs three system calls a
// folder, which for 10,000 sources is more than all the rest. What was true once
// may be false when a file is opened; then os.Root refuses.
func (t *tree) checkParents(dir string) error {
	t.mu.RLock()
	known := t.parents[dir]
	t.mu.RUnlock()
	if known {
		return nil
	}
	if err := t.checkParents(parent(dir)); err != nil {
		return err
	}
	if err := t.checkFolder(dir); err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.parents[dir] = true
	return nil
}

func (t *tree) checkFolder(dir string) error {
	st, err := t.fstatat(dir)
	if err != nil {
		return err
	}
	switch statcache.FileType(st.mode) {
	case fs.ModeDir:
		return nil
	case fs.ModeSymlink:
		info, err := t.root.Stat(dir)
		if err != nil || info.IsDir() {
			return err
		}
	}
	return syscall.ENOTDIR
}

// IsFile returns nil if rel is a source, as far as its folder's listing tells;
// opening it says for certain. It costs no system call for the second file of a
// folder, which counts when there are ten thousand.
func (w *Workspace) IsFile(repo, rel string) error {
	t, err := w.tree(repo)
	if err != nil {
		return err
	}
	err = checkPath(rel)
	if err == nil && rel == "" {
		err = errDirectory
	}
	if err != nil {
		return t.fail("find", rel, err)
	}
	dir, name := path.Split(rel)
	if l, err := t.reach(strings.TrimSuffix(dir, "/")); err == nil {
		if e, ok := l.find(name); ok && e.mode.IsRegular() {
			return nil
		}
	}
	f, err := t.open("find", rel) // a link, a dot folder, or the reason why not
	if err != nil {
		return err
	}
	return f.Close()
}
