//go:build race

package starlark

// raceEnabled makes the largest tests smaller: the detector slows them tenfold.
const raceEnabled = true
