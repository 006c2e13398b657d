package stats

import (
	"fmt"
	"math"
	"slices"
)

// Mean returns the arithmetic mean. It is an error if xs is empty or holds a
// number that isn't finite. A second pass corrects the rounding of the
// first, so that the mean of three times 0.1 is 0.1.
func Mean(xs []float64) (float64, error) {
	if err := checkSample("mean", xs, 1); err != nil {
		return 0, err
	}
	return mean("mean", xs)
}

// Median returns the middle value, or the mean of the two middle ones. It is
// an error if xs is empty or holds a number that isn't finite.
func Median(xs []float64) (float64, error) {
	if err := checkSample("median", xs, 1); err != nil {
		return 0, err
	}
	return quantile(xs, 0.5), nil
}

// Quantile returns the value below which the share q of the sample lies, by
// definition 7 of Hyndman and Fan (1996): linear between order statistics,
// the smallest at q = 0 and the largest at q = 1, the default of R and NumPy.
// It is an error if xs is empty, holds a number that isn't finite, or q is
// outside [0, 1].
func Quantile(xs []float64, q float64) (float64, error) {
	if err := checkSample("quantile", xs, 1); err != nil {
		return 0, err
	}
	if !(q >= 0 && q <= 1) {
		return 0, fmt.Errorf("quantile %v: not between 0 and 1", q)
	}
	return quantile(xs, q), nil
}

// StdDev returns the sample standard deviation, with n - 1. It is an error if
// xs has fewer than two numbers, holds one that isn't finite, or the squares
// overflow.
func StdDev(xs []float64) (float64, error) {
	if err := checkSample("standard deviation", xs, 2); err != nil {
		return 0, err
	}
	centre, err := mean("standard deviation", xs)
	if err != nil {
		return 0, err
	}
	squares := 0.0
	for _, x := range xs {
		squares += float64((x - centre) * (x - centre))
	}
	if math.IsInf(squares, 0) {
		return 0, fmt.Errorf("standard deviation of %d numbers: too large to square", len(xs))
	}
	return math.Sqrt(squares / float64(len(xs)-1)), nil
}

// mean adds twice: the second pass adds what rounding left over.
func mean(op string, xs []float64) (float64, error) {
	size := float64(len(xs))
	sum, left := 0.0, 0.0
	for _, x := range xs {
		sum += x
	}
	if math.IsInf(sum, 0) || math.IsNaN(sum) {
		return 0, fmt.Errorf("%s of %d numbers: too large to add", op, len(xs))
	}
	first := sum / size
	for _, x := range xs {
		left += x - first
	}
	if math.IsInf(left, 0) || math.IsNaN(left) {
		return 0, fmt.Errorf("%s of %d numbers: too large to add", op, len(xs))
	}
	return first + left/size, nil
}

func quantile(xs []float64, q float64) float64 {
	sorted := slices.Sorted(slices.Values(xs))
	at := q * float64(len(sorted)-1)
	i := int(at)
	if i+1 == len(sorted) {
		return sorted[i]
	}
	// Weighted, not sorted[i] + share·step: a step between opposite extremes
	// overflows.
	share := float64(at) - float64(i)
	if share == 0 || sorted[i] == sorted[i+1] {
		return sorted[i]
	}
	return float64(sorted[i]*(1-share)) + float64(sorted[i+1]*share)
}

func checkSample(op string, xs []float64, least int) error {
	if len(xs) < least {
		return fmt.Errorf("%s of %d numbers: needs at least %d", op, len(xs), least)
	}
	for i, x := range xs {
		if math.IsNaN(x) || math.IsInf(x, 0) {
			return fmt.Errorf("%s of %d numbers: number %d is %v", op, len(xs), i, x)
		}
	}
	return nil
}
