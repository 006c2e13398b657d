package stats

import "math"

// NeedsEquivalent returns how many reps an arm it takes to conclude, with this
// power, that two arms of one true rate differ by less than margin: by two
// one-sided tests at alpha, in the normal approximation
//
//	n = 2·rate·(1−rate)·(z(1−alpha) + z(1−(1−power)/2))² / margin²
//
// (Chow, Shao, Wang and Lokhnygina, Sample Size Calculations in Clinical
// Research, chapter 4), and no fewer than with which the 1−2·alpha interval of
// [NewcombeDifference] lies inside ±margin when both arms come out at the rate.
// Near 0 and 1 the second is the larger: 11 reps for 0/n v 0/n at .2 and .05.
//
// It returns (0, false) if most isn't enough, or for a rate outside [0, 1],
// margin, power or alpha outside (0, 1), alpha from a half.
func NeedsEquivalent(rate, margin, power, alpha float64, most int) (n int, ok bool) {
	if !(rate >= 0 && rate <= 1 && margin > 0 && margin < 1 && power > 0 && power < 1 && alpha > 0 && alpha < 0.5) || most < 1 {
		return 0, false
	}
	z := normalQuantile(1-2*alpha) + normalQuantile(power)
	need := math.Ceil(float64(2*rate*(1-rate)*float64(z*z)) / float64(margin*margin))
	if need > float64(most) {
		return 0, false
	}
	for n = max(1, int(need)); n <= most; n++ {
		k := int(math.Round(float64(rate * float64(n))))
		_, lo, hi, err := NewcombeDifference(k, n, k, n, 1-2*alpha)
		if err == nil && -margin < lo && hi < margin {
			return n, true
		}
	}
	return 0, false
}
