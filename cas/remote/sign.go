package remote

import (
	"bytes"
	"crypto/ed25519"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"github.com/evalbuild/eval/cas"
)

// keyPrefix begins the text of a public key.
const keyPrefix = "ed25519:"

// ParseKey reads a public key, "ed25519:<base64 of 32 bytes>".
func ParseKey(s string) (ed25519.PublicKey, error) {
	text, ok := strings.CutPrefix(s, keyPrefix)
	b, err := base64.StdEncoding.Strict().DecodeString(text)
	switch {
	case !ok:
		err = errors.New("want ed25519:BASE64")
	case err == nil && len(b) != ed25519.PublicKeySize:
		err = fmt.Errorf("it has %d bytes, want %d", len(b), ed25519.PublicKeySize)
	case err == nil && FormatKey(b) != s: // the decoder skips line ends
		err = errors.New("want base64 on one line")
	}
	if err != nil {
		return nil, fmt.Errorf("parse key %q: %w", s, err)
	}
	return b, nil
}

// FormatKey gives the text that ParseKey reads.
func FormatKey(k ed25519.PublicKey) string {
	return keyPrefix + base64.StdEncoding.EncodeToString(k)
}

// maxKeyFile bounds the file of a private key, in bytes.
const maxKeyFile = 1 << 16

// LoadKey reads a private key from a PEM file of PKCS #8, as `openssl genpkey
// -algorithm ed25519` writes it. A file that others may read or write is an
// error. No error has a part of the file in it.
func LoadKey(path string) (ed25519.PrivateKey, error) {
	k, err := loadKey(path)
	if err != nil {
		return nil, fmt.Errorf("read private key %s: %w", path, err)
	}
	return k, nil
}

// withoutPath leaves out what the caller says.
func withoutPath(err error) error {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		return e.Err
	}
	return err
}

func loadKey(path string) (ed25519.PrivateKey, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, withoutPath(err)
	}
	defer f.Close()
	fi, err := f.Stat()
	switch {
	case err != nil:
		return nil, withoutPath(err)
	case !fi.Mode().IsRegular():
		return nil, errors.New("not a regular file")
	case fi.Mode().Perm()&0o077 != 0:
		return nil, fmt.Errorf("its mode is %#o, so that others can use it; want 0600", fi.Mode().Perm())
	}
	b, err := io.ReadAll(io.LimitReader(f, maxKeyFile))
	if err != nil {
		return nil, withoutPath(err)
	}
	block, _ := pem.Decode(b)
	if block == nil || block.Type != "PRIVATE KEY" {
		return nil, errors.New("no PEM block PRIVATE KEY in it")
	}
	k, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, errors.New("it is no PKCS #8 private key")
	}
	key, ok := k.(ed25519.PrivateKey)
	if !ok {
		return nil, errors.New("it is no ed25519 key")
	}
	return key, nil
}

// statement is what a signature signs, and what ties a message to its key and
// its parts together without one: a server that serves one key's entry for
// another, or has lost a bit, is noticed. The roots of folders are in it, since
// plans are made of them before the folders are there.
func statement(key cas.Digest, result, roots []byte) []byte {
	return fmt.Appendf(nil, "eval signed result 1\n%v\n%v\n%v\n", key, key.Func.Sum(result), key.Func.Sum(roots))
}

// signature gives public key and signature in one.
func signature(k ed25519.PrivateKey, text []byte) []byte {
	return append(bytes.Clone(k.Public().(ed25519.PublicKey)), ed25519.Sign(k, text)...)
}

// checkSignature gives who signed text.
func checkSignature(sig, text []byte) (ed25519.PublicKey, error) {
	if len(sig) != ed25519.PublicKeySize+ed25519.SignatureSize {
		return nil, errors.New("its signature has a wrong size")
	}
	who, sig := ed25519.PublicKey(sig[:ed25519.PublicKeySize]), sig[ed25519.PublicKeySize:]
	if !ed25519.Verify(who, text, sig) {
		return nil, errors.New("its signature is wrong")
	}
	return who, nil
}
