package stats

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// vectors is testdata/statistics.json: values from scipy 1.10.1 and from the
// formulas. Families that this package doesn't compute are left out.
type vectors struct {
	ClopperPearson map[string][2]float64 `json:"clopper_pearson"`
	Wilson         map[string][2]float64 `json:"wilson"`
	Fisher         []tableVector         `json:"fisher_two_sided"`
	Smallest       map[string]float64    `json:"fisher_smallest_two_sided_p_by_n_per_arm"`
	Boschloo       []tableVector         `json:"boschloo_two_sided"`
	Newcombe       [][]any               `json:"newcombe_difference"`
	Holm           [][2][]float64        `json:"holm"`
	Power          [][4]float64          `json:"exact_fisher_power_alpha_05"`
	EValue         [][2]any              `json:"e_value_uniform_mixture_p0_half"`
	NeedsN         [][3]float64          `json:"exact_fisher_smallest_n_per_arm_from_which_power_stays_80"`
	Equivalent     [][2]float64          `json:"tost_reps_per_arm_true_difference_0_p_half_power_80"`
	Direction      [][3]float64          `json:"probability_of_BEHAVIORAL_direction_under_no_effect"`
}

type tableVector struct {
	rows [2][2]int
	p    float64
}

func (v *tableVector) UnmarshalJSON(b []byte) error {
	return json.Unmarshal(b, &[]any{&v.rows, &v.p})
}

func loadVectors(t *testing.T) vectors {
	t.Helper()
	b, err := os.ReadFile("testdata/statistics.json")
	if err != nil {
		t.Fatal(err)
	}
	var v vectors
	if err := json.Unmarshal(b, &v); err != nil {
		t.Fatal(err)
	}
	return v
}

func near(t *testing.T, what string, got, want, tolerance float64) {
	t.Helper()
	if !(math.Abs(got-want) <= tolerance) {
		t.Errorf("%s: got %.10g, want %.10g ± %g", what, got, want, tolerance)
	}
}

func ratio(t *testing.T, s any) (k, n int) {
	t.Helper()
	if _, err := fmt.Sscanf(s.(string), "%d/%d", &k, &n); err != nil {
		t.Fatal(err)
	}
	return k, n
}

func TestVectorsIntervals(t *testing.T) {
	v := loadVectors(t)
	for _, family := range []struct {
		name    string
		compute func(k, n int, confidence float64) (float64, float64, error)
		want    map[string][2]float64
	}{
		{"wilson", Wilson, v.Wilson},
		{"clopper-pearson", ClopperPearson, v.ClopperPearson},
	} {
		if len(family.want) == 0 {
			t.Errorf("%s: no vectors", family.name)
		}
		for s, want := range family.want {
			k, n := ratio(t, s)
			lo, hi, err := family.compute(k, n, 0.95)
			if err != nil {
				t.Error(err)
			}
			near(t, family.name+" low "+s, lo, want[0], 1e-6)
			near(t, family.name+" high "+s, hi, want[1], 1e-6)
		}
	}
	if len(v.Newcombe) == 0 {
		t.Error("newcombe: no vectors")
	}
	for _, row := range v.Newcombe {
		k1, n1 := ratio(t, row[0])
		k2, n2 := ratio(t, row[1])
		estimate, lo, hi, err := NewcombeDifference(k1, n1, k2, n2, 0.95)
		if err != nil {
			t.Error(err)
		}
		what := fmt.Sprint("newcombe ", row[0], " v ", row[1])
		near(t, what+" estimate", estimate, float64(k1)/float64(n1)-float64(k2)/float64(n2), 1e-15)
		near(t, what+" low", lo, row[2].(float64), 1e-6)
		near(t, what+" high", hi, row[3].(float64), 1e-6)
	}
}

func TestVectorsTables(t *testing.T) {
	v := loadVectors(t)
	for _, family := range []struct {
		name    string
		compute func(a, b, c, d int) (float64, error)
		want    []tableVector
	}{
		{"fisher", Fisher, v.Fisher},
		{"boschloo", Boschloo, v.Boschloo},
	} {
		if len(family.want) == 0 {
			t.Errorf("%s: no vectors", family.name)
		}
		for _, row := range family.want {
			got, err := family.compute(row.rows[0][0], row.rows[0][1], row.rows[1][0], row.rows[1][1])
			if err != nil {
				t.Error(err)
			}
			near(t, fmt.Sprint(family.name, " ", row.rows), got, row.p, 1e-6)
		}
	}
	if len(v.Smallest) == 0 {
		t.Error("smallest p: no vectors")
	}
	for s, want := range v.Smallest {
		n, err := strconv.Atoi(s)
		if err != nil {
			t.Fatal(err)
		}
		p, _ := Fisher(n, 0, 0, n)
		near(t, "smallest p "+s, SmallestFisherP(n), want, 1e-6)
		near(t, "fisher of the smallest "+s, p, want, 1e-6)
	}
}

func TestVectorsPower(t *testing.T) {
	v := loadVectors(t)
	if len(v.Power) == 0 || len(v.NeedsN) == 0 || len(v.Direction) == 0 {
		t.Error("power: no vectors")
	}
	for _, row := range v.Power {
		near(t, fmt.Sprint("power ", row), FisherPower(row[0], row[1], int(row[2]), 0.05), row[3], 5e-5)
	}
	for _, row := range v.NeedsN {
		n, ok := NeedsN(row[0], row[1], 0.8, 0.05, 2000)
		if !ok || n != int(row[2]) {
			t.Errorf("needs n %v: got %d, %v", row, n, ok)
		}
	}
	for _, row := range v.Direction {
		near(t, fmt.Sprint("direction ", row), ProbGreater(row[0], int(row[1])), row[2], 1e-6)
	}
}

func TestVectorsEvidence(t *testing.T) {
	v := loadVectors(t)
	if len(v.Holm) == 0 || len(v.EValue) == 0 {
		t.Error("evidence: no vectors")
	}
	for _, row := range v.Holm {
		got := Holm(row[0])
		for i := range got {
			got[i] = Round(got[i])
		}
		if diff := cmp.Diff(row[1], got); diff != "" {
			t.Errorf("holm %v (-want +got):\n%s", row[0], diff)
		}
	}
	for _, row := range v.EValue {
		s, n := ratio(t, row[0])
		near(t, fmt.Sprint("e-value ", row[0]), EValue(s, n), row[1].(float64), 1e-6)
	}
}
