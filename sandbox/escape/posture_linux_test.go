package escape

import (
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/evalbuild/eval/sandbox"
	"github.com/evalbuild/eval/workspace/graph"
)

// TestPosture: what a sealed process can see of itself is what testdata says,
// whoever put the seal up, on whatever machine.
func TestPosture(t *testing.T) {
	t.Parallel()
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
	facts, err := newSandbox(t, sandbox.Options{}).Facts()
	h.must(t, err)
	got := normal(strings.TrimPrefix(string(text), "posture "), h, facts)
	if *update && me() == asRoot { // and the same for users
		h.must(t, os.WriteFile(golden, []byte(got), 0o644))
	}
	want, err := os.ReadFile(golden)
	h.must(t, err)
	if diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(got, "\n")); diff != "" {
		t.Errorf("posture (-testdata +now):\n%s", diff)
	}
}

const golden = "testdata/posture.txt"

// normal takes out of a posture what differs between machines, users and runs,
// and puts in its place what it is to be: the same as the harness's, or new.
func normal(s string, h *host, facts sandbox.Facts) string {
	var out []string
	section := ""
	for line := range strings.SplitSeq(strings.TrimSpace(s), "\n") {
		if strings.HasPrefix(line, "[") && strings.HasSuffix(line, "]") {
			section = line
		}
		word, rest, _ := strings.Cut(line, " ")
		switch section {
		case "[namespaces]":
			if own, err := os.Readlink("/proc/self/ns/" + word); err == nil {
				line = word + map[bool]string{true: " of the harness", false: " new"}[own == rest]
			}
		case "[limits]":
			line = normalLimit(line, facts)
		case "[mounts]":
			if f := strings.Fields(line); len(f) > 8 {
				line = normalMount(f)
			}
		case "[environment]":
			name, _, _ := strings.Cut(line, "=")
			if _, ours := h.vars[name]; ours || name == "INPUT" || name == "RESULT" {
				continue
			}
		case "[process]", "[scheduling]":
			if word == "oom_score_adj" || word == "nice" || word == "policy" {
				line = word + map[bool]string{true: " of the harness", false: " " + rest}[rest == ownScheduling(word)]
			}
		}
		out = append(out, strings.TrimRight(line, " "))
	}
	return strings.Join(out, "\n") + "\n"
}

// inherited are the limits that a seal leaves as they are.
var inherited = regexp.MustCompile(`^Max (cpu time|resident set|address space|file locks|realtime timeout) `)

// ceilings are limits that can be lower, where the harness's own are.
var ceilings = map[string]int{
	"Max open files": unix.RLIMIT_NOFILE, "Max locked memory": unix.RLIMIT_MEMLOCK,
	"Max pending signals": unix.RLIMIT_SIGPENDING, "Max msgqueue size": unix.RLIMIT_MSGQUEUE,
	"Max file size": unix.RLIMIT_FSIZE, "Max stack size": unix.RLIMIT_STACK,
}

func normalLimit(line string, facts sandbox.Facts) string {
	l := graph.DefaultLimits
	if m := inherited.FindString(line); m != "" {
		return m + "of the harness"
	}
	for name, resource := range ceilings {
		var own unix.Rlimit
		hard := line[strings.LastIndexByte(strings.TrimRight(line, "abcdefghijklmnopqrstuvwxyz "), ' ')+1:]
		if strings.HasPrefix(line, name) && unix.Getrlimit(resource, &own) == nil && strings.HasPrefix(hard, strconv.FormatUint(own.Max, 10)) {
			return name + " as policy, or the harness's"
		}
	}
	data, processes := "unlimited", l.Processes+2
	if facts.Cgroup == "none" {
		data, processes = strconv.FormatInt(l.Memory, 10), l.Processes+1
	}
	for name, n := range map[string]string{"Max data size": data, "Max processes": strconv.FormatInt(processes, 10)} {
		if strings.HasPrefix(line, name+" "+n+" "+n+" ") {
			return name + " as policy, or left to the cgroup"
		}
	}
	return line
}

// normalMount keeps the place, the flags but for times of access, the type and,
// of what the seal mounts itself, its options.
func normalMount(f []string) string {
	keep := func(options string) string {
		return strings.Join(slices.DeleteFunc(strings.Split(options, ","), func(o string) bool {
			return strings.Contains(o, "atime") || strings.HasPrefix(o, "uid=") || strings.HasPrefix(o, "gid=") || o == "inode64"
		}), ",")
	}
	at := slices.Index(f, "-")
	line := f[4] + " " + keep(f[5])
	if kind := f[at+1]; kind == "proc" || kind == "tmpfs" && f[3] == "/" {
		line += " " + kind + " " + keep(f[at+3])
	}
	return line
}

func ownScheduling(word string) string {
	switch word {
	case "oom_score_adj":
		b, _ := os.ReadFile("/proc/self/oom_score_adj")
		return strings.TrimSpace(string(b))
	case "nice":
		n, _ := unix.Getpriority(unix.PRIO_PROCESS, 0)
		return strconv.Itoa(20 - n)
	}
	n, _, _ := unix.RawSyscall(unix.SYS_SCHED_GETSCHEDULER, 0, 0, 0)
	return strconv.Itoa(int(n))
}
