package cas

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"strconv"
	"strings"

	"github.com/zeebo/blake3"
)

// Func is a digest function. The zero value is no function.
type Func uint8

// The digest functions, both with 32 bytes of output. REAPI calls them
// DigestFunction BLAKE3 = 9 and SHA256 = 1; these numbers are ours.
const (
	BLAKE3 Func = 1
	SHA256 Func = 2
)

// ParseFunc reads the name of a digest function, "blake3" or "sha256".
func ParseFunc(name string) (Func, error) {
	switch name {
	case "blake3":
		return BLAKE3, nil
	case "sha256":
		return SHA256, nil
	}
	return 0, fmt.Errorf("parse digest function %q: want blake3 or sha256", name)
}

func (f Func) known() bool { return f == BLAKE3 || f == SHA256 }

// String gives the name that ParseFunc reads and that folders of a store have.
func (f Func) String() string {
	switch f {
	case BLAKE3:
		return "blake3"
	case SHA256:
		return "sha256"
	}
	return "digest function " + strconv.Itoa(int(f))
}

// New starts a hash. It panics on an unknown function: no input can cause
// that, since Open, ParseFunc and the decoders refuse one.
func (f Func) New() hash.Hash {
	switch f {
	case BLAKE3:
		return blake3.New()
	case SHA256:
		return sha256.New()
	}
	panic("cas: " + f.String())
}

// Sum gives the digest of b. It panics like New.
func (f Func) Sum(b []byte) Digest {
	d := Digest{Func: f, Size: int64(len(b))}
	switch f {
	case BLAKE3:
		d.Hash = blake3.Sum256(b)
	case SHA256:
		d.Hash = sha256.Sum256(b)
	default:
		panic("cas: " + f.String())
	}
	return d
}

// SumReader gives the digest of all that r yields. It panics like New.
func (f Func) SumReader(r io.Reader) (Digest, error) {
	h := f.New()
	n, err := io.Copy(h, r)
	if err != nil {
		return Digest{}, err
	}
	return digestOf(f, h, n), nil
}

func digestOf(f Func, h hash.Hash, size int64) Digest {
	d := Digest{Func: f, Size: size}
	h.Sum(d.Hash[:0])
	return d
}

// Digest names a blob by content. It is comparable; the zero value names
// nothing (the empty blob has a hash).
type Digest struct {
	Func Func
	Hash [32]byte
	Size int64 // bytes
}

// IsZero reports whether d names nothing.
func (d Digest) IsZero() bool { return d == Digest{} }

// Hex gives the hash as 64 lower-case hex digits.
func (d Digest) Hex() string { return hex.EncodeToString(d.Hash[:]) }

// String gives "blake3:<64 hex>/<size>", the only spelling that ParseDigest
// reads, or "none" for the zero value.
func (d Digest) String() string {
	if d.IsZero() {
		return "none"
	}
	return d.Func.String() + ":" + d.Hex() + "/" + strconv.FormatInt(d.Size, 10)
}

// ParseDigest reads the form "blake3:<64 hex>/<size>". One digest has one
// spelling: upper-case hex, a sign or leading zeros are errors.
func ParseDigest(s string) (Digest, error) {
	d, err := parseDigest(s)
	if err != nil {
		return Digest{}, fmt.Errorf("parse digest %q: %w", s, err)
	}
	return d, nil
}

func parseDigest(s string) (Digest, error) {
	name, rest, ok := strings.Cut(s, ":")
	if !ok {
		return Digest{}, errors.New("want FUNCTION:HASH/SIZE")
	}
	f, err := ParseFunc(name)
	if err != nil {
		return Digest{}, err
	}
	hash, size, ok := strings.Cut(rest, "/")
	if !ok {
		return Digest{}, errors.New("want FUNCTION:HASH/SIZE")
	}
	d := Digest{Func: f}
	if d.Hash, err = parseHash(hash); err != nil {
		return Digest{}, err
	}
	d.Size, err = strconv.ParseInt(size, 10, 64)
	if err != nil || d.Size < 0 || strconv.FormatInt(d.Size, 10) != size {
		return Digest{}, fmt.Errorf("size %q is not a plain decimal number of bytes", size)
	}
	return d, nil
}

// parseHash reads lower-case hex; from bytes too, so that decoders need no copy.
func parseHash[T string | []byte](s T) (hash [32]byte, err error) {
	if len(s) != 2*len(hash) {
		return hash, fmt.Errorf("hash has %d characters, want %d", len(s), 2*len(hash))
	}
	for i := range hash {
		hi, lo := unhex(s[2*i]), unhex(s[2*i+1])
		if hi > 15 || lo > 15 {
			return hash, errors.New("hash is not lower-case hex")
		}
		hash[i] = hi<<4 | lo
	}
	return hash, nil
}

func unhex(c byte) byte {
	switch {
	case '0' <= c && c <= '9':
		return c - '0'
	case 'a' <= c && c <= 'f':
		return c - 'a' + 10
	}
	return 0xff
}

// MarshalText gives String, or nothing for the zero value.
func (d Digest) MarshalText() ([]byte, error) {
	if d.IsZero() {
		return nil, nil
	}
	if err := d.check(); err != nil {
		return nil, err
	}
	return []byte(d.String()), nil
}

// UnmarshalText reads what MarshalText writes.
func (d *Digest) UnmarshalText(b []byte) error {
	if len(b) == 0 {
		*d = Digest{}
		return nil
	}
	got, err := ParseDigest(string(b))
	if err != nil {
		return err
	}
	*d = got
	return nil
}

// check refuses a digest that no spelling stands for.
func (d Digest) check() error {
	switch {
	case d.IsZero():
		return errors.New("no digest")
	case !d.Func.known():
		return errors.New("digest with unknown " + d.Func.String())
	case d.Size < 0:
		return fmt.Errorf("digest with negative size %d", d.Size)
	}
	return nil
}
