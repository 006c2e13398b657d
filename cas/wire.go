package cas

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"strings"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
)

// The messages are written by hand: the generated package of REAPI links gRPC
// into every program, and protobuf promises no canonical bytes, which are what
// a key is made of. Tests compare with the generated types.

func appendString(b []byte, num protowire.Number, s string) []byte {
	b = protowire.AppendTag(b, num, protowire.BytesType)
	return protowire.AppendString(b, s)
}

func appendBytes(b []byte, num protowire.Number, v []byte) []byte {
	b = protowire.AppendTag(b, num, protowire.BytesType)
	return protowire.AppendBytes(b, v)
}

// appendText leaves an empty string out, as proto3 does with a plain field.
func appendText(b []byte, num protowire.Number, s string) []byte {
	if s == "" {
		return b
	}
	return appendString(b, num, s)
}

// appendVarint leaves zero out. A negative number takes ten bytes, as in proto3.
func appendVarint(b []byte, num protowire.Number, v int64) []byte {
	if v == 0 {
		return b
	}
	b = protowire.AppendTag(b, num, protowire.VarintType)
	return protowire.AppendVarint(b, uint64(v))
}

func appendBool(b []byte, num protowire.Number, v bool) []byte {
	if v {
		return appendVarint(b, num, 1)
	}
	return b
}

// appendDigest writes Digest{hash = 1, size_bytes = 2} as field num.
func appendDigest(b []byte, num protowire.Number, d Digest) []byte {
	const hashField = 1 + 1 + 2*len(d.Hash) // tag, length, hex
	size := hashField
	if d.Size != 0 {
		size += 1 + protowire.SizeVarint(uint64(d.Size))
	}
	b = protowire.AppendTag(b, num, protowire.BytesType)
	b = protowire.AppendVarint(b, uint64(size))
	b = protowire.AppendTag(b, 1, protowire.BytesType)
	b = protowire.AppendVarint(b, uint64(2*len(d.Hash)))
	b = hex.AppendEncode(b, d.Hash[:])
	return appendVarint(b, 2, d.Size)
}

// appendPair writes {name = 1, value = 2}, the form of environment variables,
// platform properties and symlinks, as field num.
func appendPair(b []byte, num protowire.Number, name, value string) []byte {
	size := 0
	for _, s := range [2]string{name, value} {
		if s != "" {
			size += 1 + protowire.SizeBytes(len(s))
		}
	}
	b = protowire.AppendTag(b, num, protowire.BytesType)
	b = protowire.AppendVarint(b, uint64(size))
	return appendText(appendText(b, 1, name), 2, value)
}

// field is one decoded field: number if it is a varint, bytes if it has a length.
type field struct {
	num    protowire.Number
	typ    protowire.Type
	bytes  []byte
	number uint64
}

// eachField calls fn on each field of message b in order. The bytes it hands
// over are part of b.
func eachField(b []byte, fn func(field) error) error {
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return protowire.ParseError(n)
		}
		b = b[n:]
		f := field{num: num, typ: typ}
		switch typ {
		case protowire.VarintType:
			f.number, n = protowire.ConsumeVarint(b)
		case protowire.BytesType:
			f.bytes, n = protowire.ConsumeBytes(b)
		default:
			n = protowire.ConsumeFieldValue(num, typ, b)
		}
		if n < 0 {
			return protowire.ParseError(n)
		}
		b = b[n:]
		if err := fn(f); err != nil {
			return fmt.Errorf("field %d: %w", num, err)
		}
	}
	return nil
}

var (
	errWireType = errors.New("wrong wire type")
	errUnknown  = errors.New("unknown field")
	errUTF8     = errors.New("not UTF-8")
)

func (f field) message() ([]byte, error) {
	if f.typ != protowire.BytesType {
		return nil, errWireType
	}
	return f.bytes, nil
}

func (f field) text() (string, error) {
	b, err := f.message()
	if err == nil && !utf8.Valid(b) {
		err = errUTF8
	}
	return string(b), err
}

func (f field) varint() (int64, error) {
	if f.typ != protowire.VarintType {
		return 0, errWireType
	}
	return int64(f.number), nil
}

func (f field) boolean() (bool, error) {
	v, err := f.varint()
	return v != 0, err
}

func (f field) digest(fn Func) (Digest, error) {
	msg, err := f.message()
	if err != nil {
		return Digest{}, err
	}
	d := Digest{Func: fn}
	hashed := false
	err = eachField(msg, func(f field) (err error) {
		switch f.num {
		case 1:
			var hex []byte
			if hex, err = f.message(); err == nil {
				hashed = true
				d.Hash, err = parseHash(hex)
			}
		case 2:
			d.Size, err = f.varint()
		}
		return err
	})
	if err == nil && !hashed {
		err = errors.New("digest without hash")
	}
	if err == nil {
		err = d.check()
	}
	return d, err
}

func (f field) pair() (name, value string, err error) {
	msg, err := f.message()
	if err != nil {
		return "", "", err
	}
	err = eachField(msg, func(f field) (err error) {
		switch f.num {
		case 1:
			name, err = f.text()
		case 2:
			value, err = f.text()
		}
		return err
	})
	return name, value, err
}

// canonical refuses bytes that encode would not have written for what was read
// from them: out of order, repeated or unknown fields, padded varints. Without
// it two digests could stand for one directory.
func canonical(b []byte, encode func() ([]byte, error)) error {
	again, err := encode()
	if err != nil {
		return err
	}
	if !bytes.Equal(b, again) {
		return errors.New("not in canonical form")
	}
	return nil
}

// checkText refuses what a proto3 string or a system call can't carry.
func checkText(s string) error {
	if !utf8.ValidString(s) {
		return errUTF8
	}
	if strings.IndexByte(s, 0) >= 0 {
		return errors.New("contains NUL")
	}
	return nil
}

// checkName accepts one component of a path.
func checkName(name string) error {
	switch {
	case name == "":
		return errors.New("empty name")
	case name == "." || name == "..":
		return fmt.Errorf("name %q", name)
	case strings.IndexByte(name, '/') >= 0:
		return errors.New("name contains a slash")
	}
	return checkText(name)
}

// checkPath accepts a relative, slash-separated path with no empty, "." or ".."
// component: a path that stays below the folder that it is joined to.
func checkPath(path string) error {
	for rest, more := path, true; more; {
		var name string
		name, rest, more = strings.Cut(rest, "/")
		if err := checkName(name); err != nil {
			return err
		}
	}
	return nil
}

// sameFunc collects the digests of one message, which has no room for their
// functions and so must use a single one.
type sameFunc Func

func (s *sameFunc) add(d Digest) error {
	if err := d.check(); err != nil {
		return err
	}
	if *s == 0 {
		*s = sameFunc(d.Func)
	}
	if Func(*s) != d.Func {
		return fmt.Errorf("%s beside %s", d.Func, Func(*s))
	}
	return nil
}

func int32Of(v int64) (int32, error) {
	if v < math.MinInt32 || v > math.MaxInt32 {
		return 0, fmt.Errorf("%d overflows 32 bits", v)
	}
	return int32(v), nil
}
