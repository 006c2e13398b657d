package stats

import "fmt"

const (
	// SmallestP is the smallest p-value reported; a smaller one is rounded up
	// to it. 5,000 against 0 of 5,000 has p = 1e-3008, which no float64 holds.
	SmallestP = 1e-290

	// vanishing is the weight, relative to the mode, at which a walk over
	// tables stops. Ten digits below SmallestP, so that what is left out
	// can't show in a p that is reported, and above the subnormals, which
	// are slow.
	vanishing = 1e-300

	// tieFactor makes two probabilities equal that differ by rounding only:
	// the tolerance of R's fisher.test.
	tieFactor = 1 + 1e-7
)

// Significant reports whether p reaches alpha, p ≤ alpha up to a relative
// 1e-7. Power, needed reps and conclusions must all use it, or they disagree
// where p equals alpha on paper: 3/3 against 0/3 has p = 2/20 = 0.1.
func Significant(p, alpha float64) bool { return p <= float64(alpha*tieFactor) }

// Fisher returns the two-sided p-value of Fisher's exact test (Fisher 1935):
// the probability, given the margins, of all tables no likelier than the
// observed one. Rows are arms; an empty arm gives 1. A negative count is an
// error.
func Fisher(a, b, c, d int) (float64, error) {
	if err := checkTable("fisher", a, b, c, d); err != nil {
		return 0, err
	}
	return fisher(canonical(a, b, c, d)), nil
}

func fisher(t table) float64 {
	n1, n2, margin := t.a+t.b, t.c+t.d, t.a+t.c
	given := hypergeometric(n1, n2, margin, nil)
	at := t.a - given.lo
	if at < 0 || at >= len(given.w) {
		return SmallestP
	}
	limit := given.w[at] * tieFactor

	// The weights rise to the mode and fall, so the likelier tables are one
	// stretch. Summing it apart makes p exactly 1 when it is empty.
	left, right, between := 0.0, 0.0, 0.0
	i, j := 0, len(given.w)-1
	for ; i <= j && given.w[i] <= limit; i++ {
		left += given.w[i]
	}
	for ; j >= i && given.w[j] <= limit; j-- {
		right += given.w[j]
	}
	for _, w := range given.w[i : j+1] {
		between += w
	}
	tails := left + right
	return max(SmallestP, tails/(tails+between))
}

// SmallestFisherP returns the smallest two-sided Fisher p that n reps an arm
// can give, that of n/n against 0/n: 2/C(2n, n). Three reps give 0.1, so they
// can never differ at 0.05. For n < 2 it is 1.
func SmallestFisherP(n int) float64 {
	p := 2.0
	for i := 1; i <= n && p > vanishing; i++ {
		p *= float64(i) / float64(n+i)
	}
	return min(1, max(SmallestP, p))
}

// table is a two-by-two table; rows are arms, columns present and absent.
type table struct{ a, b, c, d int }

// canonical returns the smallest of the four tables that swapping arms and
// swapping outcomes makes. They share every two-sided p; computing it from one
// of them makes the symmetry exact instead of good to 1e-15.
func canonical(a, b, c, d int) table {
	best := table{a, b, c, d}
	for _, t := range []table{{c, d, a, b}, {b, a, d, c}, {d, c, b, a}} {
		if t.less(best) {
			best = t
		}
	}
	return best
}

func (t table) less(u table) bool {
	switch {
	case t.a != u.a:
		return t.a < u.a
	case t.b != u.b:
		return t.b < u.b
	case t.c != u.c:
		return t.c < u.c
	}
	return t.d < u.d
}

// hypergeometric returns the weights of the tables with the given margin,
// by presents in arm one, relative to the mode (not normalised). It uses buf
// if that is large enough.
func hypergeometric(n1, n2, margin int, buf []float64) window {
	lo, hi := max(0, margin-n2), min(n1, margin)
	if cap(buf) < hi-lo+1 {
		buf = make([]float64, hi-lo+1)
	}
	w := buf[:hi-lo+1]
	mode := int(float64(n1+1) * float64(margin+1) / float64(n1+n2+2))
	mode = min(hi, max(lo, mode))

	last, t := mode, 1.0
	w[mode-lo] = t
	for x := mode; x < hi; x++ {
		t *= float64(n1-x) * float64(margin-x) / (float64(x+1) * float64(n2-margin+x+1))
		if t < vanishing {
			break
		}
		last = x + 1
		w[last-lo] = t
	}
	first, t := mode, 1.0
	for x := mode; x > lo; x-- {
		t *= float64(x) * float64(n2-margin+x) / (float64(n1-x+1) * float64(margin-x+1))
		if t < vanishing {
			break
		}
		first = x - 1
		w[first-lo] = t
	}
	return window{first, w[first-lo : last-lo+1]}
}

func checkTable(op string, a, b, c, d int) error {
	if min(a, b, c, d) < 0 {
		return fmt.Errorf("%s [[%d %d] [%d %d]]: negative count", op, a, b, c, d)
	}
	if max(a, b, c, d) > maxCount {
		return fmt.Errorf("%s [[%d %d] [%d %d]]: count above %d", op, a, b, c, d, maxCount)
	}
	return nil
}
