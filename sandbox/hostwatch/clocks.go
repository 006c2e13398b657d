package hostwatch

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// readClocks reads the clocks between two readings of the first and keeps the
// closest of some tries: a harness that loses the processor in between would
// see a sleep or a jump of that length.
func readClocks() (Clocks, error) {
	var best Clocks
	width := time.Duration(math.MaxInt64)
	for try := 0; try < 5 && width > 100*time.Microsecond; try++ {
		var at [4]time.Duration
		for i, id := range []int32{clockAwake, clockBoot, unix.CLOCK_REALTIME, clockAwake} {
			var ts unix.Timespec
			if err := unix.ClockGettime(id, &ts); err != nil {
				return Clocks{}, fmt.Errorf("read clock %d: %w", id, err)
			}
			at[i] = time.Duration(ts.Nano())
		}
		if w := at[3] - at[0]; w < width {
			best, width = Clocks{Awake: at[0], Boot: at[1], Wall: at[2]}, w
		}
	}
	return best, nil
}

// readPressure reads the totals of the folder /proc/pressure. A kernel without
// them, or started with psi=0, has none: the open or the read fails.
func readPressure(folder string) (p Pressure, ok bool) {
	for _, f := range []struct {
		name, line string
		total      *time.Duration
	}{{"memory", "full", &p.Memory}, {"io", "full", &p.IO}, {"cpu", "some", &p.CPU}} {
		text, err := os.ReadFile(filepath.Join(folder, f.name))
		if err != nil {
			return Pressure{}, false
		}
		if *f.total, ok = total(text, f.line); !ok {
			return Pressure{}, false
		}
	}
	return p, true
}

// total finds the microseconds of `full avg10=0.00 avg60=0.00 avg300=0.00 total=701662`.
func total(text []byte, name string) (time.Duration, bool) {
	for line := range bytes.Lines(text) {
		fields := bytes.Fields(line)
		if len(fields) == 0 || string(fields[0]) != name {
			continue
		}
		for _, f := range fields[1:] {
			if digits, found := bytes.CutPrefix(f, []byte("total=")); found {
				n, err := strconv.ParseInt(string(digits), 10, 64)
				return time.Duration(n) * time.Microsecond, err == nil
			}
		}
	}
	return 0, false
}
