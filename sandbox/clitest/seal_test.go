//go:build linux

package clitest

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/evalbuild/eval/cas"
	"github.com/evalbuild/eval/sandbox"
	"github.com/evalbuild/eval/sandbox/collect"
	"github.com/evalbuild/eval/workspace/graph"
	"github.com/evalbuild/eval/workspace/hosttools"
)

// A cli is an agent's command line, what it needs inside, and how to read it.
type cli struct {
	protocol protocol
	endpoint string // METHOD PATH of its requests for a turn
	programs []string
	data     []string
	wrapper  string   // sh code; the prompt is its stdin
	env      []string // sorted
	strays   []string // hosts that it asks for unless it is quiet

	// config is files by their path inside, for a CLI as it is or for a quiet
	// one, which keeps to the model.
	config func(quiet bool) map[string]string
	// said reads from its stdout what the model said, and whether the session
	// came to its end.
	said func(stdout []byte) (text string, done bool)
}

// unavailable skips a test, or fails it where nothing may be missing.
func unavailable(t testing.TB, format string, args ...any) {
	t.Helper()
	if os.Getenv("EVAL_STRICT") != "" {
		t.Fatalf(format, args...)
	}
	t.Skipf(format, args...)
}

// installed is the real path of what npm installed, by its name in
// node_modules.
func installed(t testing.TB, name string) string {
	t.Helper()
	p, err := filepath.Abs("../../bin/tools/npm/node_modules/" + name)
	if err == nil {
		p, err = filepath.EvalSymlinks(p)
	}
	if err != nil {
		unavailable(t, "%s isn't installed, see `make deps`: %v", name, err)
	}
	return p
}

func node(t testing.TB) string {
	t.Helper()
	p, err := exec.LookPath("node")
	if err == nil {
		p, err = filepath.EvalSymlinks(p)
	}
	if err != nil {
		unavailable(t, "Node.js is missing: %v", err)
	}
	return p
}

// tools is what the wrappers and the model's commands use.
var tools = []string{"/bin/sh", "/bin/bash", "/bin/cat", "/bin/cp", "/bin/mkdir"}

// host finds programs once for all tests: codex alone is 300 MB to hash.
var host = hosttools.New(hosttools.Options{Func: cas.BLAKE3})

// mounts are the CLI with all that it needs, the tools, and some files.
func (c cli) mounts(t testing.TB, files map[string]string) []graph.Mount {
	t.Helper()
	var lists [][]graph.Mount
	add := func(find func(string) ([]graph.Mount, error), names []string) {
		for _, name := range names {
			m, err := find(name)
			if err != nil {
				t.Fatal(err)
			}
			lists = append(lists, m)
		}
	}
	add(host.Program, slices.Concat(tools, c.programs))
	add(host.Data, c.data)
	dir := t.TempDir()
	for inside, content := range files {
		file := filepath.Join(dir, filepath.Base(inside))
		if err := os.WriteFile(file, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
		lists = append(lists, []graph.Mount{{Path: inside, Source: file, Digest: cas.BLAKE3.Sum([]byte(content))}})
	}
	m, err := hosttools.Merge(lists...)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// noNames finds no host: nothing may be looked up.
type noNames struct{ t testing.TB }

func (n noNames) LookupNetIP(_ context.Context, _, host string) ([]netip.Addr, error) {
	n.t.Errorf("%s was looked up", host)
	return nil, &net.DNSError{Err: "not in this test", Name: host, IsNotFound: true}
}

// A session is one run of a CLI, and what it made.
type session struct {
	*sandbox.Result
	files map[string]string // content of outputs by path
}

// run runs one session under the seal, with some files.
func (c cli) run(t testing.TB, m *model, prompt string, files map[string]string) session {
	t.Helper()
	var mu sync.Mutex
	blobs := map[cas.Digest]string{}
	target := m.Listener.Addr().String()
	s := sandbox.New(sandbox.Options{
		Put: func(r io.Reader) (cas.Digest, error) {
			b, err := io.ReadAll(r)
			d := cas.BLAKE3.Sum(b)
			mu.Lock()
			defer mu.Unlock()
			blobs[d] = string(b)
			return d, err
		},
		Resolver: noNames{t},
		Dial: func(ctx context.Context, network, addr string) (net.Conn, error) {
			if addr != target {
				t.Errorf("the harness dialled %s", addr)
			}
			return (&net.Dialer{}).DialContext(ctx, network, addr)
		},
	})
	for _, f := range s.Probe() {
		if !f.Live {
			unavailable(t, "the seal's layer %s is missing here: %s", f.Layer, f.State)
		}
	}
	res, err := s.Run(t.Context(), sandbox.Spec{
		Args: []string{"/bin/sh", "-c", c.wrapper},
		Env:  c.env,
		Policy: graph.Policy{
			Network: allowed,
			Forward: []graph.Forward{{Port: 8080, Target: target}},
			Limits:  graph.DefaultLimits,
		},
		Mounts:  c.mounts(t, files),
		Stdin:   strings.NewReader(prompt),
		Outputs: []collect.Output{{Path: "made.txt"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := res.Record.Verify(); err != nil || res.Record.Tier != "full" {
		t.Errorf("a record of tier %s: %v", res.Record.Tier, err)
	}
	out := session{res, map[string]string{}}
	for _, f := range res.Outputs {
		out.files[f.Path] = blobs[f.Digest]
	}
	return out
}

// encode is a JSON object.
func encode(v map[string]any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(b)
}

// field gives a member of a JSON object that is a string, or "".
func field(object, name string) string {
	var m map[string]any
	json.Unmarshal([]byte(object), &m)
	s, _ := m[name].(string)
	return s
}
