package cas

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
)

// Damage is something that Verify found wrong.
type Damage struct {
	What   string // "blob", "result", "capture", "plain copy", "tombstone"
	Name   string // a digest; without the size where that isn't known
	Reason string
	Moved  string // where it is now; "" if it is where it was
	Fetch  bool   // it is evidence: what there was has to come from elsewhere
}

// Error gives "blob DIGEST: reason, moved to FILE".
func (d *Damage) Error() string {
	s := d.What + " " + d.Name + ": " + d.Reason
	if d.Moved != "" {
		s += ", moved to " + d.Moved
	}
	return s
}

// Verified counts what Verify has read.
type Verified struct {
	Blobs, Results, Captures, Copies, Tombstones int
}

// Verify reads every file of both roots and calls damaged for each that isn't
// what its name says, and for each capture that isn't whole. Blobs that are
// right are stamped. What is damaged moves to the quarantine, but for captures
// and tombstones: with them would go that there is something not to be drawn
// again. The size in a blob's name is that of the file: what the blob's was
// isn't known. Receipts are notes, and not looked at. The error is the first that
// kept it from reading; it doesn't stop it unless ctx is done.
func (s *Store) Verify(ctx context.Context, damaged func(Damage)) (Verified, error) {
	v := &verifier{s: s, ctx: ctx, damaged: damaged}
	for _, r := range s.roots(Pure) {
		// Blobs first: what is found there makes a capture incomplete.
		for _, kind := range []struct {
			name string
			file func(r *root, path, name string, d Digest) error
		}{{"cas", v.blob}, {"plain", v.copy}, {"tombstones", v.tombstone}, {"ac", v.result}} {
			err := r.eachFile(ctx, kind.name, func(path, name string, d Digest) error {
				if err := kind.file(r, path, name, d); err != nil {
					v.keep(r, err)
				}
				return nil
			})
			v.keep(r, err)
		}
	}
	return v.count, v.first
}

type verifier struct {
	s       *Store
	ctx     context.Context
	damaged func(Damage)
	count   Verified
	first   error
}

func (v *verifier) keep(r *root, err error) {
	if v.first == nil && err != nil {
		v.first = fmt.Errorf("verify %s: %w", r.dir, err)
	}
}

func (v *verifier) blob(r *root, path, name string, d Digest) error {
	f := blobFile{root: r, path: path, packed: strings.HasSuffix(name, packedSuffix)}
	found, err := v.s.verifyFile(v.ctx, f, d)
	if found {
		v.count.Blobs++
	}
	return v.report("blob", err)
}

// report tells damage to a file whose content has a digest.
func (v *verifier) report(what string, err error) error {
	var blob *BlobError
	if !errors.As(err, &blob) {
		return err
	}
	v.damaged(Damage{What: what, Name: blob.Digest.String(), Reason: blob.Reason.String(), Moved: blob.Moved})
	return nil
}

// copy looks at the content alone: Stage makes a copy anew whose time or mode
// isn't right.
func (v *verifier) copy(r *root, path, _ string, d Digest) error {
	fi, err := os.Lstat(path)
	if err != nil {
		return ignoreAbsent(err)
	}
	v.count.Copies++
	d.Size = fi.Size()
	f := blobFile{root: r, path: path}
	got, fi, err := v.s.sumFile(v.ctx, f, d)
	if err == nil && got.Hash != d.Hash {
		err = f.damaged(d, fi)
	}
	return v.report("plain copy", err)
}

func (v *verifier) result(r *root, path, name string, d Digest) error {
	if name != d.Hex() {
		return nil // not ours
	}
	key, rec := v.s.loadFile(r, path, d)
	if rec == nil || errors.Is(rec.err, errFormer) {
		return nil
	}
	// The key's size is in the file, so that of a damaged one isn't known.
	if rec.err != nil {
		key = d
	}
	if rec.class == Capture {
		v.count.Captures++
	} else {
		v.count.Results++
	}
	var result Result
	err := rec.err
	if err == nil {
		result, err = DecodeResult(key.Func, rec.msg)
	}
	switch {
	case err != nil && rec.class == Capture:
		v.damaged(Damage{What: "capture", Name: nameOf(d), Reason: "damaged: " + err.Error(), Fetch: true})
	case err != nil:
		v.damaged(Damage{What: "result", Name: nameOf(d), Reason: "damaged: " + err.Error(), Moved: rec.putAway(d)})
	case rec.class == Capture:
		// A pure result that isn't whole is a miss, of which there are many.
		role, err := v.s.incomplete(result, v.s.roots(Capture), false)
		var blob *BlobError
		if errors.As(err, &blob) {
			v.damaged(Damage{What: "capture", Name: key.String(), Reason: role + " is " + blob.Reason.String(), Fetch: true})
			return nil
		}
		return err
	}
	return nil
}

func (v *verifier) tombstone(r *root, path, name string, d Digest) error {
	if name != d.Hex() {
		return nil
	}
	v.count.Tombstones++
	if _, err := readTombstone(path, d); err != nil {
		v.damaged(Damage{What: "tombstone", Name: nameOf(d), Reason: "damaged: " + err.Error()})
	}
	return nil
}

// nameOf gives a digest whose size isn't known.
func nameOf(d Digest) string { return d.Func.String() + ":" + d.Hex() }

// verifyFile is settle for a file whose blob's size isn't known.
func (s *Store) verifyFile(ctx context.Context, f blobFile, d Digest) (found bool, err error) {
	fi, err := os.Lstat(f.path)
	if err != nil {
		return false, ignoreAbsent(err) // removed since the folder was listed
	}
	d.Size = fi.Size()
	got, fi, err := s.sumFile(ctx, f, d)
	switch {
	case err != nil:
		return true, err
	case got.Hash != d.Hash:
		return true, f.damaged(d, fi)
	}
	f.restamp(got, fi)
	return true, nil
}
