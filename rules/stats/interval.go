package stats

import (
	"fmt"
	"math"
)

// Wilson returns the score interval of k present in n reps (Wilson 1927),
// without continuity correction. The lower end is exactly 0 at k = 0, the
// upper exactly 1 at k = n. It is an error if n < 1, k is not in [0, n] or
// confidence is not in (0, 1).
func Wilson(k, n int, confidence float64) (lo, hi float64, err error) {
	if err := checkProportion("wilson", k, n, confidence); err != nil {
		return 0, 0, err
	}
	lo, hi = wilson(k, n, normalQuantile(confidence))
	return lo, hi, nil
}

func wilson(k, n int, z float64) (lo, hi float64) {
	size := float64(n)
	p := float64(k) / size
	zz := float64(z*z) / size
	centre := (p + float64(zz/2)) / (1 + zz)
	half := float64(z / (1 + zz) * math.Sqrt(float64(p*(1-p))/size+zz/(4*size)))
	// The formula gives 0 and 1 at the ends only up to rounding, and a large
	// z may push an end past the estimate in the last bit.
	lo, hi = max(0, min(p, centre-half)), min(1, max(p, centre+half))
	if k == 0 {
		lo = 0
	}
	if k == n {
		hi = 1
	}
	return lo, hi
}

// ClopperPearson returns the exact interval of k present in n reps (Clopper
// and Pearson 1934): the rates at which k or more, and k or fewer, have
// probability (1 - confidence)/2. The lower end is exactly 0 at k = 0, the
// upper exactly 1 at k = n. Errors are those of [Wilson].
func ClopperPearson(k, n int, confidence float64) (lo, hi float64, err error) {
	if err := checkProportion("clopper-pearson", k, n, confidence); err != nil {
		return 0, 0, err
	}
	estimate, tail := float64(k)/float64(n), (1-confidence)/2
	lo, hi = 0, 1
	if k > 0 {
		lo = bisect(0, estimate, func(p float64) bool { return binomial(n, p).atLeast(k) < tail })
	}
	if k < n {
		hi = bisect(estimate, 1, func(p float64) bool { return binomial(n, p).atMost(k) > tail })
	}
	return lo, hi, nil
}

// bisect returns where below turns from true to false between lo and hi. It
// stops at the last bit: the beta quantile is the faster way to the same
// number, but costs a dependency and half the digits near the ends.
func bisect(lo, hi float64, below func(float64) bool) float64 {
	for {
		mid := (lo + hi) / 2
		if mid <= lo || mid >= hi || hi-lo < 1e-16 {
			return mid
		}
		if below(mid) {
			lo = mid
		} else {
			hi = mid
		}
	}
}

// NewcombeDifference returns k1/n1 - k2/n2 with the hybrid score interval
// (Newcombe 1998, method 10: Wilson's limits of each arm, squared and added,
// no continuity correction). All three are in [-1, 1]. Errors are those of
// [Wilson], for either arm.
func NewcombeDifference(k1, n1, k2, n2 int, confidence float64) (estimate, lo, hi float64, err error) {
	if err := checkProportion("newcombe arm one", k1, n1, confidence); err != nil {
		return 0, 0, 0, err
	}
	if err := checkProportion("newcombe arm two", k2, n2, confidence); err != nil {
		return 0, 0, 0, err
	}
	z := normalQuantile(confidence)
	p1, p2 := float64(k1)/float64(n1), float64(k2)/float64(n2)
	lo1, hi1 := wilson(k1, n1, z)
	lo2, hi2 := wilson(k2, n2, z)
	estimate = p1 - p2
	lo = estimate - hypotenuse(p1-lo1, hi2-p2)
	hi = estimate + hypotenuse(hi1-p1, p2-lo2)
	return estimate, max(-1, lo), min(1, hi), nil
}

func hypotenuse(a, b float64) float64 { return math.Sqrt(float64(a*a) + float64(b*b)) }

func checkProportion(op string, k, n int, confidence float64) error {
	switch {
	case n < 1:
		return fmt.Errorf("%s %d/%d: needs at least one rep", op, k, n)
	case k < 0:
		return fmt.Errorf("%s %d/%d: negative count", op, k, n)
	case k > n:
		return fmt.Errorf("%s %d/%d: more present than reps", op, k, n)
	case n > maxCount:
		return fmt.Errorf("%s %d/%d: more than %d reps", op, k, n, maxCount)
	case !(confidence > 0 && confidence < 1):
		return fmt.Errorf("%s %d/%d: confidence %v is not between 0 and 1", op, k, n, confidence)
	}
	return nil
}

// normalQuantile returns z with P(|Z| ≤ z) = confidence.
func normalQuantile(confidence float64) float64 {
	return float64(math.Sqrt2 * math.Erfinv(confidence)) // rounded here: no fused multiply-add where it is inlined
}
