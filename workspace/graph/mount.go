package graph

import "github.com/evalbuild/eval/cas"

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
