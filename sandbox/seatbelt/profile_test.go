package seatbelt

import (
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/evalbuild/eval/cas"
	"github.com/evalbuild/eval/workspace/graph"
)

var update = flag.Bool("update", false, "write testdata/*.sb")

const (
	root    = "/private/var/folders/xy/eval-1/root"
	scratch = "/private/var/folders/xy/eval-1/root/scratch"
)

func tree(t testing.TB, files map[string]bool) *cas.Tree {
	t.Helper()
	b := cas.NewTree(cas.BLAKE3)
	for name, executable := range files {
		b.File(name, cas.BLAKE3.Sum([]byte(name)), executable)
	}
	tr, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	return tr
}

func file(inside, source string, executable bool) graph.Mount {
	return graph.Mount{Path: inside, Source: source, Executable: executable}
}

// policies are those that have a golden file.
func policies(t testing.TB) map[string]Params {
	node := tree(t, map[string]bool{"bin/node": true, "bin/npx": true, "lib/cli.js": false, "include/node.h": false})
	return map[string]Params{
		"nothing": {Root: root, Scratch: scratch},
		"program": {Root: root, Scratch: scratch, Mounts: []graph.Mount{
			file("/in/pkg/check", "/Users/ann/work/pkg/check", true),
			file("/in/pkg/a.txt", "/Users/ann/work/pkg/a.txt", false),
			{Path: "/in/pkg/latest", Link: "a.txt"},
		}},
		"network": {
			Root: root, Scratch: scratch,
			Policy: graph.Policy{
				Network: []graph.Endpoint{{Host: "api.example.com", Ports: []uint16{443}}},
				Forward: []graph.Forward{{Port: 5432, Target: "db.internal:5432"}, {Port: 80, Target: "10.0.0.1:80"}},
			},
			ProxyPort: 49152, ForwardPorts: []int{5432, 80},
			Mounts: []graph.Mount{file("/in/agent", "/Users/ann/work/agent", true)},
		},
		"toolchain": {
			Root: root, Scratch: "/private/var/folders/xy/eval-1/scratch", ProxyPort: 49153,
			Mounts: []graph.Mount{
				{Path: "/tools/node", Source: `/Users/ann/Library/Caches/odd "name" \ é (x)`, Tree: node},
				file("/in/say; (allow default)", "/Users/ann/work/say; (allow default)", true),
			},
		},
	}
}

func render(t *testing.T, p Params) string {
	t.Helper()
	s, err := Profile(p)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestGolden(t *testing.T) {
	for name, p := range policies(t) {
		got := render(t, p)
		file := filepath.Join("testdata", name+".sb")
		if *update {
			if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(string(want), got); d != "" {
			t.Errorf("%s (-golden +now; -update writes it):\n%s", name, d)
		}
	}
}

// TestOrder: the order of mounts and doubles of them don't show.
func TestOrder(t *testing.T) {
	p := policies(t)["program"]
	want := render(t, p)
	p.Mounts = append(slices.Clone(p.Mounts), p.Mounts...)
	slices.Reverse(p.Mounts)
	if got := render(t, p); got != want {
		t.Error(cmp.Diff(want, got))
	}
}

// TestPosture reads each profile as the kernel would and lists what it allows
// beyond what every process has.
func TestPosture(t *testing.T) {
	base := map[string]bool{}
	for _, rule := range rules(t, render(t, policies(t)["nothing"])) {
		base[rule] = true
	}
	for rule := range base {
		switch op, arg, _ := strings.Cut(strings.TrimPrefix(rule, "allow "), " "); {
		case strings.HasPrefix(rule, "deny ") || strings.HasPrefix(rule, "version "):
		case strings.HasPrefix(op, "file-write"):
			ok := arg == `(subpath "`+scratch+`")` || op == "file-write-data" && strings.HasPrefix(arg, `(literal "/dev/`) || arg == `(subpath "/dev/fd")`
			if !ok {
				t.Errorf("it may write: %s", rule)
			}
		case op == "file-read*" || op == "file-map-executable" || op == "file-read-metadata":
			if arg == "" || arg == `(subpath "/")` || strings.Contains(arg, "/Users") {
				t.Errorf("it may read: %s", rule)
			}
		case op == "sysctl-read" && strings.HasPrefix(arg, "(sysctl-name"), op == "process-fork":
		case (op == "signal" || op == "process-info*") && arg == "(target same-sandbox)":
		default:
			t.Errorf("not known here: %s", rule)
		}
	}
	want := map[string][]string{
		"nothing": nil,
		"program": {
			`allow file-map-executable (literal "/Users/ann/work/pkg/a.txt")`,
			`allow file-map-executable (literal "/Users/ann/work/pkg/check")`,
			`allow file-map-executable (literal "` + root + `/in/pkg/a.txt")`,
			`allow file-map-executable (literal "` + root + `/in/pkg/check")`,
			`allow file-read* (literal "/Users/ann/work/pkg/a.txt")`,
			`allow file-read* (literal "/Users/ann/work/pkg/check")`,
			`allow file-read-metadata (literal "/Users")`,
			`allow file-read-metadata (literal "/Users/ann")`,
			`allow file-read-metadata (literal "/Users/ann/work")`,
			`allow file-read-metadata (literal "/Users/ann/work/pkg")`,
			`allow process-exec* (literal "/Users/ann/work/pkg/check")`,
			`allow process-exec* (literal "` + root + `/in/pkg/check")`,
		},
		"network": {
			`allow file-map-executable (literal "/Users/ann/work/agent")`,
			`allow file-map-executable (literal "` + root + `/in/agent")`,
			`allow file-read* (literal "/Users/ann/work/agent")`,
			`allow file-read-metadata (literal "/Users")`,
			`allow file-read-metadata (literal "/Users/ann")`,
			`allow file-read-metadata (literal "/Users/ann/work")`,
			`allow network-outbound (remote tcp "localhost:49152")`,
			`allow network-outbound (remote tcp "localhost:5432")`,
			`allow network-outbound (remote tcp "localhost:80")`,
			`allow process-exec* (literal "/Users/ann/work/agent")`,
			`allow process-exec* (literal "` + root + `/in/agent")`,
		},
	}
	for name, want := range want {
		var more []string
		for _, rule := range rules(t, render(t, policies(t)[name])) {
			if !base[rule] {
				more = append(more, rule)
			}
		}
		slices.Sort(more)
		if d := cmp.Diff(want, more); d != "" {
			t.Errorf("%s (-want +got):\n%s", name, d)
		}
	}
}

// TestFirst: deny comes first, and what is denied again comes last.
func TestFirst(t *testing.T) {
	for name, p := range policies(t) {
		all := rules(t, render(t, p))
		if all[0] != "version 1" || all[1] != "deny default (with no-log)" {
			t.Errorf("%s starts with %q", name, all[:2])
		}
		for i, rule := range all {
			if deny := strings.HasPrefix(rule, "deny "); deny != (i == 1 || i >= len(all)-3) && i > 0 {
				t.Errorf("%s: rule %d of %d is %s", name, i, len(all), rule)
			}
		}
	}
}

// TestReasons: each row says why, in words that can stand in a comment.
func TestReasons(t *testing.T) {
	var whys []string
	for _, r := range system {
		whys = append(whys, r.why)
	}
	for _, s := range sysctls {
		whys = append(whys, s.why)
	}
	for _, why := range whys {
		if len(why) < 10 || strings.ContainsFunc(why, func(r rune) bool { return r < ' ' || r > '~' }) {
			t.Errorf("%q is no reason, or not one line of ASCII", why)
		}
	}
}

func TestRefused(t *testing.T) {
	good := Params{Root: root, Scratch: scratch}
	for want, change := range map[string]func(p *Params){
		"no seal":                                          func(p *Params) { p.Policy.Unsealed = true },
		`staging folder "": not an`:                        func(p *Params) { p.Root = "" },
		"root of this machine":                             func(p *Params) { p.Root = "/" },
		"/tmp is a link to /private/tmp":                   func(p *Params) { p.Scratch = "/tmp" },
		"/var is a link to /private/var":                   func(p *Params) { p.Root = "/var/folders/x" },
		"/etc is a link to /private/etc":                   func(p *Params) { p.Mounts = []graph.Mount{file("/in/h", "/etc/hosts", false)} },
		"not a clean path":                                 func(p *Params) { p.Scratch = scratch + "/../x" },
		"not an absolute path":                             func(p *Params) { p.Mounts = []graph.Mount{file("/in/a", "a", false)} },
		"staging folder is in the":                         func(p *Params) { p.Root, p.Scratch = scratch+"/root", scratch },
		`mount "/in/a" from "` + scratch + `/a": it is in`: func(p *Params) { p.Mounts = []graph.Mount{file("/in/a", scratch+"/a", false)} },
		"those of others":                                  func(p *Params) { p.Mounts = []graph.Mount{{Path: "/in", Source: "/private/var", Tree: tree(t, nil)}} },
		"staged in the scratch":                            func(p *Params) { p.Mounts = []graph.Mount{file("/scratch/a", "/Users/ann/a", false)} },
		"or the reverse":                                   func(p *Params) { p.Scratch += "/s"; p.Mounts = []graph.Mount{file("/scratch", "/Users/ann/a", false)} },
		"one below the root":                               func(p *Params) { p.Mounts = []graph.Mount{file("/", "/Users/ann/a", false)} },
		"U+000A":                                           func(p *Params) { p.Mounts = []graph.Mount{file("/in/a", "/Users/ann/a\n", false)} },
		"U+0000":                                           func(p *Params) { p.Mounts = []graph.Mount{file("/in/a\x00", "/Users/ann/a", true)} },
		"not UTF-8":                                        func(p *Params) { p.Root = "/private/\xff" },
		`program "bin/a\nb"`: func(p *Params) {
			p.Mounts = []graph.Mount{{Path: "/in", Source: "/opt/x", Tree: tree(t, map[string]bool{"bin/a\nb": true})}}
		},
		"no port of a proxy": func(p *Params) { p.Policy.Network = []graph.Endpoint{{Host: "a.b", Ports: []uint16{443}}} },
		"0 ports for 1":      func(p *Params) { p.Policy.Forward = []graph.Forward{{Port: 1, Target: "a:1"}} },
		"1 ports for 0":      func(p *Params) { p.ForwardPorts = []int{1} },
		"forward: 0 is no": func(p *Params) {
			p.Policy.Forward, p.ForwardPorts = []graph.Forward{{Port: 1, Target: "a:1"}}, []int{0}
		},
		"proxy: 65536 is no": func(p *Params) { p.ProxyPort = 65536 },
		"proxy: -1 is no":    func(p *Params) { p.ProxyPort = -1 },
	} {
		p := good
		change(&p)
		got, err := Profile(p)
		if err == nil || !strings.Contains(err.Error(), want) || got != "" {
			t.Errorf("want %q, got %v and %d bytes", want, err, len(got))
		}
	}
}
