package draws

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/evalbuild/eval/cas"
)

// ErrDrawn is what a *DrawnError is.
var ErrDrawn = errors.New("drawn already")

// A DrawnError refuses an intent for what was drawn or adopted: use its capture.
type DrawnError struct{ Line Line }

func (e *DrawnError) Error() string {
	return fmt.Sprintf("%v by %v: capture %v", ErrDrawn, e.Line.Label, e.Line.Capture)
}

func (e *DrawnError) Unwrap() error { return ErrDrawn }

// An OpenError refuses a line since a run is drawing that identity.
type OpenError struct{ Intent Line }

func (e *OpenError) Error() string {
	return "run " + e.Intent.Run + " is drawing it"
}

// A RivalError refuses a second capture for one identity.
type RivalError struct{ Has, Refused cas.Digest }

func (e *RivalError) Error() string {
	return fmt.Sprintf("it has capture %v already, and can't get capture %v", e.Has, e.Refused)
}

// ErrNoIntent refuses a draw or an abandonment that closes no open intent.
var ErrNoIntent = errors.New("its run has no open intent for it")

// ErrNoCapture refuses a surplus of an identity without a capture.
var ErrNoCapture = errors.New("it has no capture that counts")

// Append adds lines and gives them as they are in the file, with seq. A line
// that says nothing new (the same label's same capture, a look like the last)
// is not added again, and what is given is the line that was there. If a line is
// refused, none is added: *DrawnError, *OpenError, *RivalError, ErrNoIntent,
// ErrNoCapture. It waits for other processes that append.
func (l *Lock) Append(lines ...Line) ([]Line, error) {
	return l.update(func(*view) []Line { return lines })
}

// Recover abandons the open intents of runs that are not alive, but for those
// of run, the caller's own, and gives the lines that it added.
func (l *Lock) Recover(run string, alive func(run string) bool) ([]Line, error) {
	return l.update(func(v *view) (dead []Line) {
		lives := map[string]bool{run: true}
		for _, x := range v.lines {
			if x.Kind != Intent {
				continue
			}
			s := v.state(x.ID)
			if i := s.opened(x.Run); i < 0 || s.Open[i] != x {
				continue
			}
			if _, ok := lives[x.Run]; !ok {
				lives[x.Run] = alive(x.Run)
			}
			if !lives[x.Run] {
				dead = append(dead, x.Abandoned("the run ended"))
			}
		}
		return dead
	})
}

// update appends what plan wants, judged by the file as it is under its lock.
func (l *Lock) update(plan func(*view) []Line) ([]Line, error) {
	l.append.Lock()
	defer l.append.Unlock()
	for {
		out, again, err := l.once(plan)
		if !again {
			return out, err
		}
	}
}

// once is update on the file that has the name now; again says that it was
// replaced before the lines were on the disk.
func (l *Lock) once(plan func(*view) []Line) (out []Line, again bool, err error) {
	fail := func(err error) ([]Line, bool, error) {
		return nil, false, fmt.Errorf("append to %s: %w", l.path, err)
	}
	f, err := openLocked(l.path)
	if err != nil {
		return fail(err)
	}
	defer f.Close() // lets go of the lock
	v, data, err := l.read(f)
	if err != nil {
		return nil, false, err
	}
	var fresh []byte
	for _, x := range plan(v) {
		was, err := v.admit(x)
		if err == nil && was.Kind == "" {
			x.Seq = v.next()
			was = x
			var text []byte
			if text, err = encode(x); err == nil {
				fresh = append(fresh, text...)
				v.numbers++
				v.raw.set(string(text[:len(text)-1]), true)
				v.add(x)
			}
		}
		if err != nil { // v has lines that aren't in the file
			if v, perr := parse(l.path, data, l.view()); perr == nil {
				l.publish(v)
			}
			return fail(fmt.Errorf("%s: %w", x.what(), err))
		}
		out = append(out, was)
	}
	if len(fresh) > 0 {
		if err := l.put(f, v, data, fresh); err != nil {
			return fail(err)
		}
		if !current(f, l.path) {
			return nil, true, nil
		}
	}
	l.publish(v)
	return out, false, nil
}

// read gives the file's lines and bytes. If nobody has touched it since this
// process wrote it, they are at hand.
func (l *Lock) read(f *os.File) (*view, []byte, error) {
	prev := l.view()
	if fi, err := f.Stat(); err == nil && prev.info != nil && os.SameFile(fi, prev.info) &&
		fi.Size() == prev.info.Size() && fi.ModTime().Equal(prev.info.ModTime()) {
		v := prev.extended()
		v.whole = prev.whole
		return v, prev.data, nil
	}
	data, err := io.ReadAll(f)
	if err != nil {
		return nil, nil, fmt.Errorf("append to %s: %w", l.path, err)
	}
	v, err := parse(l.path, data, prev)
	return v, data, err
}

// put adds bytes to the file, which has data.
func (l *Lock) put(f *os.File, v *view, data, fresh []byte) error {
	size := v.whole
	if v.torn != nil {
		if err := f.Truncate(size); err != nil {
			return err
		}
	}
	if v.unended && size > 0 {
		fresh = append([]byte("\n"), fresh...)
	}
	n, err := l.write(f, fresh)
	if err == nil && n < len(fresh) {
		err = io.ErrShortWrite
	}
	if err == nil {
		err = l.sync(f)
	}
	if err == nil && size == 0 { // perhaps created now, perhaps by a process that was killed here
		err = syncFolder(filepath.Dir(l.path))
	}
	if err != nil {
		if terr := f.Truncate(size); terr != nil {
			err = fmt.Errorf("%w; a part may stay: %w", err, terr)
		}
		return err
	}
	if !v.unended { // else the next append reads it all once
		v.data = append(data[:size], fresh...) // views before this one end where they did
		v.info = infoOf(f, size+int64(len(fresh)))
	}
	v.torn, v.whole, v.unended = nil, size+int64(len(fresh)), false
	return nil
}

// infoOf is the file as it is now, if it has this size.
func infoOf(f *os.File, size int64) os.FileInfo {
	fi, err := f.Stat()
	if err != nil || fi.Size() != size {
		return nil
	}
	return fi
}

func syncFolder(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// openLocked opens the file that has the name, making it if there is none, with
// an exclusive lock. Git replaces files, so the name is looked at again.
func openLocked(path string) (*os.File, error) {
	for {
		f, err := openFile(path, os.O_RDWR|os.O_CREATE|os.O_APPEND)
		if err != nil {
			return nil, err
		}
		if err := flock(f, unix.LOCK_EX); err != nil {
			f.Close()
			return nil, err
		}
		if current(f, path) {
			return f, nil
		}
		f.Close()
	}
}

// current says whether the name still is this file's.
func current(f *os.File, path string) bool {
	a, err := f.Stat()
	if err != nil {
		return false
	}
	b, err := os.Lstat(path)
	return err == nil && os.SameFile(a, b)
}

func flock(f *os.File, how int) error {
	for {
		err := unix.Flock(int(f.Fd()), how)
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// admit judges a line. It gives the line that says the same already, if any.
func (v *view) admit(l Line) (was Line, err error) {
	l.Seq = v.next() // so that the rest is judged as it will be written
	if _, err := encode(l); err != nil {
		return Line{}, err
	}
	if l.Kind == Look {
		if last := v.looksOf(l.Label, l.Sample.Block); len(last) > 0 && last[len(last)-1].same(l) {
			return last[len(last)-1], nil
		}
		return Line{}, nil
	}
	s := v.state(l.ID)
	if s == nil {
		s = new(State)
	}
	mine, has := s.opened(l.Run) >= 0, s.Line.Kind != ""
	switch l.Kind {
	case Intent:
		if has {
			return Line{}, &DrawnError{s.Line}
		}
		if len(s.Open) > 0 {
			return Line{}, &OpenError{s.Open[0]}
		}
	case Abandoned:
		if !mine {
			return Line{}, ErrNoIntent
		}
	case Surplus:
		if !has {
			return Line{}, ErrNoCapture
		}
		if said, ok := s.spare(l); ok || l.Capture == s.Line.Capture {
			return cmp.Or(said, s.Line), nil
		}
	case Draw, Adopted:
		if has && s.Line.Capture != l.Capture {
			return Line{}, &RivalError{Has: s.Line.Capture, Refused: l.Capture}
		}
		if said, ok := s.said(l); ok && !mine {
			return said, nil
		}
		if l.Kind == Draw && !mine {
			return Line{}, ErrNoIntent
		}
		if l.Kind == Adopted && !mine && !has && len(s.Open) > 0 {
			return Line{}, &OpenError{s.Open[0]}
		}
	}
	return Line{}, nil
}
