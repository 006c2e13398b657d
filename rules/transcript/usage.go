package transcript

// plus adds two counts; one that is not reported adds nothing.
func plus(a, b *int64) *int64 {
	if a == nil {
		return b
	}
	if b == nil {
		return a
	}
	sum := min(*a+*b, 1<<62) // both are at most 2^62: no overflow
	return &sum
}

// minus takes a part from a whole that includes it. A part greater than its whole has another meaning than the
// format's: the difference is not known.
func minus(whole, part *int64) *int64 {
	if whole == nil || part == nil {
		return whole
	}
	rest := *whole - *part
	if rest < 0 {
		return nil
	}
	return &rest
}

func (u *Usage) add(v Usage) {
	u.Input = plus(u.Input, v.Input)
	u.CachedInput = plus(u.CachedInput, v.CachedInput)
	u.CacheWrite = plus(u.CacheWrite, v.CacheWrite)
	u.Output = plus(u.Output, v.Output)
	u.Reasoning = plus(u.Reasoning, v.Reasoning)
}
