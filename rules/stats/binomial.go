package stats

// negligible is the weight, relative to the mode, at which a binomial walk
// stops. It lies far below any tail that a confidence level of float64
// precision asks for (1e-16), at about 12 standard deviations.
const negligible = 1e-30

// maxCount bounds counts, so that sums of two arms and products of two counts
// stay exact where they must and a mistyped count can't exhaust memory.
const maxCount = 10_000_000

// window is a distribution over lo, lo+1, …; what lies outside is negligible.
type window struct {
	lo int
	w  []float64
}

// binomial returns the probabilities of Bin(n, p) that aren't negligible.
// p must be in [0, 1] and n ≥ 0.
func binomial(n int, p float64) window {
	switch {
	case p <= 0:
		return window{0, []float64{1}}
	case p >= 1:
		return window{n, []float64{1}}
	}
	mode := min(n, int(float64(n+1)*p))
	odds := p / (1 - p)

	var below []float64
	t := 1.0
	for x := mode; x > 0; x-- {
		t *= float64(x) / (float64(n-x+1) * odds)
		if t < negligible {
			break
		}
		below = append(below, t)
	}
	out := window{mode - len(below), make([]float64, len(below), 2*len(below)+8)}
	for i, t := range below {
		out.w[len(below)-1-i] = t
	}
	t = 1.0
	for x := mode; ; x++ {
		out.w = append(out.w, t)
		if x == n {
			break
		}
		t *= float64(n-x) * odds / float64(x+1)
		if t < negligible {
			break
		}
	}
	total := 0.0
	for _, t := range out.w {
		total += t
	}
	for i := range out.w {
		out.w[i] /= total
	}
	return out
}

func (d window) hi() int { return d.lo + len(d.w) - 1 }

// atMost returns P(X ≤ k), summed from the smallest value up.
func (d window) atMost(k int) float64 {
	sum := 0.0
	for i := 0; i < len(d.w) && d.lo+i <= k; i++ {
		sum += d.w[i]
	}
	return sum
}

// atLeast returns P(X ≥ k), summed from the largest value down.
func (d window) atLeast(k int) float64 {
	sum := 0.0
	for i := len(d.w) - 1; i >= 0 && d.lo+i >= k; i-- {
		sum += d.w[i]
	}
	return sum
}

// cumulative returns P(X ≤ lo+i-1) at index i, so that index 0 is zero.
func (d window) cumulative() []float64 {
	out := make([]float64, len(d.w)+1)
	for i, t := range d.w {
		out[i+1] = out[i] + t
	}
	return out
}

// ProbGreater returns P(X1 > X2) for two independent Bin(n, p): how often the
// observed direction reads "more" though nothing differs. It is half of what
// ties leave. For p outside [0, 1] or n < 1 it returns 0: no rep, no direction.
func ProbGreater(p float64, n int) float64 {
	if !(p >= 0 && p <= 1) || n < 1 || n > maxCount {
		return 0
	}
	ties := 0.0
	for _, t := range binomial(n, p).w {
		ties += float64(t * t)
	}
	return max(0, (1-ties)/2)
}
