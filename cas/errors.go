package cas

import "fmt"

// Reason says why a blob can't be had.
type Reason uint8

// The reasons.
const (
	Missing Reason = iota + 1 // no file of this name
	Damaged                   // a file of this name with other content
)

// String gives "missing" or "damaged".
func (r Reason) String() string {
	switch r {
	case Missing:
		return "missing"
	case Damaged:
		return "damaged"
	}
	return fmt.Sprintf("reason %d", uint8(r))
}

// BlobError says that a store doesn't have a blob. Other errors of the store,
// such as a folder that may not be read, are not BlobErrors.
type BlobError struct {
	Digest Digest
	Reason Reason
	Moved  string // where the damaged file is now; "" if it could not be moved
}

// Error gives "blob DIGEST: reason".
func (e *BlobError) Error() string {
	s := fmt.Sprintf("blob %v: %v", e.Digest, e.Reason)
	if e.Moved != "" {
		s += ", moved to " + e.Moved
	}
	return s
}

// MissError says that there is no usable result for a key and that the action
// may run again.
type MissError struct {
	Key    Digest
	Reason string // one line, for the user: "no result", "out.txt is missing"
	Err    error  // the cause, a *BlobError if a blob is gone; nil if there is just no result
}

// Error gives "look up KEY: reason".
func (e *MissError) Error() string { return fmt.Sprintf("look up %v: %s", e.Key, e.Reason) }

func (e *MissError) Unwrap() error { return e.Err }

// IncompleteError says that a capture was recorded for a key and can't be given
// back whole. It is evidence, perhaps paid for: the caller must not run the
// action again unless a person says so (after Delete).
type IncompleteError struct {
	Key    Digest
	Reason string // as in MissError
	Err    error  // the cause, a *BlobError if a blob is gone
}

// Error gives "look up capture KEY: reason".
func (e *IncompleteError) Error() string {
	return fmt.Sprintf("look up capture %v: %s", e.Key, e.Reason)
}

func (e *IncompleteError) Unwrap() error { return e.Err }
