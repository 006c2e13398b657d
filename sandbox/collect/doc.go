// Package collect takes the declared outputs of a process that is dead.
//
//	dirfd ──component by component, no link, no mount──▶ declared output
//	                                                        │ fstatat: type, mode, size, before any open
//	          Missing ◀── not there                         ▼
//	          Rejected ◀── not an honest file or folder   put ──▶ Files
//
// Vocabulary. An output is a file or folder that the process was to make below
// the folder of dirfd. An entry is a name inside of an output folder. A
// rejection is an output or entry that was there and was not taken, with the
// reason; a missing output is none. What was not declared is not looked at.
//
// Invariants. Nothing outside of the folder is opened, and nothing that could
// block or act when opened: a FIFO, socket or device is known by fstatat first.
// No byte of a file is read before its apparent size fits. Nothing is changed,
// no mode either. The result depends on the files alone: it is sorted, and it
// is the same for root and for an ordinary user, since modes are judged by
// their bits and not by what the caller may do.
//
// What a file keeps is its bytes, its path and whether any x bit is set. Times,
// owners, xattrs, ACLs, set-id bits and the number of links are left behind; a
// file with two names is two files. An entry that is rejected is left out of
// its folder and the rest is kept: evidence doesn't vanish, and whoever uses it
// sees Rejected.
//
// Not here: ending the process tree, which the caller has done (a file that
// changes while it is read is rejected, and no more is promised); Unicode
// normalisation: é in one and in two code points are two names here and one on
// a Mac, where the second write wins, and so are ß and ss.
package collect

import (
	"io"
	"strings"

	"github.com/evalbuild/eval/cas"
)

// An Output is a file or folder that the process was to make.
type Output struct {
	Path   string // relative, slash-separated, clean
	Folder bool
}

// Limits bound what is taken in one call. Bytes has no default: it is part of
// a policy.
type Limits struct {
	Bytes   int64 // apparent sizes summed over all files; 0: empty files only
	Entries int   // entries of all output folders; 0: DefaultEntries
	Depth   int   // levels of entries below an output folder, a descriptor each; 0: DefaultDepth
}

// The limits that apply where none is given.
const (
	DefaultEntries = 100_000
	DefaultDepth   = 64
)

const (
	// maxPath is PATH_MAX of macOS, the smallest of the systems that may
	// have to write the path again.
	maxPath = 1024
	maxName = 255

	// maxRejected entries of one folder are named; one more and the folder is
	// rejected, so that a process can't make a record of 100,000 rejections.
	maxRejected = 100
)

// A File is one file that was taken, or a link or a folder with nothing in it
// from an output folder.
type File struct {
	Path       string // relative to the folder collected from
	Executable bool
	Digest     cas.Digest // of a file
	Link       string     // target of a symbolic link: relative, canonical, inside of the output folder
	Folder     bool       // a folder from which nothing was taken
}

// A Rejection is an output or entry that was not taken. Path is as the process
// wrote it: escape before printing.
type Rejection struct {
	Path   string `json:"path"`
	Reason string `json:"reason"` // a code, ": " and words
}

// Code gives the stable part of the reason, one of the constants below.
func (r Rejection) Code() string {
	code, _, _ := strings.Cut(r.Reason, ":")
	return code
}

// The codes of rejections.
const (
	Name       = "name"       // not a clean path of UTF-8 without control characters
	Long       = "long"       // a path of more than 1024 bytes, or such a link
	Type       = "type"       // FIFO, socket, device; a folder for a file or the reverse
	Link       = "link"       // a symbolic link is, or leads to, the declared output
	Escapes    = "escapes"    // a link that leads out of its output folder
	Loop       = "loop"       // a link to a folder that it is in, or to itself
	Mount      = "mount"      // something is mounted there
	Unreadable = "unreadable" // its owner may not read it
	Collision  = "collision"  // names that differ in case alone
	Bytes      = "bytes"      // over Limits.Bytes
	Entries    = "entries"    // over Limits.Entries: nothing of the output is taken
	Depth      = "depth"      // over Limits.Depth
	Rejections = "rejections" // over 100 rejected entries: nothing of the output is taken
	Changed    = "changed"    // while it was read
)

// A Result is what Collect found, each list sorted by path.
type Result struct {
	Files    []File
	Missing  []string // declared outputs that are not there
	Rejected []Rejection
}

// Put stores all that the reader yields: cas.Store.PutReader with a class. It
// must return an error that the reader returns.
type Put func(io.Reader) (cas.Digest, error)
