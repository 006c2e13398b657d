package stats

import (
	"fmt"
	"math"
)

// MaxBoschloo is the largest arm that [Boschloo] takes: the time grows with
// the square of it, to a fraction of a second here.
const MaxBoschloo = 5000

// Boschloo returns the two-sided unconditional exact p-value with Fisher's
// two-sided p as the statistic (Boschloo 1970): the largest probability, over
// a rate shared by both arms, of a table whose Fisher p is at most the
// observed one. Only the arms' sizes are held fixed, so it is never larger
// than Fisher's p. Rows are arms; an empty arm gives 1. A negative count and
// an arm above [MaxBoschloo] are errors.
//
// (scipy's boschloo_exact doubles a one-sided p instead, and takes columns as
// arms; on unequal arms it differs.)
func Boschloo(a, b, c, d int) (float64, error) {
	if err := checkTable("boschloo", a, b, c, d); err != nil {
		return 0, err
	}
	if max(a+b, c+d) > MaxBoschloo {
		return 0, fmt.Errorf("boschloo [[%d %d] [%d %d]]: more than %d reps an arm", a, b, c, d, MaxBoschloo)
	}
	t := canonical(a, b, c, d)
	bound := fisher(t)
	if bound >= 1 {
		return 1, nil
	}
	p := newNuisance(t.a+t.b, t.c+t.d, bound).supremum()
	return min(bound, max(SmallestP, p)), nil
}

// nuisance is the rejection probability as a function of the shared rate.
//
// Given a rate, a table's probability is that of its margin, binomial in both
// arms' reps together, times its probability given the margin, which the rate
// doesn't touch. So the sum over all tables in the region collapses to one
// over margins, weighted by the region's conditional level: O(n) per rate, where
// the double sum is O(n²).
type nuisance struct {
	level    []float64 // by margin: conditional probability of the region
	up, down []float64 // ratio of a margin's binomial weight to the next, at even odds
}

func newNuisance(n1, n2 int, bound float64) *nuisance {
	n := n1 + n2
	f := &nuisance{make([]float64, n+1), make([]float64, n+1), make([]float64, n+1)}
	buf := make([]float64, min(n1, n2)+1)
	for m := range n + 1 {
		f.level[m] = conditionalLevel(hypergeometric(n1, n2, m, buf).w, bound)
		f.up[m] = float64(n-m) / float64(m+1)
		f.down[m] = float64(m) / float64(n-m+1)
	}
	return f
}

// conditionalLevel returns the largest two-sided p at most bound that the
// weights of one margin's tables can give. Weights rise to a mode and fall:
// tables join from both ends, least likely first, equally likely ones at once.
func conditionalLevel(w []float64, bound float64) float64 {
	total := 0.0
	for _, t := range w {
		total += t
	}
	ceiling := float64(bound*tieFactor) * total
	level := 0.0
	for i, j := 0, len(w)-1; i <= j; {
		limit := min(w[i], w[j]) * tieFactor
		sum := level
		for ; i <= j && w[i] <= limit; i++ {
			sum += w[i]
		}
		for ; j >= i && w[j] <= limit; j-- {
			sum += w[j]
		}
		if sum > ceiling {
			break
		}
		level = sum
	}
	return level / total
}

// at returns the rejection probability at a rate of s²/(s² + (1-s)²). In s,
// a binomial's width is about the same everywhere, as on the arcsine scale,
// but without a sine: an even grid in s sees narrow bumps near 0 and 1.
func (f *nuisance) at(s float64) float64 {
	n := len(f.level) - 1
	odds := float64(s / (1 - s) * (s / (1 - s)))
	mode := min(n, int(float64(n+1)*odds/(1+odds)))
	in, all := f.level[mode], 1.0
	t := 1.0
	for m := mode; m < n; m++ {
		t *= f.up[m] * odds
		if t < negligible {
			break
		}
		in += float64(t * f.level[m+1])
		all += float64(t)
	}
	t = 1.0
	for m := mode; m > 0; m-- {
		t *= f.down[m] / odds
		if t < negligible {
			break
		}
		in += float64(t * f.level[m-1])
		all += float64(t)
	}
	return in / all
}

// supremum searches a grid for local maxima and refines all that come within
// a twentieth of the best. Steps are a tenth of a binomial's width, which
// smooths the function, so that a maximum lies under 1 % above its grid point.
func (f *nuisance) supremum() float64 {
	steps := 64 + int(32*math.Sqrt(float64(len(f.level))))
	grid := make([]float64, steps+1)
	best := 0.0
	for i := 1; i < steps; i++ {
		grid[i] = f.at(float64(i) / float64(steps))
		best = max(best, grid[i])
	}
	threshold := 0.95 * best
	for i := 1; i < steps; i++ {
		if grid[i] >= threshold && grid[i] >= grid[i-1] && grid[i] >= grid[i+1] {
			peak := f.refine(float64(i-1)/float64(steps), float64(i+1)/float64(steps))
			best = max(best, peak)
		}
	}
	return best
}

// refine returns the maximum between lo and hi by golden section (Kiefer
// 1953). The function is flat at its maximum: a place good to 1e-8 gives a value
// good to 1e-15.
func (f *nuisance) refine(lo, hi float64) float64 {
	const golden = 0.6180339887498949
	x := hi - float64(golden*(hi-lo))
	y := lo + float64(golden*(hi-lo))
	fx, fy := f.at(x), f.at(y)
	best := max(fx, fy)
	for hi-lo > 1e-9 {
		if fx > fy {
			hi, y, fy = y, x, fx
			x = hi - float64(golden*(hi-lo))
			fx = f.at(x)
		} else {
			lo, x, fx = x, y, fy
			y = lo + float64(golden*(hi-lo))
			fy = f.at(y)
		}
		best = max(best, fx, fy)
	}
	return best
}
