package escape

import (
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/evalbuild/eval/sandbox"
)

var update = flag.Bool("update", false, "write testdata")

// binDir holds ev and attempt, built once.
var binDir string

func binary(name string) string { return filepath.Join(binDir, name) }

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(runTests(m))
}

func runTests(m *testing.M) int {
	if binDir = os.Getenv(binVariable); binDir != "" {
		return m.Run()
	}
	var err error
	if binDir, err = os.MkdirTemp("", "escape"); err == nil {
		defer os.RemoveAll(binDir)
		err = os.Chmod(binDir, 0o755)
	}
	for name, pkg := range map[string]string{"ev": "../../cmd/eval", "attempt": "./attempt"} {
		if err == nil {
			cmd := exec.Command("go", "build", "-trimpath", "-o", binary(name), pkg)
			cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
			var out []byte
			if out, err = cmd.CombinedOutput(); err != nil {
				err = fmt.Errorf("build %s: %w\n%s", pkg, err, out)
			}
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// strict says whether what is missing here is a failure.
func strict() bool { return os.Getenv("EVAL_STRICT") != "" }

// missing skips, or fails where that is asked for.
func missing(t *testing.T, format string, args ...any) {
	t.Helper()
	if strict() {
		t.Fatalf(format, args...)
	}
	t.Skipf(format, args...)
}

func needSeal(t *testing.T) {
	t.Helper()
	for _, f := range newSandbox(t, sandbox.Options{}).Probe() {
		if !f.Live {
			missing(t, "the seal's layer %s is missing here: %s", f.Layer, f.State)
		}
	}
}

// me is for whom the controls of this process are.
func me() who {
	if os.Geteuid() == 0 {
		return asRoot
	}
	return asUser
}

// confined says whether the machine itself keeps us from what controls do.
func confined() bool {
	b, _ := os.ReadFile("/proc/self/status")
	s := string(b)
	return !strings.Contains(s, "Seccomp:\t0") || !strings.Contains(s, "NoNewPrivs:\t0") ||
		// CAP_SYS_ADMIN, CAP_SYS_NICE, CAP_NET_RAW of root
		me() == asRoot && !hasCapabilities(s, 21, 23, 13)
}

func hasCapabilities(status string, caps ...uint) bool {
	_, after, _ := strings.Cut(status, "CapEff:\t")
	var set uint64
	fmt.Sscanf(after, "%x", &set)
	for _, c := range caps {
		if set>>c&1 == 0 {
			return false
		}
	}
	return true
}

// A tally counts what rows and controls came to.
type tally struct {
	rows, inside, soft, skipped int
	ok, lacks, none, other      int
	notes                       []string
}

func (c *tally) String() string {
	return fmt.Sprintf("as %s: %d rows, %d as they must be inside (%d not bounded without cgroups, %d skipped); controls: %d succeeded outside, %d for %s only, %d where this machine has nothing to attack, %d rows without one",
		me(), c.rows, c.inside, c.soft, c.skipped, c.ok, c.other, map[who]string{asRoot: "users", asUser: "root"}[me()], c.lacks, c.none)
}

func (c *tally) note(r row, format string, args ...any) {
	c.notes = append(c.notes, fmt.Sprintf("%d %s: %s", r.item, r.name, fmt.Sprintf(format, args...)))
}

// TestItems: each item of the catalogue has a row, or there is a reason.
func TestItems(t *testing.T) {
	t.Parallel()
	have := map[int]bool{}
	names := map[string]bool{}
	for _, r := range rows() {
		have[r.item] = true
		if names[r.name] {
			t.Errorf("two rows are named %q", r.name)
		}
		names[r.name] = true
		if (r.want == "") == (r.fails == "") {
			t.Errorf("%s: either something comes of it, or the action fails", r.name)
		}
	}
	for items := range untried {
		from, to, _ := strings.Cut(items, "-")
		first, err := strconv.Atoi(from)
		last := first
		if err == nil && to != "" {
			last, err = strconv.Atoi(to)
		}
		if err != nil {
			t.Fatal(err)
		}
		for i := first; i <= last; i++ {
			have[i] = true
		}
	}
	for i := 1; i <= 80; i++ {
		if !have[i] && !(i == 38 || i == 44) { // of amd64
			t.Errorf("item %d has no row, and no reason", i)
		}
	}
}

// TestEscape makes every attempt of the table inside, by an action of its own,
// and outside.
func TestEscape(t *testing.T) {
	t.Parallel()
	needSeal(t)
	h := newHost(t)
	facts, err := newSandbox(t, sandbox.Options{}).Facts()
	h.must(t, err)
	b := newBuild(h)
	_, noPython := findPython()
	if noPython != nil && strict() {
		t.Fatalf("no Python here: %v", noPython)
	}
	name := func(i int) string { return fmt.Sprintf("r%03d", i) }
	for i, r := range rows() {
		if r.in == python && noPython != nil {
			continue
		}
		if r.twice {
			b.add(name(i)+"-first", r, "")
			b.add(name(i), r, name(i)+"-first")
		} else {
			b.add(name(i), r, "")
		}
	}
	b.write(t, h)
	code, stdout, stderr := h.ev(t, "build", "--keep_going", "--events="+h.path("events"), "//p:all")
	if code != 1 { // many rows are to fail
		t.Fatalf("exit code %d\n%s%s", code, stdout, stderr)
	}
	for _, text := range []string{stdout, stderr} {
		if i := strings.IndexFunc(text, func(r rune) bool { return r < ' ' && r != '\n' && r != '\t' || r == 0x7f || r == 0xfffd }); i >= 0 {
			t.Errorf("ev printed what could reach a terminal as more than text: %q", text[max(0, i-40):i+20])
		}
	}
	events := readEvents(t, h.path("events"))
	outside := h.controls(noPython != nil)
	var c tally
	for i, r := range rows() {
		c.rows++
		if r.in == python && noPython != nil {
			c.skipped++
			c.note(r, "skipped: no Python here: %v", noPython)
			continue
		}
		c.control(t, r, outside[i])
		result, err := h.result(name(i), r)
		c.row(t, r, outside[i], result, err, events["//p:"+name(i)], facts.Cgroup == "none")
	}
	h.outputsArePlain(t)
	t.Log(c.String())
	for _, n := range c.notes {
		t.Log(n)
	}
}

// row judges what came of a row inside.
func (c *tally) row(t *testing.T, r row, outside, result string, err error, e event, soft bool) {
	t.Helper()
	want, fails := r.want, r.fails
	if soft && r.soft == unbounded {
		c.soft++
		return
	}
	if soft && r.soft != "" {
		want, fails = r.soft, ""
	}
	switch {
	case fails != "" && e.Status != "failed":
		t.Errorf("%d %s: the action %s (%q), and must fail with %q", r.item, r.name, e.Status, result, fails)
	case fails != "" && !strings.Contains(e.Error, fails):
		t.Errorf("%d %s: the action failed with %q, not %q", r.item, r.name, e.Error, fails)
	case fails != "":
		c.inside++
	case e.Status == "failed" || err != nil:
		t.Errorf("%d %s: %v %s", r.item, r.name, err, e.Error)
	case is(result, want), r.control.lacks != "" && is(outside, r.control.lacks) && result == outside:
		c.inside++
	default:
		t.Errorf("%d %s: `%s` came to %q inside, not %s; outside %q", r.item, r.name, r.try, result, want, outside)
	}
}

// control judges what came of it outside.
func (c *tally) control(t *testing.T, r row, outside string) {
	t.Helper()
	switch {
	case r.control.who == 0:
		c.none++
		if r.control.why == "" {
			t.Errorf("%d %s: no control, and no reason", r.item, r.name)
		}
		c.note(r, "no control: %s", r.control.why)
	case r.control.who&me() == 0:
		c.other++
	case is(outside, r.control.ok):
		c.ok++
	case is(outside, r.control.lacks):
		c.lacks++
		c.note(r, "nothing to attack here: %s", outside)
	case confined() && !strict():
		c.lacks++
		c.note(r, "this machine confines the control: %s", outside)
	default:
		t.Errorf("%d %s: the control came to %q, not %s", r.item, r.name, outside, r.control.ok)
	}
}

// outputsArePlain wants files and folders and nothing of the attributes that
// processes gave them.
func (h *host) outputsArePlain(t *testing.T) {
	t.Helper()
	n := 0
	h.must(t, filepath.WalkDir(h.path("ws/eval-out/p"), func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		fi, err := d.Info()
		if err == nil && fi.Mode()&^(fs.ModePerm|fs.ModeDir) != 0 {
			t.Errorf("%s was taken as %v", p, fi.Mode())
		}
		n++
		return err
	}))
	if n < len(rows()) {
		t.Errorf("%d outputs", n)
	}
}
