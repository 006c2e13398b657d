package remote

import (
	"bytes"
	"cmp"
	"crypto/ed25519"
	"errors"
	"fmt"
	"strings"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/evalbuild/eval/cas"
)

// The names of what we add to an ActionResult, as auxiliary metadata.
const (
	auxPrefix    = "eval/"
	auxResult    = "result"    // the canonical cas.Result in local digests
	auxRoots     = "roots"     // a cas.Result of folders, with roots in the place of trees
	auxSum       = "sum"       // the local function's hash of the statement
	auxSignature = "signature" // of the statement
)

// worker is who made a result. Servers write the client's address there if it is
// empty.
const worker = "eval"

// treeFolder begins the path of an output that isn't one: the local Tree message
// of a folder, on a server that has another function.
const treeFolder = ".eval-trees/"

// maxMessage bounds the ActionResult that we send, in bytes. gRPC servers take
// messages of up to 4 MiB unless told otherwise.
const maxMessage = 3 << 20

var (
	errName     = errors.New("the name is taken")
	errNotOurs  = errors.New("it was not written by eval")
	errTooLarge = fmt.Errorf("it takes more than %d bytes in one message", maxMessage)
)

// entry is what is under a key of a server.
type entry struct {
	key     cas.Digest // the local one
	fn      cas.Func   // of the server's digests
	message []byte     // the ActionResult
	result  cas.Result // in local digests; folders have their roots
	capture cas.Digest // of the canonical result
	signer  ed25519.PublicKey
	doubles doubles
	trees   []treePair // of each of result.Folders
}

// native says whether local digests are the server's.
func (e *entry) native() bool { return e.fn == e.key.Func }

// treePair is a Tree message in both forms, by the server's digests. They are
// the same if the server has our function.
type treePair struct{ local, server cas.Digest }

// doubles are the digests of one blob here and on a server.
type doubles struct {
	server map[cas.Digest]cas.Digest // by the local one
	local  map[cas.Digest]cas.Digest // by the server's
}

func newDoubles() doubles {
	return doubles{map[cas.Digest]cas.Digest{}, map[cas.Digest]cas.Digest{}}
}

// add notes a pair. Two digests for one blob on either side would let a message
// name bytes that nobody has checked.
func (d doubles) add(local, server cas.Digest) error {
	switch {
	case local.Size != server.Size:
		return fmt.Errorf("%v and %v differ in size", local, server)
	case local.Func == server.Func && local != server:
		return fmt.Errorf("%v and %v are not one blob", local, server)
	case local.Size == 0 && (local != local.Func.Sum(nil) || server != server.Func.Sum(nil)):
		return errors.New("the digest of nothing is wrong")
	}
	if was, ok := d.server[local]; ok && was != server {
		return fmt.Errorf("%v is given as %v and as %v", local, was, server)
	}
	if was, ok := d.local[server]; ok && was != local {
		return fmt.Errorf("%v is given as %v and as %v", server, was, local)
	}
	d.server[local], d.local[server] = server, local
	return nil
}

// form is a result on its way to a server.
type form struct {
	key    cas.Digest
	fn     cas.Func
	result cas.Result // folders have their roots
	// double gives the server's digest of a blob.
	double func(local cas.Digest) (cas.Digest, error)
	// tree gives the server's digest of the Tree message in its own digests.
	tree func(local cas.Digest) (cas.Digest, error)
	sign ed25519.PrivateKey // nil: unsigned
}

// encode gives the ActionResult, and the capture digest of the result. What can't
// be one there, or is too large, is an error.
func (f form) encode() (msg []byte, capture cas.Digest, err error) {
	raw, err := f.result.Encode()
	if err != nil {
		return nil, cas.Digest{}, err
	}
	roots, err := encodeRoots(f.result.Folders)
	if err != nil {
		return nil, cas.Digest{}, err
	}
	m, err := f.outer()
	if err != nil {
		return nil, cas.Digest{}, fmt.Errorf("encode result for a server: %w", err)
	}
	aux := []*anypb.Any{{TypeUrl: auxPrefix + auxResult, Value: raw}}
	if len(f.result.Folders) > 0 {
		aux = append(aux, &anypb.Any{TypeUrl: auxPrefix + auxRoots, Value: roots})
	}
	text := statement(f.key, raw, roots)
	sum := f.key.Func.Sum(text).Hash
	aux = append(aux, &anypb.Any{TypeUrl: auxPrefix + auxSum, Value: sum[:]})
	if f.sign != nil {
		aux = append(aux, &anypb.Any{TypeUrl: auxPrefix + auxSignature, Value: signature(f.sign, text)})
	}
	m.ExecutionMetadata = &repb.ExecutedActionMetadata{Worker: worker, AuxiliaryMetadata: aux}
	msg, err = proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err == nil && len(msg) > maxMessage {
		err = errTooLarge
	}
	return msg, f.key.Func.Sum(raw), err
}

// outer gives the message as any client of the server would have it.
func (f form) outer() (*repb.ActionResult, error) {
	m := &repb.ActionResult{ExitCode: f.result.ExitCode}
	var first error
	double := func(d cas.Digest) *repb.Digest {
		if d.IsZero() {
			return nil
		}
		d, err := f.double(d)
		first = cmp.Or(first, err)
		return wireDigest(d)
	}
	native := f.fn == f.key.Func
	path := func(p string) string {
		if !native && strings.HasPrefix(p+"/", treeFolder) {
			first = cmp.Or(first, fmt.Errorf("output %q: %w", p, errName))
		}
		return p
	}
	for _, o := range f.result.Files {
		m.OutputFiles = append(m.OutputFiles, &repb.OutputFile{
			Path: path(o.Path), Digest: double(o.Digest), IsExecutable: o.Executable,
		})
	}
	for _, o := range f.result.Folders {
		tree, err := f.tree(o.Tree)
		if err != nil {
			return nil, err
		}
		m.OutputDirectories = append(m.OutputDirectories, &repb.OutputDirectory{Path: path(o.Path), TreeDigest: wireDigest(tree)})
		if !native {
			m.OutputFiles = append(m.OutputFiles, &repb.OutputFile{Path: treeFolder + o.Path, Digest: double(o.Tree)})
		}
	}
	for _, l := range f.result.Links {
		m.OutputSymlinks = append(m.OutputSymlinks, &repb.OutputSymlink{Path: path(l.Path), Target: l.Target})
	}
	m.StdoutDigest, m.StderrDigest = double(f.result.Stdout), double(f.result.Stderr)
	return m, first
}

func wireDigest(d cas.Digest) *repb.Digest {
	return &repb.Digest{Hash: d.Hex(), SizeBytes: d.Size}
}

// encodeRoots uses the one canonical form of paths and digests that there is.
func encodeRoots(folders []cas.OutputFolder) ([]byte, error) {
	var r cas.Result
	for _, o := range folders {
		if o.Root.IsZero() {
			return nil, fmt.Errorf("encode result for a server: output %q: its root is not known", o.Path)
		}
		r.Folders = append(r.Folders, cas.OutputFolder{Path: o.Path, Tree: o.Root})
	}
	return r.Encode()
}

// decode reads what is under the local key on a server that digests by fn.
// errNotOurs says that it is no such message; other errors, that it is one and
// can't be right. Nothing that it says of blobs is believed: they are hashed
// when they come.
func decode(fn cas.Func, key cas.Digest, msg []byte) (*entry, error) {
	outer, err := cas.DecodeResult(fn, msg)
	if err != nil {
		return nil, err
	}
	raw, ok := outer.Aux[auxResult]
	if !ok {
		return nil, errNotOurs
	}
	r, err := decodeCanonical(key.Func, raw)
	if err != nil {
		return nil, fmt.Errorf("the local result: %w", err)
	}
	e := &entry{key: key, fn: fn, message: msg, result: r, capture: key.Func.Sum(raw), doubles: newDoubles()}
	text := statement(key, raw, outer.Aux[auxRoots])
	if sum := key.Func.Sum(text).Hash; !bytes.Equal(sum[:], outer.Aux[auxSum]) {
		return nil, errors.New("its sum is wrong, or it is of another key")
	}
	if sig, ok := outer.Aux[auxSignature]; ok {
		if e.signer, err = checkSignature(sig, text); err != nil {
			return nil, err
		}
	}
	if err := e.match(outer); err != nil {
		return nil, err
	}
	if err := e.setRoots(outer.Aux[auxRoots]); err != nil {
		return nil, fmt.Errorf("the roots of folders: %w", err)
	}
	return e, nil
}

// decodeCanonical refuses what Encode would not have written: the digest of a
// capture is that of its bytes.
func decodeCanonical(fn cas.Func, b []byte) (cas.Result, error) {
	r, err := cas.DecodeResult(fn, b)
	if err != nil {
		return cas.Result{}, err
	}
	again, err := r.Encode()
	if err == nil && !bytes.Equal(b, again) {
		err = errors.New("not in canonical form")
	}
	return r, err
}

// match checks that the outer message says what the local result does, and notes
// which blobs are the same. Lists are sorted on both sides.
func (e *entry) match(outer cas.Result) error {
	files, trees := outer.Files, map[string]cas.Digest{}
	if !e.native() {
		files = nil
		for _, o := range outer.Files {
			if path, ok := strings.CutPrefix(o.Path, treeFolder); ok {
				trees[path] = o.Digest
			} else {
				files = append(files, o)
			}
		}
	}
	r := e.result
	if len(files) != len(r.Files) || len(outer.Folders) != len(r.Folders) || len(outer.Links) != len(r.Links) {
		return errors.New("the numbers of outputs differ")
	}
	if outer.ExitCode != r.ExitCode {
		return errors.New("the exit codes differ")
	}
	for i, o := range r.Files {
		if files[i].Path != o.Path || files[i].Executable != o.Executable {
			return fmt.Errorf("output %q is %q", o.Path, files[i].Path)
		}
		if err := e.doubles.add(o.Digest, files[i].Digest); err != nil {
			return fmt.Errorf("output %q: %w", o.Path, err)
		}
	}
	for i, o := range r.Links {
		if outer.Links[i] != o {
			return fmt.Errorf("link %q differs", o.Path)
		}
	}
	for i, o := range r.Folders {
		if outer.Folders[i].Path != o.Path {
			return fmt.Errorf("folder %q is %q", o.Path, outer.Folders[i].Path)
		}
		pair, err := e.matchTree(o, outer.Folders[i].Tree, trees)
		if err != nil {
			return fmt.Errorf("folder %q: %w", o.Path, err)
		}
		e.trees = append(e.trees, pair)
		delete(trees, o.Path)
	}
	if len(trees) > 0 {
		return errors.New("it has trees of no folder")
	}
	for _, d := range [2][2]cas.Digest{{r.Stdout, outer.Stdout}, {r.Stderr, outer.Stderr}} {
		if d[0].IsZero() != d[1].IsZero() {
			return errors.New("standard output or error is there on one side only")
		}
		if d[0].IsZero() {
			continue
		}
		if err := e.doubles.add(d[0], d[1]); err != nil {
			return fmt.Errorf("standard output or error: %w", err)
		}
	}
	return nil
}

func (e *entry) matchTree(o cas.OutputFolder, server cas.Digest, trees map[string]cas.Digest) (treePair, error) {
	local := server
	if !e.native() {
		var ok bool
		if local, ok = trees[o.Path]; !ok {
			return treePair{}, errors.New("its tree in local digests is missing")
		}
	}
	return treePair{local, server}, e.doubles.add(o.Tree, local)
}

func (e *entry) setRoots(b []byte) error {
	roots, err := decodeCanonical(e.key.Func, b)
	if err != nil {
		return err
	}
	if len(roots.Folders) != len(e.result.Folders) {
		return errors.New("their number differs")
	}
	for i, o := range roots.Folders {
		if o.Path != e.result.Folders[i].Path {
			return fmt.Errorf("%q is %q", e.result.Folders[i].Path, o.Path)
		}
		e.result.Folders[i].Root = o.Tree
	}
	return nil
}

// blobs gives the local digests of what is to be fetched beside the trees and
// what they name.
func (e *entry) blobs() []cas.Digest {
	var out []cas.Digest
	for _, o := range e.result.Files {
		if !o.Inlined() {
			out = append(out, o.Digest)
		}
	}
	for _, d := range [2]cas.Digest{e.result.Stdout, e.result.Stderr} {
		if !d.IsZero() {
			out = append(out, d)
		}
	}
	return out
}
