package stats

import (
	"bytes"
	"math"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"testing/quick"

	"github.com/google/go-cmp/cmp"
)

func TestTablesAreSymmetricToTheBit(t *testing.T) {
	for name, test := range map[string]func(a, b, c, d int) (float64, error){"fisher": Fisher, "boschloo": Boschloo} {
		property := func(a, b, c, d uint8) bool {
			w, x, y, z := int(a%40), int(b%40), int(c%40), int(d%40)
			p, err := test(w, x, y, z)
			arms, _ := test(y, z, w, x)
			outcomes, _ := test(x, w, z, y)
			again, _ := test(w, x, y, z)
			return err == nil && p > 0 && p <= 1 && arms == p && outcomes == p && again == p
		}
		if err := quick.Check(property, &quick.Config{MaxCount: 300}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestBoschlooNeverAboveFisher(t *testing.T) {
	property := func(a, b, c, d uint8) bool {
		f, _ := Fisher(int(a), int(b), int(c), int(d))
		p, _ := Boschloo(int(a), int(b), int(c), int(d))
		return p <= f
	}
	if err := quick.Check(property, &quick.Config{MaxCount: 200}); err != nil {
		t.Error(err)
	}
}

func TestEmptyArmsDiffer(t *testing.T) {
	for _, c := range [][4]int{{0, 0, 0, 0}, {0, 0, 3, 4}, {5, 0, 0, 0}, {4, 0, 9, 0}, {0, 4, 0, 9}} {
		f, errF := Fisher(c[0], c[1], c[2], c[3])
		b, errB := Boschloo(c[0], c[1], c[2], c[3])
		if f != 1 || b != 1 || errF != nil || errB != nil {
			t.Errorf("%v: fisher %v, %v, boschloo %v, %v, want 1", c, f, errF, b, errB)
		}
	}
}

func TestIntervalsContainTheEstimate(t *testing.T) {
	for n := 1; n <= 40; n++ {
		for k := range n + 1 {
			for _, confidence := range []float64{0.01, 0.9, 0.95, 1 - 1e-15} {
				p := float64(k) / float64(n)
				for name, interval := range map[string]func(k, n int, confidence float64) (float64, float64, error){"wilson": Wilson, "clopper-pearson": ClopperPearson} {
					lo, hi, err := interval(k, n, confidence)
					mirroredLo, mirroredHi, _ := interval(n-k, n, confidence)
					if err != nil || !(0 <= lo && lo <= p && p <= hi && hi <= 1) {
						t.Errorf("%s %d/%d: [%v, %v], %v", name, k, n, lo, hi, err)
					}
					// At 1 - 1e-15 an upper end within 1e-16 of 1 is 1.
					if (lo == 0) != (k == 0) || ((hi == 1) != (k == n) && confidence < 0.99) {
						t.Errorf("%s %d/%d: ends [%v, %v]", name, k, n, lo, hi)
					}
					near(t, name+" mirrored", 1-mirroredHi, lo, 1e-12)
					near(t, name+" mirrored", 1-mirroredLo, hi, 1e-12)
				}
			}
		}
	}
}

func TestNewcombeMirrors(t *testing.T) {
	property := func(a, b, c, d uint8) bool {
		n1, n2 := int(a)+1, int(b)+1
		k1, k2 := int(c)%(n1+1), int(d)%(n2+1)
		e, lo, hi, err := NewcombeDifference(k1, n1, k2, n2, 0.95)
		e2, lo2, hi2, _ := NewcombeDifference(k2, n2, k1, n1, 0.95)
		return err == nil && -1 <= lo && lo <= e && e <= hi && hi <= 1 && e2 == -e && lo2 == -hi && hi2 == -lo
	}
	if err := quick.Check(property, nil); err != nil {
		t.Error(err)
	}
	// The first size at which two empty arms are equivalent at margin 0.2.
	if _, _, hi, _ := NewcombeDifference(0, 10, 0, 10, 0.9); hi < 0.2 {
		t.Errorf("0/10 v 0/10: %v", hi)
	}
	if _, _, hi, _ := NewcombeDifference(0, 11, 0, 11, 0.9); hi >= 0.2 {
		t.Errorf("0/11 v 0/11: %v", hi)
	}
}

func TestLargeCounts(t *testing.T) {
	for _, c := range [][4]int{{5000, 0, 0, 5000}, {2500, 2500, 2600, 2400}, {0, 5000, 1, 4999}, {2500, 2500, 2500, 2500}} {
		p, err := Fisher(c[0], c[1], c[2], c[3])
		if err != nil || !(p >= SmallestP && p <= 1) {
			t.Errorf("fisher %v: %v, %v", c, p, err)
		}
	}
	// From exact integers.
	near(t, "fisher 2500 v 2600 of 5000", fisher(table{2500, 2500, 2600, 2400}), 0.04765361355524062, 1e-14)
	if lo, hi, err := ClopperPearson(2500, 5000, 0.95); err != nil || !(lo > 0.486 && hi < 0.514) {
		t.Errorf("clopper-pearson 2500/5000: [%v, %v], %v", lo, hi, err)
	}
	if e := EValue(5000, 5000); e != math.MaxFloat64 {
		t.Errorf("e-value 5000/5000: %v", e)
	}
	if e := EValue(2500, 5000); !(e > 0 && e < 1) {
		t.Errorf("e-value 2500/5000: %v", e)
	}
	near(t, "e-value 502000/1000000", EValue(502_000, 1_000_000), 3.7361238007911117, 1e-11)
	if p := SmallestFisherP(5000); p != SmallestP {
		t.Errorf("smallest p of 5000: %v", p)
	}
}

func TestPowerIsSane(t *testing.T) {
	property := func(a, b, c uint8) bool {
		p1, p2, n := float64(a)/255, float64(b)/255, int(c)
		power := FisherPower(p1, p2, n, 0.05)
		return power >= 0 && power <= 1 && math.Abs(power-FisherPower(p2, p1, n, 0.05)) < 1e-12 &&
			math.Abs(power-FisherPower(1-p1, 1-p2, n, 0.05)) < 1e-12 && FisherPower(p1, p1, n, 0.05) <= 0.05+1e-12
	}
	if err := quick.Check(property, nil); err != nil {
		t.Error(err)
	}
}

func TestNeedsNBounds(t *testing.T) {
	nan := math.NaN()
	for _, c := range [][4]float64{{0.5, 0.5, 0.8, 0.05}, {-1, 0.5, 0.8, 0.05}, {nan, 0.5, 0.8, 0.05}, {0.2, 0.8, 1, 0.05}, {0.2, 0.8, 0.8, 0}, {0.2, 0.8, nan, 0.05}, {0.2, 0.8, 0.8, nan}, {0.5, 0.501, 0.8, 0.05}} {
		if n, ok := NeedsN(c[0], c[1], c[2], c[3], 2000); ok || n != 0 {
			t.Errorf("needs n %v: %d, %v", c, n, ok)
		}
	}
	if n, ok := NeedsN(0.5, 0.75, 0.8, 0.05, 63); ok {
		t.Errorf("needs n up to 63: %d", n)
	}
	if n, ok := NeedsN(0.5, 0.75, 0.8, 0.05, 64); !ok || n != 64 {
		t.Errorf("needs n up to 64: %d, %v", n, ok)
	}
	for _, power := range []float64{1e-300, 1e-12, 0.01, 0.04, 1 - 1e-16} {
		for _, alpha := range []float64{1e-300, 0.05} {
			for _, r := range [][2]float64{{0, 1}, {0.5, 0.55}} {
				if n, ok := NeedsN(r[0], r[1], power, alpha, 300); ok && FisherPower(r[0], r[1], n+50, alpha) < power-1e-9 {
					t.Errorf("needs n %v power %v alpha %v: %d", r, power, alpha, n)
				}
			}
		}
	}
	if n, ok := NeedsN(0, 1, 0.8, 1e-300, 2000); !ok || math.Abs(float64(n)-500) > 5 {
		t.Errorf("needs n at alpha 1e-300: %d, %v", n, ok)
	}
}

func TestImpossibleInput(t *testing.T) {
	fails := map[string]error{}
	_, _, fails["wilson 5/3: more present than reps"] = Wilson(5, 3, 0.95)
	_, _, fails["wilson -1/3: negative count"] = Wilson(-1, 3, 0.95)
	_, _, fails["clopper-pearson 0/0: needs at least one rep"] = ClopperPearson(0, 0, 0.95)
	_, _, fails["wilson 1/3: confidence NaN is not between 0 and 1"] = Wilson(1, 3, math.NaN())
	_, _, fails["clopper-pearson 1/3: confidence 95 is not between 0 and 1"] = ClopperPearson(1, 3, 95)
	_, _, _, fails["newcombe arm two 4/3: more present than reps"] = NewcombeDifference(1, 3, 4, 3, 0.95)
	_, fails["fisher [[1 -1] [2 3]]: negative count"] = Fisher(1, -1, 2, 3)
	_, fails["boschloo [[5001 0] [2 3]]: more than 5000 reps an arm"] = Boschloo(5001, 0, 2, 3)
	_, fails["mean of 0 numbers: needs at least 1"] = Mean(nil)
	_, fails["median of 1 numbers: number 0 is +Inf"] = Median([]float64{math.Inf(1)})
	_, fails["quantile 1.5: not between 0 and 1"] = Quantile([]float64{1}, 1.5)
	_, fails["standard deviation of 1 numbers: needs at least 2"] = StdDev([]float64{1})
	_, fails["standard deviation of 2 numbers: too large to square"] = StdDev([]float64{1e200, -1e200})
	_, fails["mean of 2 numbers: too large to add"] = Mean([]float64{math.MaxFloat64, math.MaxFloat64})
	for want, err := range fails {
		if err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	for _, e := range []float64{EValue(3, 2), EValue(-1, 2), ProbGreater(math.NaN(), 5), ProbGreater(0.5, 0), FisherPower(0.5, math.NaN(), 5, 0.05), FisherPower(0.2, 0.8, -1, 0.05)} {
		if e != 0 {
			t.Errorf("impossible input gave %v, want 0", e)
		}
	}
}

func TestHolm(t *testing.T) {
	got := Holm([]float64{math.NaN(), 0.01, 2, 0.01, -1})
	if diff := cmp.Diff([]float64{1, 0.05, 1, 0.05, 1}, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if got := Holm(nil); len(got) != 0 {
		t.Errorf("holm of none: %v", got)
	}
	ps := []float64{0.04, 0.01}
	if Holm(ps); ps[0] != 0.04 || ps[1] != 0.01 {
		t.Errorf("holm changed its argument: %v", ps)
	}
}

// An e-value's mean under a rate of one half is 1.
func TestEValueMean(t *testing.T) {
	if EValue(0, 0) != 1 {
		t.Errorf("no trials: %v", EValue(0, 0))
	}
	for _, n := range []int{1, 7, 60, 500} {
		fair, mean := binomial(n, 0.5), 0.0
		for s := range n + 1 {
			if i := s - fair.lo; i >= 0 && i < len(fair.w) {
				mean += fair.w[i] * EValue(s, n)
			}
		}
		// Beyond the window lie improbable counts with huge e-values.
		if n <= 60 {
			near(t, "mean", mean, 1, 1e-12)
		} else if mean > 1 {
			t.Errorf("mean at %d: %v", n, mean)
		}
	}
}

func TestSignificant(t *testing.T) {
	p, _ := Fisher(3, 0, 0, 3)
	if !Significant(p, 0.1) || Significant(p, 0.0999) || !Significant(math.Nextafter(0.1, 1), 0.1) {
		t.Errorf("2/20 against 0.1: p %v", p)
	}
}

func TestRound(t *testing.T) {
	for x, want := range map[float64]float64{
		0: 0, 0.1234564: 0.123456, 0.1234565: 0.123457, -0.1234565: -0.123457, 1: 1,
		0.0078125: 0.007813, 0.00781249999999999: 0.007813, 0.0078124: 0.007812, -0.0000001: 0,
		0.0000005: 0.000001, 2.0000005: 2.000001, 1e300: 1e300, math.MaxFloat64: math.MaxFloat64,
	} {
		got := Round(x)
		if got != want || Round(got) != got || (got == 0 && math.Signbit(got)) {
			t.Errorf("round %v: got %v, want %v", x, got, want)
		}
	}
	if x := Round(math.Copysign(0, -1)); math.Signbit(x) {
		t.Error("round -0: still negative")
	}
	property := func(x float64) bool { return Round(Round(x)) == Round(x) && Round(-x) == -Round(x) }
	if err := quick.Check(property, nil); err != nil {
		t.Error(err)
	}
	small := func(x int64) bool { return property(float64(x) / 1e15) }
	if err := quick.Check(small, nil); err != nil {
		t.Error(err)
	}
}

func TestDescribe(t *testing.T) {
	xs := []float64{3, 1, 4, 1.5}
	for _, c := range []struct {
		name string
		got  func() (float64, error)
		want float64
	}{
		{"mean", func() (float64, error) { return Mean(xs) }, 2.375},
		{"mean of tenths", func() (float64, error) { return Mean([]float64{0.1, 0.1, 0.1}) }, 0.1},
		{"median even", func() (float64, error) { return Median(xs) }, 2.25},
		{"median odd", func() (float64, error) { return Median(xs[:3]) }, 3},
		{"quantile 0", func() (float64, error) { return Quantile(xs, 0) }, 1},
		{"quantile .25", func() (float64, error) { return Quantile(xs, 0.25) }, 1.375},
		{"quantile 1", func() (float64, error) { return Quantile(xs, 1) }, 4},
		{"deviation", func() (float64, error) { return StdDev([]float64{2, 4, 4, 4, 5, 5, 7, 9}) }, math.Sqrt(32.0 / 7)},
	} {
		got, err := c.got()
		if err != nil || got != c.want {
			t.Errorf("%s: got %v, %v, want %v", c.name, got, err, c.want)
		}
	}
	if diff := cmp.Diff([]float64{3, 1, 4, 1.5}, xs); diff != "" {
		t.Errorf("sample changed (-want +got):\n%s", diff)
	}
}

// A fused multiply-add rounds once where amd64 rounds twice, so that bytes
// would differ between machines. The compiler's output is the only witness.
func TestNoFusedMultiplyAdd(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles for arm64")
	}
	cmd := exec.Command("go", "build", "-gcflags=-S", ".")
	cmd.Env = append(cmd.Environ(), "GOOS=linux", "GOARCH=arm64", "CGO_ENABLED=0")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("compile for arm64: %v\n%s", err, out)
	}
	if !bytes.Contains(out, []byte("FMULD")) {
		t.Fatal("compile for arm64: no assembly to read")
	}
	fused := regexp.MustCompile(`\((\S+:\d+)\)\s+FN?M(ADD|SUB)[DS]`)
	for line := range strings.Lines(string(out)) {
		if m := fused.FindStringSubmatch(line); m != nil {
			t.Errorf("fused multiply-add at %s", line)
		}
	}
}
