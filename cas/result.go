package cas

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// OutputFile is a file that an action wrote. A small one may carry its content,
// and has no blob then: the message allows that, and it saves the store a file
// and its reader an open. Content that isn't Digest's is an error.
type OutputFile struct {
	Path       string // relative to the working directory
	Digest     Digest
	Executable bool
	Contents   []byte // nil: it is in the blob
}

// Inlined reports whether the file's content is in the result: it is carried,
// or empty.
func (f OutputFile) Inlined() bool { return f.Contents != nil || f.Digest.Size == 0 }

// OutputFolder is a folder that an action wrote, with all in it. Its blobs are
// the Tree message and the files that this names (see Tree.Encode).
type OutputFolder struct {
	Path string // relative to the working directory
	Tree Digest // of the encoded Tree message, not of the root directory
	Root Digest // of the root directory; zero: not known. It isn't encoded.
}

// OutputLink is a symbolic link that an action wrote.
type OutputLink struct {
	Path   string // relative to the working directory
	Target string // as readlink gives it
}

// Result is what an action came to, a subset of the message
// build.bazel.remote.execution.v2.ActionResult.
type Result struct {
	Files          []OutputFile // each list is encoded sorted by path
	Folders        []OutputFolder
	Links          []OutputLink
	ExitCode       int32
	Stdout, Stderr Digest            // zero: none was kept
	Aux            map[string][]byte // facts beside the outputs, by name
}

// auxPrefix begins the type URL of an entry of Aux on the wire. A URL needs the
// slash; the value is our bytes as they are, since no server looks into it.
const auxPrefix = "eval/"

// Encode gives the canonical bytes: outputs sorted by path, Aux by name, as
// google.protobuf.Any in execution_metadata.auxiliary_metadata. A path that
// occurs twice, is absolute or not clean, a missing digest, digests of two
// functions, a link without target and an Aux name that is empty or not UTF-8
// are errors. What OutputDirectory has beside path and tree_digest is left out:
// a claim about the order in a tree that we may have from elsewhere, and a
// digest that the tree has in it.
func (r Result) Encode() ([]byte, error) {
	r.sort()
	if err := r.check(); err != nil {
		return nil, fmt.Errorf("encode result: %w", err)
	}
	var b, node []byte
	for _, f := range r.Files {
		node = appendString(node[:0], 1, f.Path)
		node = appendDigest(node, 2, f.Digest)
		node = appendBool(node, 4, f.Executable)
		if len(f.Contents) > 0 {
			node = appendBytes(node, 5, f.Contents)
		}
		b = appendBytes(b, 2, node)
	}
	for _, f := range r.Folders {
		node = appendString(node[:0], 1, f.Path)
		node = appendDigest(node, 3, f.Tree)
		b = appendBytes(b, 3, node)
	}
	b = appendVarint(b, 4, int64(r.ExitCode))
	if !r.Stdout.IsZero() {
		b = appendDigest(b, 6, r.Stdout)
	}
	if !r.Stderr.IsZero() {
		b = appendDigest(b, 8, r.Stderr)
	}
	if len(r.Aux) > 0 {
		b = appendBytes(b, 9, r.encodeMetadata())
	}
	for _, l := range r.Links {
		b = appendPair(b, 12, l.Path, l.Target)
	}
	return b, nil
}

// sort puts sorted lists in the place of those that are not.
func (r *Result) sort() {
	r.Files = sortedBy(r.Files, func(a, b *OutputFile) int { return cmp.Compare(a.Path, b.Path) })
	r.Folders = sortedBy(r.Folders, func(a, b *OutputFolder) int { return cmp.Compare(a.Path, b.Path) })
	r.Links = sortedBy(r.Links, func(a, b *OutputLink) int { return cmp.Compare(a.Path, b.Path) })
}

// maxHead is what a field's number and length take at most.
const maxHead = 11

// encodeMetadata writes ExecutedActionMetadata{auxiliary_metadata = 11}.
func (r Result) encodeMetadata() []byte {
	most, all := 0, 0 // for one allocation each: these are the large part of a result
	for name, v := range r.Aux {
		n := len(auxPrefix) + len(name) + len(v) + 4*maxHead
		most, all = max(most, n), all+n
	}
	b, entry := make([]byte, 0, all), make([]byte, 0, most)
	for _, name := range slices.Sorted(maps.Keys(r.Aux)) {
		entry = appendString(entry[:0], 1, auxPrefix+name)
		if v := r.Aux[name]; len(v) > 0 {
			entry = appendBytes(entry, 2, v)
		}
		b = appendBytes(b, 11, entry)
	}
	return b
}

func (r Result) check() error {
	var fn sameFunc
	seen := make(map[string]bool, len(r.Files)+len(r.Folders)+len(r.Links))
	output := func(path string, err error) error {
		if err = cmp.Or(checkPath(path), err); err == nil && seen[path] {
			err = errTwice
		}
		if err != nil {
			return fmt.Errorf("output %q: %w", path, err)
		}
		seen[path] = true
		return nil
	}
	for _, f := range r.Files {
		err := fn.add(f.Digest)
		if err == nil && f.Inlined() && f.Digest.Func.Sum(f.Contents) != f.Digest {
			err = errors.New("the content is not the digest's")
		}
		if err := output(f.Path, err); err != nil {
			return err
		}
	}
	for _, f := range r.Folders {
		if err := output(f.Path, fn.add(f.Tree)); err != nil {
			return err
		}
	}
	for _, l := range r.Links {
		if err := output(l.Path, checkTarget(l.Target)); err != nil {
			return err
		}
	}
	for _, d := range [2]Digest{r.Stdout, r.Stderr} {
		if d.IsZero() {
			continue
		}
		if err := fn.add(d); err != nil {
			return fmt.Errorf("standard output or error: %w", err)
		}
	}
	for name := range r.Aux {
		err := checkText(name)
		if name == "" {
			err = errors.New("empty name")
		}
		if err != nil {
			return fmt.Errorf("aux %q: %w", name, err)
		}
	}
	return nil
}

// eachBlob calls fn with every digest in the message that a blob is needed for,
// and what it is to the reader of an error. Store.incomplete goes on to what is
// in the folders.
func (r Result) eachBlob(fn func(role string, d Digest) error) error {
	for _, f := range r.Files {
		if f.Inlined() {
			continue
		}
		if err := fn(f.Path, f.Digest); err != nil {
			return err
		}
	}
	for _, f := range r.Folders {
		if err := fn(f.Path, f.Tree); err != nil {
			return err
		}
	}
	if !r.Stdout.IsZero() {
		if err := fn("stdout", r.Stdout); err != nil {
			return err
		}
	}
	if !r.Stderr.IsZero() {
		return fn("stderr", r.Stderr)
	}
	return nil
}

// DecodeResult reads an ActionResult, also one that a server has added to:
// what Result has no room for is skipped if nothing is lost (worker, times,
// copies of output) and an error if it would be (bytes with no digest). Links
// may stand in the fields that REAPI 2.1 replaced, or in both. The digests get
// function fn, which isn't on the wire. Empty lists and maps come back as nil.
func DecodeResult(fn Func, b []byte) (Result, error) {
	d := resultDecoder{fn: fn}
	err := checkFunc(fn)
	if err == nil {
		err = eachField(b, d.decode)
	}
	r := d.Result
	switch {
	case err != nil:
	case d.rawOut && r.Stdout.IsZero(), d.rawErr && r.Stderr.IsZero():
		err = errors.New("inlined standard output or error without digest")
	default:
		for _, l := range d.old {
			if !slices.Contains(r.Links, l) {
				r.Links = append(r.Links, l)
			}
		}
		r.sort()
		err = r.check()
	}
	if err != nil {
		return Result{}, fmt.Errorf("decode result: %w", err)
	}
	return r, nil
}

type resultDecoder struct {
	Result
	fn             Func
	old            []OutputLink // from fields 10 and 11
	rawOut, rawErr bool         // there were bytes
}

func (d *resultDecoder) decode(f field) (err error) {
	switch f.num {
	case 2:
		var o OutputFile
		o, err = f.outputFile(d.fn)
		d.Files = append(d.Files, o)
	case 3:
		var o OutputFolder
		o, err = f.outputFolder(d.fn)
		d.Folders = append(d.Folders, o)
	case 4:
		var v int64
		if v, err = f.varint(); err == nil {
			d.ExitCode, err = int32Of(v)
		}
	case 5:
		d.rawOut = len(f.bytes) > 0
	case 6:
		d.Stdout, err = f.digest(d.fn)
	case 7:
		d.rawErr = len(f.bytes) > 0
	case 8:
		d.Stderr, err = f.digest(d.fn)
	case 9:
		var msg []byte
		if msg, err = f.message(); err == nil {
			err = eachField(msg, d.decodeMetadata)
		}
	case 10, 11, 12:
		var l OutputLink
		l.Path, l.Target, err = f.pair()
		if f.num == 12 {
			d.Links = append(d.Links, l)
		} else {
			d.old = append(d.old, l)
		}
	}
	return err
}

func (f field) outputFolder(fn Func) (OutputFolder, error) {
	var o OutputFolder
	msg, err := f.message()
	if err != nil {
		return o, err
	}
	err = eachField(msg, func(f field) (err error) {
		switch f.num {
		case 1:
			o.Path, err = f.text()
		case 3:
			o.Tree, err = f.digest(fn)
		}
		return err
	})
	return o, err
}

func (f field) outputFile(fn Func) (OutputFile, error) {
	var o OutputFile
	msg, err := f.message()
	if err != nil {
		return o, err
	}
	err = eachField(msg, func(f field) (err error) {
		switch f.num {
		case 1:
			o.Path, err = f.text()
		case 2:
			o.Digest, err = f.digest(fn)
		case 4:
			o.Executable, err = f.boolean()
		case 5:
			var b []byte
			if b, err = f.message(); err == nil && len(b) > 0 {
				o.Contents = bytes.Clone(b)
			}
		}
		return err
	})
	return o, err
}

func (r *Result) decodeMetadata(f field) error {
	if f.num != 11 {
		return nil
	}
	msg, err := f.message()
	if err != nil {
		return err
	}
	var url string
	value := []byte{}
	err = eachField(msg, func(f field) (err error) {
		switch f.num {
		case 1:
			url, err = f.text()
		case 2:
			if value, err = f.message(); err == nil {
				value = bytes.Clone(value)
			}
		}
		return err
	})
	name, ours := strings.CutPrefix(url, auxPrefix)
	switch {
	case err != nil || !ours:
		return err
	case r.Aux == nil:
		r.Aux = map[string][]byte{}
	}
	if _, ok := r.Aux[name]; ok {
		return fmt.Errorf("aux %q: %w", name, errTwice)
	}
	r.Aux[name] = value
	return nil
}
