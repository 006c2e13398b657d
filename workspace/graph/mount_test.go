package graph

import "testing"

func TestReservedPath(t *testing.T) {
	for p, want := range map[string]string{
		"/": "/", "/in": "/in", "/in/a/b": "/in", "/scratch/work": "/scratch", "/proc/self/exe": "/proc", "/dev/null": "/dev",
		"/sys/kernel": "/sys", "/old": "/old", "/old/x": "/old", "/.seal": "/.seal", "/.seal/x": "/.seal", "/.probe": "/.probe",
		"/usr/bin/sh": "", "/inn": "", "/older/in": "", "/usr/in": "", "/tmp": "", "/tmp/x": "", "/.sealed": "",
	} {
		if got := ReservedPath(p); got != want {
			t.Errorf("ReservedPath(%q) = %q, want %q", p, got, want)
		}
	}
}
