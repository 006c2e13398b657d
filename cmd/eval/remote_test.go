package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/evalbuild/eval/cas"
	"github.com/evalbuild/eval/cas/remote"
	"github.com/evalbuild/eval/cas/remote/remotetest"
)

// TestShared: two clones in two folders, two users with stores of their own, one
// bazel-remote. What one has paid for and committed, the other has: nothing is
// drawn, no process runs, the scorecards are the same bytes. The same with client
// certificates, and with nothing brought that isn't needed.
func TestShared(t *testing.T) {
	sealedTest(t)
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	open := remotetest.StartBazelRemote(t, remotetest.BazelRemoteOptions{})
	one := newMachine(t, false, func(dir string) {
		copyTree(t, root, dir, "examples", "rules", "MODULE.star")
		dropLocks(t, dir)
	})
	if d := one.ev("lock", "//examples/..."); d.code != 0 {
		t.Fatal(d.text)
	}
	first := one.build("--draws=allow", "--remote_cache="+open.Address(), "--remote_upload=always", "//examples/...")
	if first.summary.Drawn == 0 || first.summary.Remote != 0 {
		t.Fatalf("the first build: %+v", first.summary)
	}
	clone := func(dir string) { // what is committed
		copyTree(t, one.dir, dir, "examples", "rules", "MODULE.star")
	}
	check := func(what string, two *machine, d did) {
		t.Helper()
		if d.summary.Drawn != 0 || d.processes() != 0 || d.summary.Remote == 0 || d.summary.Failed != 0 {
			t.Errorf("%s: %+v, %d processes ran\n%s", what, d.summary, d.processes(), d.text)
		}
		if strings.Contains(d.text, "warning") {
			t.Errorf("%s: %s", what, d.text)
		}
		same(t, what, one, two)
	}
	two := newMachine(t, true, clone)
	check("another user", two, two.build("--remote_cache="+open.Address(), "//examples/..."))
	open.Kill()
	if d := two.build("//examples/..."); d.summary.Ran != 0 || d.summary.Drawn != 0 {
		t.Errorf("again, without the server: %+v", d.summary)
	}

	certs := remotetest.Certificates(t)
	closed := remotetest.StartBazelRemote(t, remotetest.BazelRemoteOptions{Certs: certs, ClientCertificates: true})
	flags := []string{
		"--remote_cache=" + closed.Address(), "--tls_certificate=" + certs.CA,
		"--tls_client_certificate=" + certs.ClientCert, "--tls_client_key=" + certs.ClientKey,
	}
	sent := one.build(append(flags, "--remote_upload=always", "//examples/...")...)
	if sent.summary.Ran != 0 {
		t.Errorf("to send what is there, %d actions ran", sent.summary.Ran)
	}
	three := newMachine(t, false, clone)
	check("with a client certificate", three, three.build(append(flags, "--remote_download=minimal", "//examples/...")...))

	stranger := newMachine(t, false, clone)
	d := stranger.ev("build", "--remote_cache="+closed.Address(), "--tls_certificate="+certs.CA, "--remote_required", "//examples/race/...")
	if d.code != 6 || d.summary.Drawn != 0 {
		t.Errorf("without a certificate: exit code %d, %+v\n%s", d.code, d.summary, d.text)
	}
}

// TestUploadPolicy: who sends what. Captures are sent by whoever drew them, the
// rest by CI or on demand; the second build sends nothing.
func TestUploadPolicy(t *testing.T) {
	sealedTest(t)
	for _, c := range []struct {
		flag, ci          string
		captures, results bool
	}{
		{"", "", true, false},
		{"--remote_upload=auto", "true", true, true},
		{"--remote_upload=always", "", true, true},
		{"--remote_upload=never", "true", false, false},
	} {
		fake := remotetest.Start(t, remotetest.Knobs{})
		m := newSmall(t, false, "")
		m.env = []string{"CI=" + c.ci}
		m.lock(nil)
		flags := []string{"--draws=allow", "--remote_cache=" + fake.Address, "//..."}
		if c.flag != "" {
			flags = append(flags, c.flag)
		}
		m.build(flags...)
		n := fake.Calls("UpdateActionResult")
		captures := 2 * 6 // reps, by key and by capture
		if (n >= captures) != c.captures || !c.captures && n != 0 {
			t.Errorf("%s CI=%s: %d results sent", c.flag, c.ci, n)
		}
		two := newSmall(t, true, "")
		if c.captures {
			two.lock(m)
		}
		d := two.ev("build", "--remote_cache="+fake.Address, "--remote_upload=never", "//...")
		if got := slices.Contains(d.ran, "Run"); got == c.results {
			t.Errorf("%s CI=%s: the action ran elsewhere: %v\n%s", c.flag, c.ci, got, d.text)
		}
		if c.captures && (d.code != 0 || d.summary.Drawn != 0) {
			t.Errorf("%s CI=%s: %+v\n%s", c.flag, c.ci, d.summary, d.text)
		}
		sent := fake.AllCalls()
		m.build(flags...)
		if again := fake.AllCalls(); again["UpdateActionResult"] != sent["UpdateActionResult"] || again["BatchUpdateBlobs"] != sent["BatchUpdateBlobs"] || again["Write"] != sent["Write"] {
			t.Errorf("%s CI=%s: sent again: %v, then %v", c.flag, c.ci, sent, again)
		}
	}
}

// TestOldReceipt: what a server was seen to have is believed for a day by the clock
// of the verbs; then it gets what it has lost.
func TestOldReceipt(t *testing.T) {
	sealedTest(t)
	fake := remotetest.Start(t, remotetest.Knobs{})
	m := newSmall(t, false, "")
	m.lock(nil)
	m.days = "0"
	flags := []string{"--remote_upload=always", "--remote_cache=" + fake.Address, "//p:dates"}
	m.build(flags...)
	for _, key := range fake.Results() {
		fake.DropResult(key)
	}
	m.build(flags...)
	if n := len(fake.Results()); n != 0 {
		t.Errorf("%d results were sent on the same day", n)
	}
	m.days = "1.1"
	m.build(flags...)
	if n := len(fake.Results()); n != 1 {
		t.Errorf("%d results were sent a day later", n)
	}
}

// TestNoSecrets: nothing that is secret on the machine that draws is in any byte
// that it sends.
func TestNoSecrets(t *testing.T) {
	sealedTest(t)
	fake := remotetest.Start(t, remotetest.Knobs{})
	m := newSmall(t, false, "")
	m.lock(nil)
	key := filepath.Join(m.home, "builder.pem")
	if err := os.WriteFile(key, pemKey(t), 0o600); err != nil {
		t.Fatal(err)
	}
	body := strings.Split(string(must(os.ReadFile(key))), "\n")[1]
	if err := os.WriteFile(filepath.Join(m.dir, "p", ".env"), []byte("planted-in-the-workspace"), 0o600); err != nil {
		t.Fatal(err)
	}
	m.env = []string{"OPENAI_API_KEY=planted-in-the-environment", "EVAL_REMOTE_HEADER=authorization=Bearer planted-in-a-header", "USER=planted-user", "LOGNAME=planted-user"}
	m.build("--draws=allow", "--remote_cache="+fake.Address, "--remote_upload=always", "--remote_sign="+key, "//...")
	if fake.Calls("UpdateActionResult") == 0 {
		t.Fatal("nothing was sent")
	}
	// It would be found: what a rep said was sent.
	reply := must(os.ReadFile(filepath.Join(m.dir, "eval-out", "p", "luck", "reps", "control-1", "reply.txt")))
	if len(fake.Grep(string(bytes.TrimSpace(reply)))) == 0 {
		t.Error("not even a reply is found in what was sent")
	}
	host, _ := os.Hostname()
	for _, secret := range []string{"planted-in-the-environment", "planted-in-a-header", "planted-in-the-workspace", "planted-user", body, m.dir, m.home, filepath.Dir(m.home), host} {
		if len(secret) < 4 {
			continue
		}
		if where := fake.Grep(secret); len(where) > 0 {
			t.Errorf("%q was sent by %v", secret, where)
		}
	}
	for _, h := range fake.Headers() {
		if got := h.Get("authorization"); !slices.Equal(got, []string{"Bearer planted-in-a-header"}) {
			t.Fatalf("header %v", got)
		}
	}
}

// TestTrusted: where MODULE.star names builders, a result by anybody else is a
// miss, said once; and no rep is drawn for it behind the user's back.
func TestTrusted(t *testing.T) {
	sealedTest(t)
	fake := remotetest.Start(t, remotetest.Knobs{})
	key := filepath.Join(t.TempDir(), "builder.pem")
	if err := os.WriteFile(key, pemKey(t), 0o600); err != nil {
		t.Fatal(err)
	}
	private, err := remote.LoadKey(key)
	if err != nil {
		t.Fatal(err)
	}
	trusted := fmt.Sprintf(`, trusted_builders = ["%s"]`, remote.FormatKey(publicOf(private)))
	one := newSmall(t, false, "")
	one.lock(nil)
	flags := []string{"--remote_cache=" + fake.Address, "--remote_upload=always", "--draws=allow", "//..."}
	one.build(flags...)

	two := newSmall(t, true, trusted)
	two.lock(one)
	d := two.ev("build", "--remote_cache="+fake.Address, "//...")
	if d.code != 1 || d.summary.Remote != 0 || d.summary.Drawn != 0 || strings.Count(d.text, "warning:") != 1 || !strings.Contains(d.text, "trusted_builders") {
		t.Errorf("unsigned: exit code %d, %+v\n%s", d.code, d.summary, d.text)
	}
	fresh := remotetest.Start(t, remotetest.Knobs{})
	one.build("--remote_cache="+fresh.Address, "--remote_upload=always", "--remote_sign="+key, "//...")
	d = two.ev("build", "--remote_cache="+fresh.Address, "//...")
	if d.code != 0 || d.summary.Drawn != 0 || d.processes() != 0 {
		t.Errorf("signed: exit code %d, %+v\n%s", d.code, d.summary, d.text)
	}
	same(t, "signed", one, two)
}

// TestRemoteVerbs: a plan says what a server has, a required one that is not there
// is exit code 6, doctor says what is wrong, and no header is in any message.
func TestRemoteVerbs(t *testing.T) {
	sealedTest(t)
	fake := remotetest.Start(t, remotetest.Knobs{})
	one := newSmall(t, false, "")
	one.lock(nil)
	one.build("--remote_cache="+fake.Address, "--remote_upload=always", "--draws=allow", "//...")
	two := newSmall(t, false, "")
	two.lock(one)
	if err := os.WriteFile(filepath.Join(two.dir, ".evalrc"), []byte("build --remote_cache="+fake.Address+" --remote_header=x-one=first-secret\nbuild --remote_header=x-two=second-secret\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	d := two.ev("plan", "//...")
	if d.code != 0 || strings.Contains(d.text, "draw 6") || strings.Contains(d.text, "Draw") {
		t.Errorf("plan: %d\n%s", d.code, d.text)
	}
	if d := two.ev("doctor"); d.code != 0 || !strings.Contains(d.text, "remote    live") {
		t.Errorf("doctor: %d\n%s", d.code, d.text)
	}
	if d := two.ev("explain", "//p:luck"); d.code != 0 {
		t.Errorf("explain: %d\n%s", d.code, d.text)
	}
	for _, h := range fake.Headers()[fake.Calls("UpdateActionResult"):] {
		if len(h.Get("x-one"))+len(h.Get("x-two")) == 1 {
			t.Errorf("headers of two lines don't add up: %v", h)
		}
	}
	if d := one.ev("build", "--remote_required", "//..."); d.code != 2 {
		t.Errorf("required, and none is named: exit code %d\n%s", d.code, d.text)
	}
	fake.Stop()
	for _, c := range []struct {
		args []string
		code int
	}{
		{[]string{"build", "--remote_timeout=2s", "--remote_required", "//p:dates"}, 6},
		{[]string{"build", "--remote_timeout=2s", "//p:dates"}, 0},
		{[]string{"doctor", "--remote_timeout=2s"}, 6},
		{[]string{"build", "--remote_cache=http://x", "//..."}, 2},
		{[]string{"build", "--remote_cache=grpcs://me:third-secret@x:1", "//..."}, 2},
		{[]string{"build", "--remote_header=fourth-secret", "//..."}, 2},
		{[]string{"build", "--remote_timeout=-1s", "//..."}, 2},
		{[]string{"build", "--remote_upload=sometimes", "//..."}, 2},
		{[]string{"build", "--remote_sign=/nowhere", "//..."}, 2},
	} {
		d := two.ev(c.args...)
		if d.code != c.code || strings.Contains(d.text, "-secret") {
			t.Errorf("%v: exit code %d, want %d\n%s", c.args, d.code, c.code, d.text)
		}
		if c.code == 0 && strings.Count(d.text, "warning:") != 1 {
			t.Errorf("%v: want one warning:\n%s", c.args, d.text)
		}
	}
}

// TestServerFaults: whatever a server does, a build comes to the same result, in
// bounded time and with one warning for each kind of trouble.
func TestServerFaults(t *testing.T) {
	sealedTest(t)
	one := newSmall(t, false, "")
	one.lock(nil)
	one.build("--draws=allow", "//...")
	forever := make(chan struct{})
	t.Cleanup(func() { close(forever) })
	for _, c := range []struct {
		name   string
		knobs  remotetest.Knobs
		spoil  func(f *remotetest.Fake)
		warned bool
		drawn  bool // captures can't be had, and that is said
	}{
		{name: "good", knobs: remotetest.Knobs{}},
		{name: "SHA-256 with zstd", knobs: remotetest.Knobs{Funcs: []cas.Func{cas.SHA256}, Zstd: true}},
		{name: "hangs", spoil: func(f *remotetest.Fake) { f.Inject("", remotetest.Fault{Times: -1, Hang: forever}) }, warned: true, drawn: true},
		{name: "fails", spoil: func(f *remotetest.Fake) { f.Inject("", remotetest.Fault{Times: -1, Code: codes.Unavailable}) }, warned: true, drawn: true},
		{name: "garbage", spoil: func(f *remotetest.Fake) { f.Inject("", remotetest.Fault{Times: -1, Garbage: true}) }, warned: true, drawn: true},
		{name: "wrong blobs", spoil: func(f *remotetest.Fake) {
			for _, method := range []string{"BatchReadBlobs", "Read"} {
				f.Inject(method, remotetest.Fault{Times: -1, Flip: true})
			}
		}, warned: true, drawn: true},
		{name: "lost blobs", spoil: func(f *remotetest.Fake) {
			for _, d := range f.Blobs() {
				f.DropBlob(d)
			}
		}, warned: true, drawn: true},
		{name: "full", knobs: remotetest.Knobs{Full: true}, warned: true, drawn: true},
		{name: "read-only", knobs: remotetest.Knobs{ReadOnly: true}, warned: true, drawn: true},
		{name: "denies", knobs: remotetest.Knobs{DenyWrites: true}, warned: true, drawn: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			fake := remotetest.Start(t, c.knobs)
			flags := []string{"--remote_cache=" + fake.Address, "--remote_upload=always", "--remote_timeout=1s", "//..."}
			sent := one.build(flags...)
			if !c.knobs.Full && !c.knobs.ReadOnly && !c.knobs.DenyWrites && strings.Contains(sent.text, "warning:") {
				t.Error(sent.text)
			}
			if c.spoil != nil {
				c.spoil(fake)
			}
			two := newSmall(t, false, "")
			two.lock(one)
			start := time.Now()
			d := two.ev(append([]string{"build"}, flags...)...)
			took := time.Since(start)
			if took > 30*time.Second { // several timeouts, and the tests beside this one
				t.Errorf("it took %v", took)
			}
			warnings := strings.Count(d.text, "warning:")
			if (warnings > 0) != c.warned || warnings > 2 {
				t.Errorf("%d warnings:\n%s", warnings, d.text)
			}
			if !c.drawn {
				if d.code != 0 || d.processes() != 0 {
					t.Errorf("exit code %d, %+v:\n%s", d.code, d.summary, d.text)
				}
				same(t, "it", one, two)
				return
			}
			// A capture that can't be had is an error with a hint, never a new draw.
			if d.code != 1 || d.summary.Drawn != 0 || !strings.Contains(d.text, "6 reps were drawn") || !strings.Contains(d.text, "hint: 1.") {
				t.Errorf("exit code %d, %+v:\n%s", d.code, d.summary, d.text)
			}
			if card := two.scorecards()["p/primes/scorecard.json"]; card != one.scorecards()["p/primes/scorecard.json"] {
				t.Errorf("the function gave %q", card)
			}
		})
	}
}
