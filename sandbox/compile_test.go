package sandbox

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/evalbuild/eval/cas"
	"github.com/evalbuild/eval/workspace/graph"
)

var update = flag.Bool("update", false, "write golden files")

var userFacts = Facts{Arch: "amd64", Variant: VariantUser, Landlock: 7, Cgroup: "none", Proc: "subset"}

func sum(s string) cas.Digest { return cas.BLAKE3.Sum([]byte(s)) }

func somePlan() Plan {
	return Plan{
		Policy: graph.Policy{
			Network: []graph.Endpoint{{Host: "api.example.com", Ports: []uint16{443}}},
			Forward: []graph.Forward{{Port: 8080, Target: "127.0.0.1:11434"}},
			Limits:  graph.DefaultLimits,
		},
		Mounts: []graph.Mount{
			{Path: "/bin", Link: "usr/bin"},
			{Path: "/in/p/a.txt", Source: "/somewhere/a", Digest: sum("a")},
			{Path: "/in/p/b.txt", Source: "/somewhere/b", Digest: sum("b")},
			{Path: "/usr/bin/sh", Source: "/usr/bin/sh", Digest: sum("sh"), Executable: true},
			{Path: "/usr/lib/python3", Source: "/usr/lib/python3", Digest: sum("py"), Tree: new(cas.Tree)},
		},
		Facts: userFacts,
	}
}

// TestGoldenPrograms: what is enforced changes on purpose only. A difference
// here that makes an old result wrong wants a new graph.SealVersion.
func TestGoldenPrograms(t *testing.T) {
	plain := Plan{Policy: graph.Policy{Limits: graph.DefaultLimits}, Facts: userFacts}
	root := somePlan()
	root.Facts.Variant, root.Facts.Cgroup = VariantRoot, "v2"
	arm := somePlan()
	arm.Facts.Arch = "arm64"
	old := plain
	old.Facts.Landlock = 1
	old.Listener = true
	for name, p := range map[string]Plan{"plain": plain, "network": somePlan(), "root": root, "arm64": arm, "landlock1": old} {
		prog, err := Compile(p)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		file := filepath.Join("testdata", "program", name+".txt")
		if *update {
			if err := os.WriteFile(file, []byte(prog.Text()), 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		want, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(string(want), prog.Text()); d != "" {
			t.Errorf("%s (-golden +compiled):\n%s", name, d)
		}
	}
}

// TestProgramIsSymbolic: where things lie on a host is not in the program.
func TestProgramIsSymbolic(t *testing.T) {
	a, b := somePlan(), somePlan()
	for i := range b.Mounts {
		if b.Mounts[i].Link == "" {
			b.Mounts[i].Source = "/elsewhere"
		}
	}
	pa, err := Compile(a)
	if err != nil {
		t.Fatal(err)
	}
	pb, _ := Compile(b)
	if pa.Digest() != pb.Digest() {
		t.Error("the source of a mount changes the program")
	}
	if strings.Contains(pa.Text(), "somewhere") {
		t.Error("a host path is in the program")
	}
}

// TestProgramFollows: each part of a plan that the kernel enforces changes the
// program; the others are enforced by the harness, and listed here.
func TestProgramFollows(t *testing.T) {
	base, err := Compile(somePlan())
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name   string
		edit   func(*Plan)
		follow bool
	}{
		{"memory", func(p *Plan) { p.Policy.Limits.Memory++ }, true},
		{"scratch", func(p *Plan) { p.Policy.Limits.Scratch += 4096 }, true},
		{"processes", func(p *Plan) { p.Policy.Limits.Processes++ }, true},
		{"output", func(p *Plan) { p.Policy.Limits.Output++ }, false}, // by collect and the pipes
		{"wall", func(p *Plan) { p.Policy.Limits.Wall++ }, false},     // by a timer
		{"host", func(p *Plan) { p.Policy.Network[0].Host = "x.example.com" }, false},
		{"no network", func(p *Plan) { p.Policy.Network = nil }, true},
		{"forward port", func(p *Plan) { p.Policy.Forward[0].Port++ }, true},
		{"forward target", func(p *Plan) { p.Policy.Forward[0].Target = "127.0.0.1:1" }, false},
		{"digest", func(p *Plan) { p.Mounts[1].Digest = sum("c") }, true},
		{"path", func(p *Plan) { p.Mounts[1].Path = "/in/p/aa.txt" }, true},
		{"link", func(p *Plan) { p.Mounts[0].Link = "usr/sbin" }, true},
		{"folder", func(p *Plan) { p.Mounts[4].Tree = nil }, true},
		{"a low hard limit", func(p *Plan) { p.Facts.Ceilings = "memlock=65536" }, true},
		{"a high hard limit", func(p *Plan) { p.Facts.Ceilings = "memlock=99999999" }, false},
		{"variant", func(p *Plan) { p.Facts.Variant = VariantRoot }, true},
		{"landlock", func(p *Plan) { p.Facts.Landlock = 3 }, true},
		{"arch", func(p *Plan) { p.Facts.Arch = "arm64" }, true},
	} {
		p := somePlan()
		tt.edit(&p)
		prog, err := Compile(p)
		if err != nil {
			t.Errorf("%s: %v", tt.name, err)
			continue
		}
		if got := prog.Digest() != base.Digest(); got != tt.follow {
			t.Errorf("%s: program changed: %v, want %v", tt.name, got, tt.follow)
		}
	}
}

// TestMemoryUnderCgroup: there the group bounds it, and no row.
func TestMemoryUnderCgroup(t *testing.T) {
	a, b := somePlan(), somePlan()
	a.Facts.Cgroup, b.Facts.Cgroup = "v2", "v2"
	b.Policy.Limits.Memory++
	pa, err := Compile(a)
	if err != nil {
		t.Fatal(err)
	}
	if pb, _ := Compile(b); pa.Digest() != pb.Digest() {
		t.Error("the memory limit is in the program too")
	}
}

// TestForbiddenRows: what belongs to the memory, which is the harness's, and
// what lets signals in, may never be a row.
func TestForbiddenRows(t *testing.T) {
	for _, variant := range []string{VariantUser, VariantRoot} {
		p := somePlan()
		p.Facts.Variant = variant
		prog, err := Compile(p)
		if err != nil {
			t.Fatal(err)
		}
		index := func(call string) int {
			for i, r := range prog.Rows {
				if r.Call == call {
					return i
				}
			}
			t.Fatalf("%s: no row %s", variant, call)
			return -1
		}
		for i, r := range prog.Rows {
			switch r.Call {
			case "rt_sigprocmask", "rt_sigaction", "mlockall", "membarrier", "munmap", "mmap", "mprotect", "unshare":
				t.Errorf("%s row %d: %s", variant, i, r)
			case "prctl":
				switch r.Args[0].value {
				case 4 /* PR_SET_DUMPABLE */, 35 /* PR_SET_MM */, 41 /* PR_SET_THP_DISABLE */, 1 /* PR_SET_PDEATHSIG */ :
					t.Errorf("%s row %d: %s", variant, i, r)
				}
			}
		}
		n := len(prog.Rows)
		if prog.Rows[0].String() != `prlimit64(0x0, 0x4, data:01000000000000000100000000000000, 0x0)` {
			t.Errorf("first row: %s", prog.Rows[0])
		}
		if prog.Rows[n-1].Call != "execveat" || prog.Rows[n-2].Call != "seccomp" {
			t.Errorf("last rows: %s; %s", prog.Rows[n-2], prog.Rows[n-1])
		}
		if index("close_range") > index("mount") {
			t.Error("descriptors of siblings are open while mounts are made")
		}
		if variant == VariantRoot && index("setresuid") > index("mkdirat") {
			t.Error("folders are made before the uid is one that the file system knows")
		}
	}
}

func TestCompileErrors(t *testing.T) {
	for _, tt := range []struct {
		name, want string
		edit       func(*Plan)
	}{
		{"relative", `mount "in/a": no clean absolute path`, func(p *Plan) { p.Mounts[1].Path = "in/a" }},
		{"dots", `no clean absolute path`, func(p *Plan) { p.Mounts[1].Path = "/in/../etc" }},
		{"the root", `no clean absolute path`, func(p *Plan) { p.Mounts = []graph.Mount{{Path: "/", Source: "/"}} }},
		{"twice", `out of order or twice`, func(p *Plan) { p.Mounts[2].Path = p.Mounts[1].Path }},
		{"over proc", `the seal keeps /proc to itself`, func(p *Plan) { p.Mounts[3].Path = "/proc/sys" }},
		{"over scratch", `the seal keeps /scratch to itself`, func(p *Plan) { p.Mounts[3].Path = "/scratch/work/x" }},
		{"below a file", `/in/p/a.txt is a file, a link or a folder`, func(p *Plan) { p.Mounts[2].Path = "/in/p/a.txt/b" }},
		{"below a link", `/bin is a file, a link or a folder`, func(p *Plan) { p.Mounts[1].Path = "/bin/a" }},
		{"no source", `either a source or a link`, func(p *Plan) { p.Mounts[1].Source = "" }},
		{"no landlock", `no seal without Landlock`, func(p *Plan) { p.Facts.Landlock = 0 }},
		{"architecture", `no seal for architecture "riscv64"`, func(p *Plan) { p.Facts.Arch = "riscv64" }},
		{"variant", `no seal for variant "setuid"`, func(p *Plan) { p.Facts.Variant = "setuid" }},
		{"unsealed", `has no program`, func(p *Plan) { p.Policy.Unsealed = true }},
	} {
		p := somePlan()
		tt.edit(&p)
		if _, err := Compile(p); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", tt.name, err, tt.want)
		}
	}
}
