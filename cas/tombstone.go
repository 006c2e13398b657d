package cas

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// A Tombstone says that a capture was deleted. It is canonical JSON in the Data
// root, under the key, for as long as the capture isn't brought back.
type Tombstone struct {
	Capture Digest `json:"capture"` // of the encoded Result that there was
	Key     Digest `json:"key"`
	When    string `json:"when"` // RFC 3339, UTC, to the second
	Why     string `json:"why"`
}

// maxWhy bounds a reason, in bytes.
const maxWhy = 4096

// encode gives the canonical bytes: the fields are in the order of their names.
func (t Tombstone) encode() ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(t); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// TombstoneError says that a capture was recorded for a key and deleted by a
// person. The caller must not run the action again.
type TombstoneError struct{ Tombstone }

// Error gives "look up capture KEY: deleted on DAY: reason".
func (e *TombstoneError) Error() string {
	return fmt.Sprintf("look up capture %v: deleted on %s: %s", e.Key, e.When, e.Why)
}

// readTombstone gives the tombstone in the file at path, which is that of key;
// the key's size may be left out.
func readTombstone(path string, key Digest) (Tombstone, error) {
	b, _, err := readResult(path)
	if err != nil {
		return Tombstone{}, err
	}
	var t Tombstone
	if err := json.Unmarshal(b, &t); err != nil {
		return Tombstone{}, errors.New("it is no tombstone")
	}
	want, err := t.encode()
	switch {
	case err != nil || !bytes.Equal(want, b):
		return Tombstone{}, errors.New("it is not canonical JSON")
	case t.Key.Func != key.Func || t.Key.Hash != key.Hash:
		return Tombstone{}, fmt.Errorf("it is of %v", t.Key)
	}
	return t, cmp.Or(t.Key.check(), t.Capture.check())
}

// tombstone gives that of key: nil if there is none, an *IncompleteError if it
// can't be read, since it says at least that nothing may be drawn.
func (s *Store) tombstone(key Digest) (*Tombstone, error) {
	t, err := readTombstone(s.data.tombstonePath(key), key)
	switch {
	case absent(err):
		return nil, nil
	case err != nil:
		return nil, &IncompleteError{Key: key, Reason: "it was deleted, and its tombstone can't be read: " + err.Error(), Err: err}
	}
	return &t, nil
}

// Deleted is what DeleteCapture removed.
type Deleted struct {
	Tombstone
	Blobs int
}

// ErrNoCapture is returned by DeleteCapture if none is recorded under the key.
var ErrNoCapture = errors.New("no capture is recorded under this key")

// ErrYoung is returned by DeleteCapture for what may be in use.
var ErrYoung = errors.New("a blob of it was written or put again within the last hour, perhaps by a build that still needs it")

// DeleteCapture deletes the capture of key and the blobs that no other result in
// its root names; pure results elsewhere that did are misses then. A tombstone
// that says why is on the disk before anything goes: from then on Lookup gives a
// *TombstoneError, and PutResult takes this very capture back, and no other. The
// receipts of it go too. A deletion that was cut short goes on when it is asked
// for again.
//
// Blobs that a running build has put again in the last hour, for a capture that
// isn't recorded yet, must stay: then nothing is done (ErrYoung).
func (s *Store) DeleteCapture(ctx context.Context, key Digest, why string, dryRun bool) (Deleted, error) {
	d, err := s.deleteCapture(ctx, key, why, dryRun)
	if err != nil {
		return d, fmt.Errorf("delete capture %v: %w", key, err)
	}
	return d, nil
}

func (s *Store) deleteCapture(ctx context.Context, key Digest, why string, dryRun bool) (Deleted, error) {
	switch {
	case strings.TrimSpace(why) == "":
		return Deleted{}, errors.New("no reason is given")
	case len(why) > maxWhy || !utf8.ValidString(why):
		return Deleted{}, fmt.Errorf("the reason is not UTF-8 of at most %d bytes", maxWhy)
	}
	if err := key.check(); err != nil {
		return Deleted{}, err
	}
	unlock, err := s.Lock(ctx, key)
	if err != nil {
		return Deleted{}, err
	}
	defer unlock()
	start := s.now()
	rec := s.load(key, []*root{s.data})
	if rec == nil || rec.err == nil && rec.class != Capture {
		t, err := s.tombstone(key)
		if err == nil && t != nil {
			err = &TombstoneError{*t}
		}
		return Deleted{}, cmp.Or(err, ErrNoCapture)
	}
	if rec.err != nil {
		return Deleted{}, fmt.Errorf("it can't be read: %w", rec.err)
	}
	files, err := s.ownFiles(ctx, key)
	if err != nil {
		return Deleted{}, err
	}
	cutoff := start.Add(-s.grace)
	for _, f := range files {
		if !f.changed.Before(cutoff) {
			return Deleted{}, ErrYoung
		}
	}
	out := Deleted{Tombstone: Tombstone{Capture: key.Func.Sum(rec.msg), Key: key, When: start.UTC().Format(time.RFC3339), Why: why}, Blobs: len(files)}
	if dryRun {
		return out, nil
	}
	// That of a deletion that was cut short says when it really was.
	if was, err := s.tombstone(key); err == nil && was != nil && was.Capture == out.Capture {
		out.Tombstone = *was
	} else {
		b, err := out.encode()
		if err == nil {
			err = s.writeSmall(Capture, s.data.tombstonePath(key), Digest{}, time.Time{}, b)
		}
		if err != nil {
			return Deleted{}, err
		}
	}
	s.hook("tombstone written")
	// Receipts may have small outputs in them.
	if err := s.dropReceipts(key); err != nil {
		return Deleted{}, err
	}
	// If this is cut short, the record knows the blobs, and a tree its files.
	slices.SortStableFunc(files, func(a, b ownFile) int { return cmp.Compare(a.after, b.after) })
	for _, f := range files {
		if err := s.dropOwn(ctx, f, cutoff); err != nil {
			return Deleted{}, err
		}
	}
	s.hook("blobs removed")
	path := s.data.resultPath(key)
	if err := ignoreAbsent(os.Remove(path)); err != nil {
		return Deleted{}, err
	}
	return out, s.data.syncDirs(path)
}

// An ownFile is a file of a blob that one capture names.
type ownFile struct {
	heldFile
	digest Digest
	after  int // 1: a tree
}

func (s *Store) dropOwn(ctx context.Context, f ownFile, cutoff time.Time) error {
	s.hook("file " + f.path)
	unlock, err := s.lockOffset(ctx, blobOffset(f.digest))
	if err != nil {
		return err
	}
	defer unlock()
	fi, err := os.Lstat(f.path)
	if err != nil || !s.changed(fi).Before(cutoff) {
		return ignoreAbsent(err) // a writer counts on it now
	}
	return ignoreAbsent(os.Remove(f.path))
}

// ownFiles gives the files in the Data root of blobs that the capture of key
// names and no other result there does. Another capture that can't be read is
// an error: what it names isn't known.
func (s *Store) ownFiles(ctx context.Context, key Digest) ([]ownFile, error) {
	refs := newReferences(s)
	own := map[*reference]bool{}
	err := s.data.eachFile(ctx, "ac", func(path, name string, d Digest) error {
		if name != d.Hex() {
			return nil
		}
		got, rec := s.loadFile(s.data, path, d)
		if rec == nil {
			return nil
		}
		names, err := refs.ofRecord(got, rec)
		switch {
		case got == key: // what its tree names isn't known if that is lost
			for _, b := range names {
				own[b] = true
			}
			return nil
		case err != nil && rec.class == Capture:
			return fmt.Errorf("capture %s can't be read, so that what it names isn't known: %w", nameOf(d), err)
		case err != nil:
			return nil // a miss
		}
		for _, b := range names {
			b.count++
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	var files []ownFile
	for d, b := range refs.blobs {
		if !own[b] || b.count > 0 {
			continue
		}
		after := 0
		if b.tree {
			after = 1
		}
		for _, suffix := range [2]string{"", packedSuffix} {
			path := s.data.blobPath(d) + suffix
			size, changed, err := s.statFile(path)
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err != nil {
				return nil, err
			}
			files = append(files, ownFile{heldFile{path, size, changed}, d, after})
		}
	}
	return files, nil
}

// mayReturn refuses to record msg where another capture was deleted.
func (s *Store) mayReturn(key Digest, msg []byte) error {
	t, err := s.tombstone(key)
	if err == nil && t != nil && t.Capture != key.Func.Sum(msg) {
		err = &TombstoneError{*t}
	}
	return err
}

// returned removes the tombstone of a capture that is recorded again.
func (s *Store) returned(key Digest) error {
	path := s.data.tombstonePath(key)
	switch err := os.Remove(path); {
	case absent(err):
		return nil
	case err != nil:
		return err
	}
	return s.data.syncDirs(path)
}
