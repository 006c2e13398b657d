package cas

// SurplusKey gives the key under which a store keeps a capture of key that is not
// the one it has under key itself: two runs drew, and both are evidence.
func SurplusKey(key, capture Digest) Digest {
	return key.Func.Sum([]byte("eval surplus 1\n" + key.String() + "\n" + capture.String()))
}

// LookupCapture is Lookup for one capture of key, by the digest of its encoding:
// it may be kept as surplus. If the store doesn't have it, the result and error
// are those of key itself, so that a caller can say what is there instead; zero
// asks for that at once.
func (s *Store) LookupCapture(key, capture Digest) (r Result, surplus bool, err error) {
	r, err = s.Lookup(Capture, key)
	if capture.IsZero() || err == nil && r.is(capture) {
		return r, false, err
	}
	if other, oerr := s.Lookup(Capture, SurplusKey(key, capture)); oerr == nil && other.is(capture) {
		return other, true, nil
	}
	return r, false, err
}

// is says whether the digest is that of the result's encoding.
func (r Result) is(d Digest) bool {
	b, err := r.Encode()
	return err == nil && d.Func.Sum(b) == d
}
