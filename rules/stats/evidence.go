package stats

import (
	"math"
	"sort"
)

// Holm returns the p-values adjusted for being read together (Holm 1979), in
// the order of ps: the i-th smallest of m times m-i+1, never below one before
// it, at most 1. A p that isn't in [0, 1], NaN included, counts as 1, as an
// unmeasured member of a family must.
func Holm(ps []float64) []float64 {
	order := make([]int, len(ps))
	out := make([]float64, len(ps))
	for i, p := range ps {
		order[i] = i
		out[i] = 1
		if p >= 0 && p <= 1 {
			out[i] = p
		}
	}
	sort.SliceStable(order, func(i, j int) bool { return out[order[i]] < out[order[j]] })
	floor := 0.0
	for rank, i := range order {
		floor = min(1, max(floor, float64(len(ps)-rank)*out[i]))
		out[i] = floor
	}
	return out
}

// EValue returns the evidence of successes in n trials against a rate of one
// half: the likelihood under a uniform mixture of rates over the likelihood
// at one half (Robbins 1970; as an e-value, Vovk and Wang 2021),
//
//	∫ p^s (1-p)^(n-s) dp / 2^-n = 2^n / ((n+1) C(n, s)).
//
// Its mean is 1 if the rate is one half, at any stopping time, so that it may
// be looked at after each trial. n = 0 gives 1. A value beyond float64 is
// math.MaxFloat64. Impossible counts give 0, which no data can: no evidence.
func EValue(successes, n int) float64 {
	if successes < 0 || n < 0 || successes > n || n > maxCount {
		return 0
	}
	// C(5000, 2500) overflows: the power of two is carried apart.
	k := min(successes, n-successes)
	fraction, exponent := 1/float64(n+1), 0
	for i := 1; i <= k; i++ {
		f, e := math.Frexp(fraction * (float64(i) / float64(n-k+i)))
		fraction, exponent = f, exponent+e
	}
	return math.Min(math.MaxFloat64, math.Ldexp(fraction, exponent+n))
}

// Round returns x rounded to 6 decimal places, half away from zero, never -0.
// It is how numbers get into bytes that are compared.
//
// Many exact answers are ties: 1/128 is 0.0078125. What comes out of a sum as
// 0.00781249999999999 on one machine and 0.0078125 on another must round the
// same way, so anything within 1e-11 below a tie counts as one. Numbers of
// 2^53/1e6 and more have no 6th decimal and, like NaN and infinities (which
// this package doesn't make), come back as they are.
func Round(x float64) float64 {
	const places, slack = 1e6, 1e-5
	if !(math.Abs(x) < (1<<53)/places) {
		return x
	}
	units := math.Floor(float64(math.Abs(x)*places) + (0.5 + slack))
	if units == 0 {
		return 0
	}
	return math.Copysign(units/places, x)
}
