package remote

import (
	"time"

	"github.com/evalbuild/eval/cas"
)

// standTimeout is what a stand-in Action says it may take: servers refuse, or
// fill in, an Action that says nothing.
const standTimeout = 10 * time.Minute

// A standIn is a REAPI Action with all that it names. Its digest is a key on a
// server whose keys must be digests of Actions, for what ours can't be there.
type standIn struct {
	key   cas.Digest
	blobs []item
}

// standFor gives the Action whose salt is text, digested by fn. It runs nothing:
// the command `eval` on the empty tree.
func standFor(fn cas.Func, text string) standIn {
	command, err := cas.Command{Arguments: []string{"eval"}}.Encode()
	if err != nil {
		panic("remote: " + err.Error()) // it is always the same
	}
	action := cas.Action{Command: fn.Sum(command), InputRoot: fn.Sum(nil), Timeout: standTimeout, Salt: []byte(text)}
	msg, err := action.Encode()
	if err != nil {
		panic("remote: " + err.Error())
	}
	s := standIn{key: fn.Sum(msg)}
	for _, b := range [][]byte{nil, command, msg} { // an Action after what it names
		s.blobs = append(s.blobs, item{server: fn.Sum(b), data: b})
	}
	return s
}

// byKey gives the key of a result on a server that digests by fn: our own if it
// has our function, and then there is nothing to upload that the caller doesn't
// have; else that of a stand-in. Nothing but the local key is in it, since locks
// name local keys and a clone that lacks the bytes must find what was paid for.
func byKey(fn cas.Func, key cas.Digest) standIn {
	if fn == key.Func {
		return standIn{key: key}
	}
	return standFor(fn, "eval key 1\n"+key.String())
}

// byCapture gives the key of one capture of a key. What is under it never
// changes, so no race can replace it.
func byCapture(fn cas.Func, key, capture cas.Digest) standIn {
	return standFor(fn, "eval capture 1\n"+key.String()+"\n"+capture.String())
}
