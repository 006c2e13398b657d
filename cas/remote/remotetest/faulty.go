package remotetest

import (
	"bytes"
	"context"
	"errors"

	"github.com/evalbuild/eval/cas"
)

// Faulty is a Backend that has one fault, to show that the suite notices it.
type Faulty struct {
	Backend
	Name string

	get       func([]byte) ([]byte, error)
	result    func([]byte) ([]byte, error)
	missing   func([]cas.Digest) []cas.Digest
	put       func([]byte) []byte
	swallow   bool // writes of blobs
	forgetful bool // writes of results
	accepting bool // wrong bytes are no error
}

var errFault = errors.New("as the test wants it")

// Faults gives wrappers of b, each with another fault.
func Faults(b Backend) []Faulty {
	fail := func([]byte) ([]byte, error) { return nil, errFault }
	flip := func(b []byte) ([]byte, error) {
		b = bytes.Clone(b)
		if len(b) > 0 {
			b[len(b)/2] ^= 1
		}
		return b, nil
	}
	truncate := func(b []byte) ([]byte, error) { return b[:len(b)-len(b)/3], nil }
	cut := func(b []byte) ([]byte, error) {
		if len(b) > 100_000 {
			return nil, errFault
		}
		return b, nil
	}
	return []Faulty{
		{Name: "flip a byte of a blob", Backend: b, get: flip},
		{Name: "truncate a blob", Backend: b, get: truncate},
		{Name: "fail to get a blob", Backend: b, get: fail},
		{Name: "cut large blobs", Backend: b, get: cut},
		{Name: "flip a byte of a result", Backend: b, result: flip},
		{Name: "truncate a result", Backend: b, result: truncate},
		{Name: "fail to get a result", Backend: b, result: fail},
		{Name: "lose blobs", Backend: b, swallow: true},
		{Name: "lose results", Backend: b, forgetful: true},
		{Name: "accept wrong bytes", Backend: b, accepting: true},
		{Name: "miss nothing", Backend: b, missing: func([]cas.Digest) []cas.Digest { return nil }},
		{Name: "miss one too few", Backend: b, missing: func(ds []cas.Digest) []cas.Digest { return ds[min(1, len(ds)):] }},
		{Name: "flip a byte before it is put", Backend: b, put: func(b []byte) []byte { b, _ = flip(b); return b }},
	}
}

// PutBlob puts the blob, or pretends to.
func (f Faulty) PutBlob(ctx context.Context, d cas.Digest, b []byte) error {
	if f.swallow {
		return ctx.Err()
	}
	if f.put != nil {
		b = f.put(b)
	}
	err := f.Backend.PutBlob(ctx, d, b)
	if f.accepting && d.Func.Sum(b) != d {
		return nil
	}
	return err
}

// GetBlob gets the blob, or something like it.
func (f Faulty) GetBlob(ctx context.Context, d cas.Digest) ([]byte, error) {
	b, err := f.Backend.GetBlob(ctx, d)
	if err == nil && f.get != nil {
		return f.get(b)
	}
	return b, err
}

// Missing tells what is missing, or not quite.
func (f Faulty) Missing(ctx context.Context, ds []cas.Digest) ([]cas.Digest, error) {
	ds, err := f.Backend.Missing(ctx, ds)
	if err == nil && f.missing != nil {
		return f.missing(ds), nil
	}
	return ds, err
}

// PutResult puts the result, or pretends to.
func (f Faulty) PutResult(ctx context.Context, key cas.Digest, msg []byte) error {
	if f.forgetful {
		return nil
	}
	return f.Backend.PutResult(ctx, key, msg)
}

// GetResult gets the result, or something like it.
func (f Faulty) GetResult(ctx context.Context, key cas.Digest) ([]byte, error) {
	b, err := f.Backend.GetResult(ctx, key)
	if err == nil && f.result != nil {
		return f.result(b)
	}
	return b, err
}
