package escape

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/evalbuild/eval/cas"
	"github.com/evalbuild/eval/sandbox"
	"github.com/evalbuild/eval/sandbox/collect"
	"github.com/evalbuild/eval/workspace/graph"
	"github.com/evalbuild/eval/workspace/hosttools"
)

// spec runs attempt, which is all that there is inside.
func spec(t *testing.T, policy graph.Policy, words ...string) sandbox.Spec {
	t.Helper()
	b, err := os.ReadFile(binary("attempt"))
	if err != nil {
		t.Fatal(err)
	}
	policy.Limits = graph.DefaultLimits
	return sandbox.Spec{
		Args: append([]string{"/in/attempt"}, words...), Policy: policy,
		Mounts: []graph.Mount{{Path: "/in/attempt", Source: binary("attempt"), Digest: cas.BLAKE3.Sum(b), Executable: true}},
	}
}

// newSandbox is a Sandbox that leaves no cgroups when the test ends.
func newSandbox(t *testing.T, o sandbox.Options) *sandbox.Sandbox {
	s := sandbox.New(o)
	t.Cleanup(s.Close)
	return s
}

func put(r io.Reader) (cas.Digest, error) { return cas.BLAKE3.SumReader(r) }

// answers is a resolver and a network of its own: names have an address, and
// who dials one gets a peer that hangs up.
func answers() sandbox.Options {
	return sandbox.Options{
		Put: put, Resolver: resolver{},
		Dial: func(context.Context, string, string) (net.Conn, error) {
			ours, theirs := net.Pipe()
			go func() {
				io.Copy(io.Discard, theirs)
				theirs.Close()
			}()
			return ours, nil
		},
	}
}

type resolver struct{}

func (resolver) LookupNetIP(_ context.Context, _, host string) ([]netip.Addr, error) {
	switch strings.TrimSuffix(host, ".") {
	case "api.example.com":
		return []netip.Addr{netip.MustParseAddr("93.184.216.34")}, nil
	case "inside.example.com":
		return []netip.Addr{netip.MustParseAddr("169.254.169.254")}, nil
	}
	return nil, errors.New("no such host")
}

// TestEgress: what a process asks of the proxy is a fact of its result, and
// what isn't declared is refused. The first row is the control of the others.
func TestEgress(t *testing.T) {
	t.Parallel()
	needSeal(t)
	network := []graph.Endpoint{{Host: "api.example.com", Ports: []uint16{443}}, {Host: "inside.example.com", Ports: []uint16{443}}}
	for _, tt := range []struct {
		name    string
		words   []string
		network []graph.Endpoint
		want    string // what the process got
		logged  string // host, port and verdict
	}{
		{"declared", []string{"proxy", "api.example.com:443"}, network, "200", "api.example.com 443 allowed"},
		{"host", []string{"proxy", "evil.example:443"}, network, "403", "evil.example 443 refused"},
		{"address", []string{"proxy", "93.184.216.34:443"}, network, "403", "93.184.216.34 443 refused"},
		{"address of the machine", []string{"proxy", "127.0.0.1:443"}, network, "403", "127.0.0.1 443 refused"},
		{"port", []string{"proxy", "api.example.com:22"}, network, "403", "api.example.com 22 refused"},
		{"name of an inner address", []string{"proxy", "inside.example.com:443"}, network, "403", "inside.example.com 443 refused"},
		{"no list", []string{"proxy", "api.example.com:443"}, nil, "403", "api.example.com 443 refused"},
		{"around the proxy", []string{"udp", "192.0.2.1:443"}, network, "ENETUNREACH", ""},
		{"descriptor to the proxy", []string{"rights"}, network, "ok|EINVAL", "*"}, // a stream carries bytes, and drops descriptors
	} {
		s := newSandbox(t, answers())
		sp := spec(t, graph.Policy{Network: tt.network}, tt.words...)
		sp.Listener = true
		res, err := s.Run(context.Background(), sp)
		if err != nil {
			t.Fatal(err)
		}
		_, got, _ := strings.Cut(strings.TrimSpace(string(res.Stdout.Data)), " ")
		var logged []string
		for _, a := range res.Egress {
			logged = append(logged, fmt.Sprint(a.Host, " ", a.Port, " ", a.Verdict))
		}
		if !is(got, tt.want) || tt.logged != "*" && strings.Join(logged, ", ") != tt.logged {
			t.Errorf("%s: the process got %q, logged is %q; stderr %s", tt.name, got, logged, res.Stderr.Data)
		}
	}
}

// TestListenerOfAnother: while one process has a proxy, another can't reach it.
func TestListenerOfAnother(t *testing.T) {
	t.Parallel()
	needSeal(t)
	o := answers()
	asked, answer := make(chan bool), make(chan bool)
	o.Resolver = slow{asked, answer}
	s := newSandbox(t, o)
	first := spec(t, graph.Policy{Network: []graph.Endpoint{{Host: "api.example.com", Ports: []uint16{443}}}}, "proxy", "api.example.com:443")
	var wg sync.WaitGroup
	wg.Go(func() {
		res, err := s.Run(context.Background(), first)
		if err != nil || string(res.Stdout.Data) != "proxy 200\n" {
			t.Errorf("the first: %v %v", res, err)
		}
	})
	defer wg.Wait()
	select {
	case <-asked:
	case <-time.After(time.Minute):
		t.Fatal("the first didn't ask")
	}
	defer close(answer)
	res, err := s.Run(context.Background(), spec(t, graph.Policy{}, "proxy", "api.example.com:443"))
	if err != nil {
		t.Fatal(err)
	}
	if _, got, _ := strings.Cut(strings.TrimSpace(string(res.Stdout.Data)), " "); !is(got, refused) {
		t.Errorf("it got %q", got)
	}
}

// slow answers when it is told to, and says when it is asked.
type slow struct{ asked, answer chan bool }

func (s slow) LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error) {
	close(s.asked)
	<-s.answer
	return resolver{}.LookupNetIP(ctx, network, host)
}

// TestLinkSwapped: a link on the way to a source that changes between the look
// at it and the bind is found out, and nothing runs.
func TestLinkSwapped(t *testing.T) {
	t.Parallel()
	needSeal(t)
	dir := t.TempDir()
	for _, d := range []string{"meant", "other"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, d, "f"), []byte(d), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	way := filepath.Join(dir, "way")
	point := func(to string) error {
		if err := os.Symlink(to, way+".new"); err != nil {
			return err
		}
		return os.Rename(way+".new", way)
	}
	if err := point("meant"); err != nil {
		t.Fatal(err)
	}
	sp := spec(t, graph.Policy{}, "matches", "/in/f", "meant")
	sp.Mounts = append(sp.Mounts, graph.Mount{Path: "/in/f", Source: filepath.Join(way, "f"), Digest: cas.BLAKE3.Sum([]byte("meant"))})
	s := newSandbox(t, sandbox.Options{Put: put})
	if res, err := s.Run(context.Background(), sp); err != nil || string(res.Stdout.Data) != "matches yes\n" {
		t.Fatalf("not swapped: %v %v", res, err)
	}
	done, stopped := make(chan bool), make(chan error)
	go func() {
		for i := 0; ; i++ {
			select {
			case <-done:
				stopped <- nil
				return
			default:
				if err := point([]string{"other", "meant"}[i%2]); err != nil {
					stopped <- err
					return
				}
			}
		}
	}()
	defer func() {
		close(done)
		if err := <-stopped; err != nil {
			t.Error(err)
		}
	}()
	// About every second run meets a swap in between.
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); {
		_, err := s.Run(context.Background(), sp)
		var setup *sandbox.SetupError
		switch {
		case errors.As(err, &setup) && setup.Layer == "mount":
			return
		case err != nil:
			t.Fatal(err)
		}
	}
	t.Error("no swap was found out")
}

// TestKnown: what a seal leaves open, of which attempts might make something.
// Whoever closes one of these moves it to the table.
func TestKnown(t *testing.T) {
	t.Parallel()
	needSeal(t)
	f, err := os.Create(filepath.Join(t.TempDir(), "bound-file"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		words []string
		want  string
	}{
		{[]string{"flock", "/in/f"}, "EAGAIN"}, // a lock is the file's, which others may have bound too
		{[]string{"matches", "/proc/self/mountinfo", "/bound-file /in/f "}, "yes"},
		{[]string{"target", "/proc/self/ns/time"}, own(t, "time")},
	} {
		sp := spec(t, graph.Policy{}, tt.words...)
		sp.Mounts = append(sp.Mounts, graph.Mount{Path: "/in/f", Source: f.Name(), Digest: cas.BLAKE3.Sum(nil)})
		res, err := newSandbox(t, sandbox.Options{Put: put}).Run(context.Background(), sp)
		if err != nil {
			t.Fatal(err)
		}
		if _, got, _ := strings.Cut(strings.TrimSpace(string(res.Stdout.Data)), " "); got != tt.want {
			t.Errorf("%q came to %q, which was %q", tt.words, got, tt.want)
		}
	}
}

// own is a namespace of the test's.
func own(t *testing.T, name string) string {
	to, err := os.Readlink("/proc/self/ns/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return to
}

// TestSurvivors: what outlives its action is a fact of the result, is gone, and
// doesn't hold up the build; what it wrote while it lived is taken whole.
func TestSurvivors(t *testing.T) {
	t.Parallel()
	needSeal(t)
	h := newHost(t)
	mark := "77" + strconv.Itoa(os.Getpid())
	b := newBuild(h)
	r := row{in: shell, outs: []string{"o"}, try: `: > o; (while :; do echo x >> o; done) & (setsid sleep ` + mark + ` &) ; sleep 0.2; echo ok`}
	b.add("left", r, "")
	b.line(`tool(name = "setsid", path = "/bin/sh", data = %s)`, list([]string{"/usr/bin/setsid", "/bin/sleep"}))
	text := strings.Replace(b.text.String(), `name = "left", tool = ":sh"`, `name = "left", tool = ":setsid"`, 1)
	b.text.Reset()
	b.text.WriteString(text)
	b.write(t, h)
	start := time.Now()
	code, stdout, stderr := h.ev(t, "build", "--events="+h.path("events"), "//p:left")
	if code != 0 || time.Since(start) > 30*time.Second {
		t.Fatalf("exit code %d after %v\n%s%s", code, time.Since(start), stdout, stderr)
	}
	facts := h.facts(t, readEvents(t, h.path("events"))["//p:left"].Key)
	if facts.Survivors < 2 {
		t.Errorf("survivors: %+v", facts)
	}
	if left := processes(t, "sleep\x00"+mark); len(left) > 0 {
		t.Errorf("still there: %v", left)
	}
	out, err := os.ReadFile(h.path("ws/eval-out/p/left/o"))
	if err != nil || len(out) == 0 || strings.Trim(string(out), "x\n") != "" {
		t.Errorf("%d bytes of output, %v", len(out), err)
	}

	// Outside the same outlives it.
	cmd := exec.Command("/bin/sh", "-c", `(setsid sleep `+mark+` &)`)
	h.must(t, cmd.Run())
	left := processes(t, "sleep\x00"+mark)
	until(func() bool { left = processes(t, "sleep\x00"+mark); return len(left) > 0 })
	if len(left) != 1 {
		t.Errorf("outside %v outlive it", left)
	}
	for _, pid := range left {
		p, _ := os.FindProcess(pid)
		p.Kill()
	}
}

// runFacts are what the engine keeps of a run, as far as it is of interest here.
type runFacts struct {
	Survivors int
	Limits    []string
	Egress    []struct{ Host, Verdict string }
}

// facts reads what is kept with a result in the store.
func (h *host) facts(t *testing.T, key string) (f runFacts) {
	t.Helper()
	s, err := cas.Open(cas.Options{Cache: h.path("store"), Data: h.path("store"), Func: cas.BLAKE3})
	h.must(t, err)
	d, err := cas.ParseDigest(key)
	h.must(t, err)
	res, err := s.Lookup(cas.Pure, d)
	h.must(t, err)
	h.must(t, json.Unmarshal(res.Aux["run"], &f))
	return f
}

// TestFactsOfAnAction: a refused connection of an action is kept with its result.
func TestFactsOfAnAction(t *testing.T) {
	t.Parallel()
	needSeal(t)
	h := newHost(t)
	b := newBuild(h)
	b.add("asks", row{in: native, try: "proxy evil.example:443", seal: network}, "")
	b.write(t, h)
	if code, stdout, stderr := h.ev(t, "build", "--events="+h.path("events"), "//p:asks"); code != 0 {
		t.Fatalf("exit code %d\n%s%s", code, stdout, stderr)
	}
	f := h.facts(t, readEvents(t, h.path("events"))["//p:asks"].Key)
	if len(f.Egress) != 1 || f.Egress[0].Host != "evil.example" || f.Egress[0].Verdict != "refused" {
		t.Errorf("%+v", f)
	}
}

// TestLimitsAndRejections are facts of a result of package sandbox; of an action
// they are why it failed, which the table looks at.
func TestLimitsAndRejections(t *testing.T) {
	t.Parallel()
	needSeal(t)
	s := newSandbox(t, sandbox.Options{Put: put})
	sp := spec(t, graph.Policy{}, "spin", "10s")
	sp.Policy.Limits.Wall = 300 * time.Millisecond
	res, err := s.Run(context.Background(), sp)
	if err != nil || !slices.Equal(res.Limits, []string{"wall"}) {
		t.Errorf("wall: %+v %v", res, err)
	}
	mounts, err := hosttools.New(hosttools.Options{Func: cas.BLAKE3, Now: time.Now}).Program("/bin/sh")
	if err != nil {
		t.Fatal(err)
	}
	res, err = s.Run(context.Background(), sandbox.Spec{
		Args: []string{"/bin/sh", "-c", ": > a; echo x > d"}, Policy: graph.Policy{Limits: graph.DefaultLimits}, Mounts: mounts,
		Outputs: []collect.Output{{Path: "a"}, {Path: "d", Folder: true}},
	})
	if err != nil || len(res.Outputs) != 1 || len(res.Rejected) != 1 || res.Rejected[0].Code() != collect.Type {
		t.Errorf("rejected: %+v %v", res, err)
	}
}

// processes lists the living whose command line contains a text.
func processes(t *testing.T, text string) []int {
	t.Helper()
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	var out []int
	for _, d := range dirs {
		line, _ := os.ReadFile(d + "/cmdline")
		stat, _ := os.ReadFile(d + "/stat")
		if bytes.Contains(line, []byte(text)) && !bytes.Contains(stat, []byte(") Z ")) {
			pid, _ := strconv.Atoi(filepath.Base(d))
			out = append(out, pid)
		}
	}
	return out
}
