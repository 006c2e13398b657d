package seccomp

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// skip leaves a test out, with the reason; EVAL_STRICT=1 makes that a failure.
func skip(t testing.TB, reason string) {
	t.Helper()
	if os.Getenv("EVAL_STRICT") == "1" {
		t.Fatalf("%s (and EVAL_STRICT=1)", reason)
	}
	t.Skip(reason)
}

// kernelNumbers reads golang.org/x/sys's list, which is made from the kernel's
// headers, as source: the host's own would be only one of the two.
func kernelNumbers(t *testing.T, arch string) map[string]uint32 {
	t.Helper()
	dir, err := exec.Command("go", "list", "-f", "{{.Dir}}", "golang.org/x/sys/unix").Output()
	if err != nil {
		skip(t, "source of golang.org/x/sys not found: "+err.Error())
	}
	name := filepath.Join(strings.TrimSpace(string(dir)), "zsysnum_linux_"+arch+".go")
	file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]uint32{}
	for _, decl := range file.Decls {
		consts, ok := decl.(*ast.GenDecl)
		if !ok || consts.Tok != token.CONST {
			continue
		}
		for _, spec := range consts.Specs {
			s := spec.(*ast.ValueSpec)
			nr, err := strconv.ParseUint(s.Values[0].(*ast.BasicLit).Value, 0, 32)
			if err != nil {
				t.Fatal(err)
			}
			found[strings.ToLower(strings.TrimPrefix(s.Names[0].Name, "SYS_"))] = uint32(nr)
		}
	}
	if len(found) < 300 {
		t.Fatalf("%s: only %d numbers", name, len(found))
	}
	return found
}

// TestNumbers: the tables have the kernel's numbers, and a row for each call
// that the list knows.
func TestNumbers(t *testing.T) {
	for _, arch := range arches {
		kernel := kernelNumbers(t, arch)
		for name, want := range kernel {
			if nr, ok := Number(arch, name); !ok {
				t.Errorf("%s: no row for %s (%d): decide on it", arch, name, want)
			} else if nr != want {
				t.Errorf("%s: %s is %d, want %d", arch, name, nr, want)
			}
		}
		for name := range index()[arch] {
			if _, ok := kernel[name]; !ok {
				t.Errorf("%s: %s isn't in the kernel's list", arch, name)
			}
		}
	}
}

func TestRows(t *testing.T) {
	names := map[string]bool{}
	taken := map[string]map[int32]string{"amd64": {}, "arm64": {}}
	for _, table := range tables {
		for _, r := range table {
			if names[r.name] {
				t.Errorf("two rows for %s", r.name)
			}
			names[r.name] = true
			if r.verdict == kill || r.verdict >= verdictCount {
				t.Errorf("%s: verdict %d", r.name, r.verdict)
			}
			if r.amd64 == none && r.arm64 == none {
				t.Errorf("%s has no number", r.name)
			}
			for arch, m := range machines {
				nr := m.nr(r)
				if nr == none {
					continue
				}
				if nr < 0 || nr >= numbers {
					t.Errorf("%s: number %d", r.name, nr)
				}
				if other, ok := taken[arch][nr]; ok {
					t.Errorf("%s: %s and %s have number %d", arch, r.name, other, nr)
				}
				taken[arch][nr] = r.name
			}
		}
	}
}

func TestNumberForOtherPackages(t *testing.T) {
	// The rows of the seal are written with these.
	const wanted = `clone clone3 mount umount2 pivot_root fsopen fsconfig fsmount move_mount
		open_tree mount_setattr mkdirat symlinkat openat openat2 close close_range dup3 fchdir
		chdir setsid setresuid setresgid setgroups prctl prlimit64 seccomp landlock_create_ruleset
		landlock_add_rule landlock_restrict_self socket bind listen ioctl setsockopt sendmsg sendto
		recvfrom read write umask sethostname setdomainname execveat statx fchmod fchmodat mknodat
		capset unshare fcntl`
	for _, arch := range arches {
		for _, name := range strings.Fields(wanted) {
			if _, ok := Number(arch, name); !ok {
				t.Errorf("%s: no number for %s", arch, name)
			}
		}
	}
	if nr, ok := Number("arm64", "open"); ok {
		t.Errorf("arm64 has open: %d", nr)
	}
	if nr, ok := Number("amd64", "nonsense"); ok {
		t.Errorf("amd64 has nonsense: %d", nr)
	}
}
