package stats

import "testing"

func BenchmarkFisher5000(b *testing.B) {
	for b.Loop() {
		_, _ = Fisher(2500, 2500, 2600, 2400)
	}
}

func BenchmarkFisher5000Apart(b *testing.B) {
	for b.Loop() {
		_, _ = Fisher(5000, 0, 0, 5000)
	}
}

func BenchmarkBoschloo200(b *testing.B) {
	for b.Loop() {
		_, _ = Boschloo(110, 90, 90, 110)
	}
}

func BenchmarkBoschloo5000(b *testing.B) {
	for b.Loop() {
		_, _ = Boschloo(2500, 2500, 2600, 2400)
	}
}

func BenchmarkClopperPearson5000(b *testing.B) {
	for b.Loop() {
		_, _, _ = ClopperPearson(2500, 5000, 0.95)
	}
}

func BenchmarkEValue5000(b *testing.B) {
	for b.Loop() {
		EValue(2500, 5000)
	}
}

func BenchmarkFisherPower64(b *testing.B) {
	for b.Loop() {
		FisherPower(0.5, 0.75, 64, 0.05)
	}
}

func BenchmarkNeedsN(b *testing.B) {
	for _, c := range []struct {
		name   string
		p1, p2 float64
	}{
		{"Typical12", 0.2, 0.8},
		{"Typical64", 0.5, 0.75},
		{"Hundreds", 0.4, 0.5},
		{"Worst", 0.475, 0.52},
		{"NearZero", 0, 0.006},
		{"OutOfReach", 0.5, 0.51},
	} {
		b.Run(c.name, func(b *testing.B) {
			for b.Loop() {
				NeedsN(c.p1, c.p2, 0.8, 0.05, 2000)
			}
		})
	}
}
