package sandbox

import (
	"errors"
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/evalbuild/eval/workspace/graph"
)

// statxSize is the size of a struct statx.
const statxSize = 256

// A sourceStat is what a mount's source is, seen from out here.
type sourceStat struct {
	mount int
	path  string
	st    unix.Stat_t
}

type sourceStats []sourceStat

func statSources(mounts []graph.Mount) (sourceStats, error) {
	out := make(sourceStats, 0, len(mounts))
	for i, m := range mounts {
		if m.Link != "" {
			continue
		}
		s := sourceStat{mount: i, path: m.Source}
		if err := unix.Lstat(m.Source, &s.st); err != nil {
			return nil, fmt.Errorf("mount %s: %w", m.Path, &os.PathError{Op: "lstat", Path: m.Source, Err: err})
		}
		want := uint32(unix.S_IFREG)
		if m.Tree != nil {
			want = unix.S_IFDIR
		}
		if s.st.Mode&unix.S_IFMT != want {
			return nil, fmt.Errorf("mount %s: %s is no longer what it was", m.Path, m.Source)
		}
		out = append(out, s)
	}
	return out, nil
}

// check compares what the child bound with what was meant: between the two, a
// link could have been put on the way.
func (ss sourceStats) check(l *linked) error {
	for _, s := range ss {
		b := l.bytes("stat/"+strconv.Itoa(s.mount), statxSize)
		ino := leUint64(b[32:])
		dev := unix.Mkdev(leUint32(b[136:]), leUint32(b[140:]))
		if ino != s.st.Ino || dev != uint64(s.st.Dev) {
			return &SetupError{Row: -1, Layer: "mount", Call: "bind " + s.path, Err: errors.New("another file was there when it was bound")}
		}
	}
	return nil
}
