package main

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// A machine is a clone of a workspace with a user and a store of its own.
type machine struct {
	testing.TB
	dir   string // of the workspace
	home  string
	other bool // its user is another than that of the tests
	env   []string
	days  string // by which its clock is ahead
}

// newMachine makes the folders; fill puts the workspace into dir.
func newMachine(t testing.TB, other bool, fill func(dir string)) *machine {
	t.Helper()
	top := t.TempDir()
	m := &machine{TB: t, dir: filepath.Join(top, "clone"), home: filepath.Join(top, "home"), other: other}
	for _, dir := range []string{m.dir, m.home} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	fill(m.dir)
	ev, err := exec.LookPath("ev")
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{top, filepath.Dir(ev)} { // the other user has to get there
		for ; dir != filepath.Clean(os.TempDir()) && dir != "/"; dir = filepath.Dir(dir) {
			if err := os.Chmod(dir, 0o755); err != nil {
				break
			}
		}
	}
	if other && os.Getuid() == 0 {
		err := filepath.WalkDir(top, func(p string, _ fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			return os.Lchown(p, 65534, 65534)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return m
}

// A did is what one command did.
type did struct {
	code    int
	text    string // both outputs
	summary struct{ Actions, Ran, Disk, Remote, Failed, Drawn int }
	ran     []string // mnemonics of what ran
}

// ev runs a verb; --events are read if it is build.
func (m *machine) ev(args ...string) did {
	m.Helper()
	line := append([]string{"ev"}, args...)
	if m.days != "" {
		line = append([]string{"later", m.days}, line...)
	}
	if m.other {
		line = append([]string{"asuser"}, line...)
	}
	events := filepath.Join(m.home, "events")
	if args[0] == "build" {
		line = append(line, "--events="+events)
	}
	cmd := exec.Command(line[0], line[1:]...)
	cmd.Dir = m.dir
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + m.home, "GOCOVERDIR=" + os.Getenv("GOCOVERDIR")}, m.env...)
	out, err := cmd.CombinedOutput()
	d := did{code: cmd.ProcessState.ExitCode(), text: string(out)}
	if err != nil && d.code < 0 {
		m.Fatalf("%v: %v\n%s", line, err, out)
	}
	data, _ := os.ReadFile(events)
	for text := range bytes.Lines(data) {
		var e struct{ Type, Status, Mnemonic string }
		if err := json.Unmarshal(text, &e); err != nil {
			m.Fatalf("%s: %v", text, err)
		}
		switch {
		case e.Type == "summary":
			if err := json.Unmarshal(text, &d.summary); err != nil {
				m.Fatal(err)
			}
		case e.Type == "action" && e.Status == "ran":
			d.ran = append(d.ran, e.Mnemonic)
		}
	}
	os.Remove(events)
	return d
}

// build is ev build that must end well.
func (m *machine) build(args ...string) did {
	m.Helper()
	d := m.ev(append([]string{"build"}, args...)...)
	if d.code != 0 {
		m.Fatalf("ev build %v: exit code %d\n%s", args, d.code, d.text)
	}
	return d
}

// processes counts what ran and is no function.
func (d did) processes() (n int) {
	for _, mnemonic := range d.ran {
		if slices.Contains([]string{"Run", "Draw", "Judge", "Act", "Extract"}, mnemonic) {
			n++
		}
	}
	return n
}

// outputs are the scorecards, by path.
func (m *machine) scorecards() map[string]string {
	m.Helper()
	out := map[string]string{}
	root := filepath.Join(m.dir, "eval-out")
	err := filepath.WalkDir(root, func(p string, e fs.DirEntry, err error) error {
		if err != nil || e.Name() != "scorecard.json" {
			return err
		}
		data, err := os.ReadFile(p)
		rel, _ := filepath.Rel(root, p)
		out[rel] = string(data)
		return err
	})
	if err != nil {
		m.Fatal(err)
	}
	return out
}

// same compares what two machines came to.
func same(t testing.TB, what string, one, two *machine) {
	t.Helper()
	a, b := one.scorecards(), two.scorecards()
	if len(a) == 0 || len(a) != len(b) {
		t.Fatalf("%s: %d scorecards and %d", what, len(a), len(b))
	}
	for p, text := range a {
		if b[p] != text {
			t.Errorf("%s: %s differs:\n%s\n%s", what, p, text, b[p])
		}
	}
}

// sealedTest skips where no process can run.
func sealedTest(t *testing.T) {
	t.Helper()
	buildWorld(t)
	ok, err := needed(canSeal() && canUserSeal(), "whole seal here for this user and another (see ev doctor)")
	if err != nil {
		t.Fatal(err)
	}
	if !ok {
		t.Skip("no whole seal here for this user and another (see ev doctor)")
	}
}

// small is a workspace with a rep, a process, and a function that takes a while.
var small = map[string]string{
	"MODULE.star": `module(name = "small"TRUSTED)`,
	"p/q.md":      "Roll.\n",
	"p/t.md":      "Be lucky.\n",
	"p/BUILD.star": `
load("@eval//rules:action.star", "action")
load("@eval//rules:probe.star", "probe")
load("@eval//rules:producer.star", "producer")
load("@eval//rules:tool.star", "tool")
load(":slow.star", "slow", "six")
tool(name = "sh", path = "/bin/sh", data = ["/bin/date", "/bin/cat", "/bin/sleep", "/usr/bin/head", "/usr/bin/tr"])
producer(name = "die", driver = "command", tool = ":sh", args = ["-c", "cat >/dev/null; head -c 300 /dev/urandom | tr -dc a-z; echo six"])
probe(name = "luck", question = "q.md", treatment = "t.md", producer = ":die", discriminator = six, reps = 3)
action(name = "dates", tool = ":sh", args = ["-c", "head -c 3000 /dev/urandom > $(out now)"], outs = ["now"])
slow(name = "primes", n = 12000)
`,
	"p/slow.star": `
def six(rep):
    return PRESENT if rep.reply.endswith("six") else ABSENT

def count(n):
    found = 0
    for i in range(2, n):
        prime = True
        for d in range(2, i):
            if d * d > i:
                break
            if i % d == 0:
                prime = False
                break
        if prime:
            found += 1
    return {"primes": found}

def _impl(ctx):
    out = ctx.actions.declare_file("scorecard.json")
    ctx.actions.evaluate(fn = count, params = {"n": ctx.attr.n}, output = out)
    return [DefaultInfo(files = [out])]

slow = rule(implementation = _impl, attrs = {"n": attr.int()})
`,
}

// newSmall gives a machine with the small workspace; trusted is of MODULE.star.
func newSmall(t testing.TB, other bool, trusted string) *machine {
	return newMachine(t, other, func(dir string) {
		for p, text := range small {
			p = filepath.Join(dir, p)
			text = strings.Replace(text, "TRUSTED", trusted, 1)
			if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(p, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// lock pins the tools of the small workspace, or takes another's locks.
func (m *machine) lock(from *machine) {
	m.Helper()
	if from == nil {
		if d := m.ev("lock", "//..."); d.code != 0 {
			m.Fatal(d.text)
		}
		return
	}
	for _, name := range []string{"tools.lock", "draws.lock"} {
		data, err := os.ReadFile(filepath.Join(from.dir, "p", name))
		if err != nil {
			m.Fatal(err)
		}
		p := filepath.Join(m.dir, "p", name)
		if err := os.WriteFile(p, data, 0o644); err != nil {
			m.Fatal(err)
		}
		if m.other && os.Getuid() == 0 {
			if err := os.Chown(p, 65534, 65534); err != nil {
				m.Fatal(err)
			}
		}
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// pemKey makes a private key as openssl writes it.
func pemKey(t testing.TB) []byte {
	t.Helper()
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
}

func publicOf(k ed25519.PrivateKey) ed25519.PublicKey { return k.Public().(ed25519.PublicKey) }
