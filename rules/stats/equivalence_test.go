package stats

import (
	"math"
	"testing"
)

func TestNeedsEquivalent(t *testing.T) {
	for _, row := range loadVectors(t).Equivalent {
		if n, ok := NeedsEquivalent(0.5, row[0], 0.8, 0.05, 2000); !ok || float64(n) != row[1] {
			t.Errorf("margin %v: got %d %v, want %v", row[0], n, ok, row[1])
		}
	}
	if len(loadVectors(t).Equivalent) == 0 {
		t.Error("no vectors")
	}
	for _, c := range []struct {
		rate, margin, power, alpha float64
		most, want                 int
	}{
		{0, 0.2, 0.8, 0.05, 2000, 11},
		{1, 0.2, 0.8, 0.05, 2000, 11},
		{0, 0.2, 0.8, 0.05, 11, 11},
		{0, 0.2, 0.8, 0.05, 10, 0},
		{0.5, 0.2, 0.8, 0.05, 107, 0},
		{0.5, 0.01, 0.8, 0.05, 2000, 0},
		{-0.1, 0.2, 0.8, 0.05, 2000, 0},
		{math.NaN(), 0.2, 0.8, 0.05, 2000, 0},
		{0.5, 0, 0.8, 0.05, 2000, 0},
		{0.5, 0.2, 1, 0.05, 2000, 0},
		{0.5, 0.2, 0.8, 0.5, 2000, 0},
	} {
		if n, ok := NeedsEquivalent(c.rate, c.margin, c.power, c.alpha, c.most); n != c.want || ok != (c.want > 0) {
			t.Errorf("%+v: got %d %v", c, n, ok)
		}
	}
	// More power, a smaller margin or level never need fewer.
	for _, rate := range []float64{0, 0.1, 0.3, 0.5, 0.8} {
		at := func(margin, power, alpha float64) int {
			n, _ := NeedsEquivalent(rate, margin, power, alpha, 1_000_000)
			return n
		}
		base := at(0.2, 0.8, 0.05)
		if at(0.2, 0.9, 0.05) < base || at(0.1, 0.8, 0.05) < base || at(0.2, 0.8, 0.01) < base {
			t.Errorf("rate %v: not monotone", rate)
		}
	}
}
