//go:build !linux

package remotetest

import "errors"

// waitStopped does not wait here: what was being answered may still come.
func waitStopped(int) error { return nil }

// SetFull needs Linux.
func (b *BazelRemote) SetFull(bool) error { return errors.ErrUnsupported }
