package cas

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Class says what losing a blob or result costs, and so which root it is in.
type Class uint8

// The classes.
const (
	Pure    Class = iota + 1 // can be computed again: in Cache, not fsynced
	Capture                  // evidence: in Data, on the disk before a call returns
)

// String gives "pure" or "capture".
func (c Class) String() string {
	switch c {
	case Pure:
		return "pure"
	case Capture:
		return "capture"
	}
	return fmt.Sprintf("class %d", uint8(c))
}

func (c Class) check() error {
	if c != Pure && c != Capture {
		return errors.New("unknown " + c.String())
	}
	return nil
}

// Options says where a store is.
type Options struct {
	Cache string           // root of pure results and of the locks
	Data  string           // root of captures; may be the same folder
	Func  Func             // of the blobs that Put writes; zero is BLAKE3
	Now   func() time.Time // nil is time.Now; tells ages
}

// Store is a content-addressed store in two folders. Its methods may be called
// from many goroutines, and any number of processes may use the folders.
type Store struct {
	cache, data *root // the same pointer if they are one folder
	fn          Func
	now         func() time.Time
	grace       time.Duration
	codec       codec

	// Tests make files old and act between steps: no call sets ctime.
	changed func(os.FileInfo) time.Time
	hook    func(step string)
}

// Open opens the store and creates what isn't there. A root that can't be
// written is an error. Temporary files that a killed process has left are
// removed if they are older than a day.
func Open(o Options) (*Store, error) {
	s := &Store{fn: o.Func, now: o.Now, grace: graceTime, changed: changed, hook: func(string) {}}
	if s.fn == 0 {
		s.fn = BLAKE3
	}
	if s.now == nil {
		s.now = time.Now
	}
	if err := checkFunc(s.fn); err != nil {
		return nil, fmt.Errorf("open store: %w", err)
	}
	var err error
	if s.cache, err = openRoot(o.Cache, s.now()); err != nil {
		return nil, fmt.Errorf("open store %s: %w", o.Cache, err)
	}
	if s.data, err = openRoot(o.Data, s.now()); err != nil {
		return nil, fmt.Errorf("open store %s: %w", o.Data, err)
	}
	if os.SameFile(s.cache.info, s.data.info) {
		s.data = s.cache
	}
	return s, nil
}

// Func gives the digest function of the blobs that Put writes.
func (s *Store) Func() Func { return s.fn }

func (s *Store) root(c Class) *root {
	if c == Capture {
		return s.data
	}
	return s.cache
}

// roots gives each folder once, the one of class first in front.
func (s *Store) roots(first Class) []*root {
	switch {
	case s.cache == s.data:
		return []*root{s.cache}
	case first == Capture:
		return []*root{s.data, s.cache}
	}
	return []*root{s.cache, s.data}
}

// root is one of the two folders; see the picture in the package doc.
type root struct {
	dir  string
	info os.FileInfo

	mu     sync.Mutex
	synced map[string]bool // folders whose own entry this process has fsynced
}

const (
	tempName   = "tmp"
	tempMaxAge = 24 * time.Hour
	// besideTemp is the pattern of temporary names outside of tmp.
	besideTemp = ".eval-tmp-*"
)

func openRoot(dir string, now time.Time) (*root, error) {
	if dir == "" {
		return nil, errors.New("no folder given")
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	// 0700 is what the XDG specification asks for. A folder that is there
	// already keeps its mode, so that users can share one.
	if err := makeDirs(dir, 0o700); err != nil {
		return nil, err
	}
	r := &root{dir: dir, synced: map[string]bool{}}
	if r.info, err = os.Stat(dir); err != nil {
		return nil, err
	}
	if err := makeDirs(r.path(tempName), 0o755); err != nil {
		return nil, err
	}
	// Whether a folder can be written is only known by writing: access(2) asks
	// about the real user and says yes to root on some read-only mounts.
	probe, err := r.temp(now)
	if err != nil {
		return nil, err
	}
	return r, errors.Join(probe.Close(), os.Remove(probe.Name()), r.sweep(now))
}

func (r *root) path(elem ...string) string {
	return r.dir + string(filepath.Separator) + filepath.Join(elem...)
}

// temp creates an empty file in tmp. The second of its birth is in its name:
// its own times are stamped before it is renamed, and look ancient.
func (r *root) temp(now time.Time) (*os.File, error) {
	return os.CreateTemp(r.path(tempName), strconv.FormatInt(now.Unix(), 10)+"-*")
}

// tempPath gives a name like one of temp's, of a file that isn't there.
func (r *root) tempPath(now time.Time) string {
	return r.path(tempName) + "/" + strconv.FormatInt(now.Unix(), 10) + "-" + strconv.FormatUint(rand.Uint64(), 36)
}

// sweep lists only tmp, which is empty but for writes that are going on.
func (r *root) sweep(now time.Time) error {
	entries, err := os.ReadDir(r.path(tempName))
	if err != nil {
		return err
	}
	for _, e := range entries {
		if now.Sub(tempBirth(e)) < tempMaxAge {
			continue
		}
		if err := os.Remove(r.path(tempName, e.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// tempBirth takes folders, which have no second in their name, by their time.
// One that is gone by now is taken to be new.
func tempBirth(e fs.DirEntry) time.Time {
	birth, _, _ := strings.Cut(e.Name(), "-")
	if sec, err := strconv.ParseInt(birth, 10, 64); err == nil {
		return time.Unix(sec, 0)
	}
	if fi, err := e.Info(); err == nil {
		return fi.ModTime()
	}
	return time.Unix(1<<40, 0)
}

// blobPath gives <root>/cas/<func>/<2 hex>/<hex>.
func (r *root) blobPath(d Digest) string { return r.fanOut("cas", d) }

// resultPath gives <root>/ac/<func>/<2 hex>/<hex>.
func (r *root) resultPath(key Digest) string { return r.fanOut("ac", key) }

// tombstonePath gives <root>/tombstones/<func>/<2 hex>/<hex>.
func (r *root) tombstonePath(key Digest) string { return r.fanOut("tombstones", key) }

func (r *root) fanOut(kind string, d Digest) string {
	hex := d.Hex()
	return r.dir + "/" + kind + "/" + d.Func.String() + "/" + hex[:2] + "/" + hex
}

// makeDirs makes a folder and those above it with the mode asked for, whatever
// the umask. A folder that is there keeps its mode. Making one under another
// name and renaming it into place looks safer and is not: a rename replaces an
// empty folder that somebody else has just made and is about to write to.
func makeDirs(dir string, mode fs.FileMode) error {
	fi, err := os.Stat(dir)
	switch {
	case err == nil && fi.IsDir():
		return nil
	case err == nil:
		return &fs.PathError{Op: "mkdir", Path: dir, Err: errors.New("not a folder")}
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	if err := makeDirs(filepath.Dir(dir), mode); err != nil {
		return err
	}
	switch err := os.Mkdir(dir, mode); {
	case errors.Is(err, fs.ErrExist): // somebody else was faster
		return nil
	case err != nil:
		return err
	}
	return os.Chmod(dir, mode)
}

// syncDirs puts the entry of the file at path on the disk, and, once in a
// process, those of the folders above it: whoever made them may not have. Above
// the root, folders that we may not read are none that we made.
func (r *root) syncDirs(path string) error {
	dir := filepath.Dir(path)
	if err := syncDir(dir); err != nil {
		return err
	}
	var done []string
	for above := filepath.Dir(dir); dir != above; dir, above = above, filepath.Dir(above) {
		if r.isSynced(dir) {
			break
		}
		if err := syncDir(above); err != nil && len(above) >= len(r.dir) {
			return err
		}
		done = append(done, dir)
	}
	r.setSynced(done)
	return nil
}

func (r *root) isSynced(dir string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.synced[dir]
}

func (r *root) setSynced(dirs []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, dir := range dirs {
		r.synced[dir] = true
	}
}

func syncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
