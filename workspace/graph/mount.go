package graph

import (
	"strings"

	"github.com/evalbuild/eval/cas"
)

// A Mount is one thing in the root of a sealed process: a file or folder of
// this machine that is bound there read-only, or a symbolic link.
type Mount struct {
	Path       string     // absolute and clean, inside: /in/pkg/a.txt, /usr/bin/dash
	Source     string     // absolute path on this machine; "" for a link; never in a key
	Digest     cas.Digest // of the file, or the root digest of Tree
	Executable bool
	Tree       *cas.Tree // of a folder, else nil
	Link       string    // target of a symbolic link, else ""
}

// ReservedPath gives the folder of a sealed root that the seal keeps to itself
// and that an absolute, clean path is or lies in, or "". No file of this
// machine can be inside at such a path; inputs are below /in.
func ReservedPath(p string) string {
	if p == "/" {
		return "/"
	}
	top, _, _ := strings.Cut(strings.TrimPrefix(p, "/"), "/")
	switch top = "/" + top; top {
	case "/in", "/scratch", "/proc", "/dev", "/sys": // what a process sees
	case "/" + StdinName, "/" + ServerDir[:len(ServerDir)-1]: // what a key has of it
	case "/old", "/.seal", "/.probe": // how a seal is made, and found out about
	default:
		return ""
	}
	return top
}
