package stats

import (
	"fmt"
	"math"
	"math/big"
	"testing"
)

// The oracles are the definitions, in exact rationals, without a shortcut.

func choose(n, k int) *big.Int { return new(big.Int).Binomial(int64(n), int64(k)) }

func exactFisher(a, b, c, d int) *big.Rat {
	n1, n2, m := a+b, c+d, a+c
	observed := new(big.Int).Mul(choose(n1, a), choose(n2, c))
	tails, all := new(big.Int), new(big.Int)
	for x := max(0, m-n2); x <= min(n1, m); x++ {
		w := new(big.Int).Mul(choose(n1, x), choose(n2, m-x))
		all.Add(all, w)
		if w.Cmp(observed) <= 0 {
			tails.Add(tails, w)
		}
	}
	return new(big.Rat).SetFrac(tails, all)
}

// fisherTable holds exact p-values by presents of each arm.
func fisherTable(n1, n2 int) [][]*big.Rat {
	out := make([][]*big.Rat, n1+1)
	for x := range out {
		out[x] = make([]*big.Rat, n2+1)
		for y := range out[x] {
			out[x][y] = exactFisher(x, n1-x, y, n2-y)
		}
	}
	return out
}

// directBinomial is P(X = k) for Bin(n, p), for n that a float64 C(n, k) holds.
func directBinomial(k, n int, p float64) float64 {
	c, _ := new(big.Float).SetInt(choose(n, k)).Float64()
	return c * math.Pow(p, float64(k)) * math.Pow(1-p, float64(n-k))
}

// directBoschloo sums the region table by table on a fine even grid.
func directBoschloo(ps [][]*big.Rat, observed *big.Rat) float64 {
	n1, n2 := len(ps)-1, len(ps[0])-1
	inMargin := make([]float64, n1+n2+1)
	for x := range ps {
		for y := range ps[x] {
			if ps[x][y].Cmp(observed) <= 0 {
				ways, _ := new(big.Float).SetInt(new(big.Int).Mul(choose(n1, x), choose(n2, y))).Float64()
				inMargin[x+y] += ways
			}
		}
	}
	best := 0.0
	for i := range 4001 {
		p, sum := float64(i)/4000, 0.0
		for m, ways := range inMargin {
			sum += ways * math.Pow(p, float64(m)) * math.Pow(1-p, float64(n1+n2-m))
		}
		best = max(best, sum)
	}
	return best
}

func directPower(ps [][]*big.Rat, p1, p2 float64, alpha *big.Rat) float64 {
	n, power := len(ps)-1, 0.0
	for x := range ps {
		for y := range ps[x] {
			if ps[x][y].Cmp(alpha) <= 0 {
				power += directBinomial(x, n, p1) * directBinomial(y, n, p2)
			}
		}
	}
	return power
}

func TestFisherAgainstExact(t *testing.T) {
	for n1 := range 13 {
		for n2 := range 13 {
			for a := range n1 + 1 {
				for c := range n2 + 1 {
					want, _ := exactFisher(a, n1-a, c, n2-c).Float64()
					got, err := Fisher(a, n1-a, c, n2-c)
					if err != nil || math.Abs(got/want-1) > 1e-13 {
						t.Fatalf("fisher %d/%d v %d/%d: got %v, %v, want %v", a, n1, c, n2, got, err, want)
					}
				}
			}
		}
	}
}

func TestFisherLargeAgainstExact(t *testing.T) {
	for _, c := range [][4]int{{90, 110, 60, 140}, {150, 50, 3, 297}, {500, 500, 400, 600}, {199, 1, 1, 199}, {7, 993, 30, 470}} {
		want, _ := exactFisher(c[0], c[1], c[2], c[3]).Float64()
		got, err := Fisher(c[0], c[1], c[2], c[3])
		if err != nil || math.Abs(got/want-1) > 1e-12 {
			t.Errorf("fisher %v: got %v, %v, want %v", c, got, err, want)
		}
	}
}

func TestBoschlooAgainstDirect(t *testing.T) {
	for n1 := 1; n1 <= 8; n1++ {
		for n2 := 1; n2 <= 8; n2++ {
			ps := fisherTable(n1, n2)
			for a := range ps {
				for c := range ps[a] {
					want := directBoschloo(ps, ps[a][c])
					got, err := Boschloo(a, n1-a, c, n2-c)
					// The direct grid can only fall short of the maximum.
					if err != nil || got < want-1e-12 || got > want+1e-6 {
						t.Fatalf("boschloo %d/%d v %d/%d: got %v, %v, want %v", a, n1, c, n2, got, err, want)
					}
				}
			}
		}
	}
}

func TestBoschlooMediumAgainstDirect(t *testing.T) {
	for _, c := range [][4]int{{18, 12, 9, 21}, {3, 27, 9, 11}, {1, 39, 8, 32}, {25, 0, 20, 5}} {
		ps := fisherTable(c[0]+c[1], c[2]+c[3])
		want := directBoschloo(ps, ps[c[0]][c[2]])
		got, err := Boschloo(c[0], c[1], c[2], c[3])
		if err != nil || got < want-1e-12 || got > want+1e-6 {
			t.Errorf("boschloo %v: got %v, %v, want %v", c, got, err, want)
		}
	}
}

var rates = [][2]float64{{0.2, 0.8}, {0.02, 0.52}, {0.5, 0.98}, {0.1, 0.7}, {0, 0.5}, {0.3, 1}, {0, 1}, {0.45, 0.95}, {0.6, 0.15}}

func TestPowerAndNeedsNAgainstDirect(t *testing.T) {
	const most = 32
	for _, alpha := range []struct {
		float float64
		exact *big.Rat
	}{{0.05, big.NewRat(1, 20)}, {0.1, big.NewRat(1, 10)}, {0.01, big.NewRat(1, 100)}} {
		direct := make([][]float64, len(rates)) // by rates, then n
		for n := 1; n <= most; n++ {
			ps := fisherTable(n, n)
			for i, r := range rates {
				want := directPower(ps, r[0], r[1], alpha.exact)
				direct[i] = append(direct[i], want)
				if got := FisherPower(r[0], r[1], n, alpha.float); math.Abs(got-want) > 1e-12 {
					t.Fatalf("power %v n %d alpha %v: got %v, want %v", r, n, alpha.float, got, want)
				}
			}
		}
		for i, r := range rates {
			for _, power := range []float64{0.5, 0.8, 0.9} {
				want := most
				for want > 0 && direct[i][want-1] >= power-1e-9 {
					want--
				}
				want++
				got, ok := NeedsN(r[0], r[1], power, alpha.float, 2000)
				if !ok || (want <= most && got != want) || (want > most && got <= most) {
					t.Errorf("needs n %v power %v alpha %v: got %d, %v, want %d of %d", r, power, alpha.float, got, ok, want, most)
				}
			}
		}
	}
}

func TestNeedsNStaysBeyondHorizon(t *testing.T) {
	for _, c := range [][4]float64{{0.4, 0.6, 0.8, 0.05}, {0.02, 0.27, 0.8, 0.05}, {0.73, 0.98, 0.8, 0.05}, {0, 0.2, 0.5, 0.1}, {0.45, 0.7, 0.9, 0.01}} {
		n, ok := NeedsN(c[0], c[1], c[2], c[3], 2000)
		if !ok {
			t.Fatalf("needs n %v: no answer", c)
		}
		if n > 1 && FisherPower(c[0], c[1], n-1, c[3]) >= c[2] {
			t.Errorf("needs n %v: %d isn't the smallest", c, n)
		}
		for m := n; m <= 3*n+100; m++ {
			if p := FisherPower(c[0], c[1], m, c[3]); p < c[2] {
				t.Errorf("needs n %v: %d, but power is %v at %d", c, n, p, m)
			}
		}
	}
}

// The ends of the Clopper-Pearson interval are checked by what they mean: the tail
// of the exact binomial at each is (1 - confidence)/2.
func TestClopperPearsonTails(t *testing.T) {
	for _, c := range [][2]int{{1, 2}, {7, 10}, {3, 100}, {81, 263}, {199, 200}} {
		k, n := c[0], c[1]
		for _, confidence := range []float64{0.9, 0.95, 0.999} {
			lo, hi, err := ClopperPearson(k, n, confidence)
			if err != nil {
				t.Fatal(err)
			}
			above, below := 0.0, 0.0
			for x := range n + 1 {
				if x >= k {
					above += directBinomial(x, n, lo)
				}
				if x <= k {
					below += directBinomial(x, n, hi)
				}
			}
			near(t, fmt.Sprint("tail at low end ", c), above, (1-confidence)/2, 1e-12)
			near(t, fmt.Sprint("tail at high end ", c), below, (1-confidence)/2, 1e-12)
		}
	}
}
