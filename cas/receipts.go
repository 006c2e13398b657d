package cas

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/zeebo/blake3"
)

// A Receipt says that a server was seen to have the result of a key with all
// blobs that it names, and in what form. Digests on a server may be of another
// function than ours, so the message has both kinds and saves a question.
type Receipt struct {
	Class   Class     // of the result: a capture's receipt is in the Data root and stays
	Had     bool      // it came from there; else we sent it
	Func    Func      // of the digests in Message
	Message []byte    // the ActionResult as the server has it
	When    time.Time // last confirmed, the file's modification time; zero is now
}

// A receipt file is a line, 32 bytes of BLAKE3 over the line, the folder of the
// server and all that follows, the length of the key's text in 2 bytes, that
// text, and the message. The whole key is in it since the name has only the hash.
func receiptHeader(r Receipt) string {
	how := "sent"
	if r.Had {
		how = "had"
	}
	return fmt.Sprintf("eval receipt 1: %v %s %v\n", r.Class, how, r.Func)
}

func receiptSum(header []byte, server string, rest []byte) (sum [32]byte) {
	scratch := scratches.Get().(*[]byte)
	b := append(append(append((*scratch)[:0], header...), server...), rest...)
	sum = blake3.Sum256(b)
	*scratch = b
	scratches.Put(scratch)
	return sum
}

func encodeReceipt(server string, key Digest, r Receipt) []byte {
	name, header := key.String(), receiptHeader(r)
	b := make([]byte, 0, len(header)+34+len(name)+len(r.Message))
	b = append(b, header...)
	b = append(b, make([]byte, 32)...)
	b = binary.LittleEndian.AppendUint16(b, uint16(len(name)))
	b = append(append(b, name...), r.Message...)
	head, rest := b[:len(header)], b[len(header)+32:]
	sum := receiptSum(head, server, rest)
	copy(b[len(header):], sum[:])
	return b
}

// decodeReceipt reads the file that was at path: its folders say which server
// and, in part, which key it is of.
func decodeReceipt(path string, b []byte) (Digest, Receipt, error) {
	i := bytes.IndexByte(b, '\n') + 1
	header, rest := b[:i], b[i:]
	r, err := parseReceiptHeader(string(header))
	if err != nil || len(rest) < 34 {
		return Digest{}, Receipt{}, cmp.Or(err, errChecksum)
	}
	sum, rest := [32]byte(rest), rest[32:]
	server := filepath.Base(filepath.Dir(filepath.Dir(path)))
	if sum != receiptSum(header, server, rest) {
		return Digest{}, Receipt{}, errChecksum
	}
	n := int(binary.LittleEndian.Uint16(rest))
	if rest = rest[2:]; len(rest) < n {
		return Digest{}, Receipt{}, errChecksum
	}
	key, err := ParseDigest(string(rest[:n]))
	if err == nil && key.Hex() != filepath.Base(path) {
		err = errChecksum
	}
	r.Message = rest[n:]
	return key, r, err
}

// parseReceiptHeader compares with each of the few that there are.
func parseReceiptHeader(line string) (Receipt, error) {
	for _, c := range [2]Class{Pure, Capture} {
		for _, f := range [2]Func{BLAKE3, SHA256} {
			for _, had := range [2]bool{true, false} {
				if r := (Receipt{Class: c, Had: had, Func: f}); line == receiptHeader(r) {
					return r, nil
				}
			}
		}
	}
	return Receipt{}, errors.New("it is no receipt")
}

// serverFolder gives the name of a server's folder: its address may have any
// characters in it.
func serverFolder(server string) string {
	sum := blake3.Sum256([]byte(server))
	return hex.EncodeToString(sum[:8])
}

func (r *root) receiptPath(folder string, key Digest) string {
	hex := key.Hex()
	return r.dir + "/receipts/" + folder + "/" + hex[:2] + "/" + hex
}

// PutReceipt records that the server has the result of key, in the place of an
// earlier receipt. Nothing is synced: what a power cut takes is asked for again.
func (s *Store) PutReceipt(server string, key Digest, r Receipt) error {
	err := cmp.Or(key.check(), r.Class.check(), checkFunc(r.Func))
	if err == nil {
		if r.When.IsZero() {
			r.When = s.now()
		}
		folder, root := serverFolder(server), s.root(r.Class)
		err = s.writeIn(root, false, root.receiptPath(folder, key), Digest{}, r.When, encodeReceipt(folder, key, r))
	}
	if err != nil {
		return fmt.Errorf("write receipt of %v: %w", key, err)
	}
	return nil
}

// Receipt gives what PutReceipt recorded. One that is damaged or can't be read
// is none.
func (s *Store) Receipt(server string, key Digest) (Receipt, bool) {
	folder := serverFolder(server)
	for _, root := range s.roots(Pure) {
		path := root.receiptPath(folder, key)
		b, when, err := readResult(path)
		if err != nil {
			continue
		}
		if got, r, err := decodeReceipt(path, b); err == nil && got == key {
			r.When = when
			return r, true
		}
	}
	return Receipt{}, false
}

// DropReceipt forgets the receipt of key from the server: it was wrong.
func (s *Store) DropReceipt(server string, key Digest) {
	for _, root := range s.roots(Pure) {
		os.Remove(root.receiptPath(serverFolder(server), key))
	}
}

// Received says whether the result of key came from some server and not from
// here. A receipt that can't be read says so too.
func (s *Store) Received(key Digest) bool {
	received := false
	s.receiptsOf(key, func(path string) error {
		b, _, err := readResult(path)
		if absent(err) {
			return nil
		}
		got, r, bad := decodeReceipt(path, b)
		received = received || err != nil || bad != nil || got == key && r.Had
		return nil
	})
	return received
}

// dropReceipts forgets what any server is known to have of key.
func (s *Store) dropReceipts(key Digest) error {
	return s.receiptsOf(key, func(path string) error { return ignoreAbsent(os.Remove(path)) })
}

// receiptsOf calls fn with each path where a receipt of key may be.
func (s *Store) receiptsOf(key Digest, fn func(path string) error) error {
	for _, root := range s.roots(Pure) {
		servers, err := readDir(root.path("receipts"))
		for _, folder := range servers {
			err = cmp.Or(err, fn(root.receiptPath(folder, key)))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// eachReceipt calls fn with each file that is named like a receipt, and with
// the hash of its key.
func (r *root) eachReceipt(ctx context.Context, fn func(path string, key Digest) error) (first error) {
	list := func(elem ...string) []string {
		names, err := readDir(r.path(elem...))
		first = cmp.Or(first, err)
		return names
	}
	for _, server := range list("receipts") {
		for _, folder := range list("receipts", server) {
			for _, name := range list("receipts", server, folder) {
				if err := ctx.Err(); err != nil {
					return err
				}
				hash, err := parseHash(name)
				if err != nil {
					continue
				}
				if err := fn(r.path("receipts", server, folder, name), Digest{Hash: hash}); err != nil {
					return err
				}
			}
		}
	}
	return first
}

// recorded says whether a result is recorded under a key of this hash, in
// either function.
func (s *Store) recorded(key Digest) bool {
	for _, f := range [2]Func{BLAKE3, SHA256} {
		key.Func = f
		for _, r := range s.roots(Pure) {
			if _, err := os.Lstat(r.resultPath(key)); err == nil {
				return true
			}
		}
	}
	return false
}
