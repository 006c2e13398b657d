// Command bench times the eval binary as a whole process on workspaces that it
// makes: start, no-op, restored outputs, an edited discriminator. Each figure
// is the median of several runs, and stands beside that of reading and hashing
// (SHA-256, all cores) the recorded replies once, measured in the same minute:
// compare the ratios, since machines differ.
//
//	bench [--results=N] PATH-OF-EVAL [PART...]
//
// Without parts it does all: workspace, live, matrix, arrival, faults, large.
package main

import (
	"crypto/sha256"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

const runs = 5

const nameWidth = 60

type part struct {
	name string
	run  func(*bench)
}

var parts = []part{
	{"workspace", func(b *bench) {
		b.row("ev version", 0, runs, nil, "", "version")
		for _, size := range []struct{ probes, reps int }{{10, 50}, {100, 50}, {1, 5000}} {
			b.workspace(size.probes, size.reps)
		}
	}},
	{"live", func(b *bench) { b.live(100) }},
	{"matrix", func(b *bench) { b.matrix("../examples/enterprise") }},
	{"arrival", func(b *bench) { b.arrival(100, max(1, b.results/100), 20*time.Millisecond) }},
	{"faults", func(b *bench) { b.faults(400) }},
	{"large", (*bench).large},
}

func main() {
	if len(os.Args) == 2 && os.Args[1] == "child" {
		runChild()
		return
	}
	b := &bench{}
	flag.IntVar(&b.results, "results", 10_000, "how many results the part arrival has on the server")
	flag.Usage = func() {
		fmt.Fprintln(os.Stderr, "usage: bench [--results=N] PATH-OF-EVAL [workspace | live | matrix | arrival | faults | large]...")
		os.Exit(2)
	}
	flag.Parse()
	if flag.NArg() < 1 || b.results < 1 {
		flag.Usage()
	}
	chosen := flag.Args()[1:]
	for _, name := range chosen {
		if !slices.ContainsFunc(parts, func(p part) bool { return p.name == name }) {
			flag.Usage()
		}
	}
	var err error
	b.exe, err = filepath.Abs(flag.Arg(0))
	check(err)
	b.dir, err = os.MkdirTemp("", "eval-bench-")
	check(err)
	defer os.RemoveAll(b.dir)

	fmt.Printf("%d cores; median of %d runs, wall time; peak memory of the process\n\n", runtime.NumCPU(), runs)
	fmt.Printf("%-*s %9s %9s %8s\n", nameWidth, "", "seconds", "v hashing", "MB")
	for _, p := range parts {
		if len(chosen) == 0 || slices.Contains(chosen, p.name) {
			p.run(b)
		}
	}
}

func check(err error) {
	if err != nil {
		fmt.Fprintf(os.Stderr, "bench: %v\n", err)
		os.Exit(1)
	}
}

type bench struct {
	exe, dir string
	results  int
}

// workspace measures one workspace of probes × 2 arms × reps.
func (b *bench) workspace(probes, reps int) {
	root := filepath.Join(b.dir, fmt.Sprintf("w%dx%d", probes, reps))
	edit := generate(root, probes, reps)
	actions := probes * (2*reps + 1)
	name := fmt.Sprintf("%d actions (%d probes)", actions, probes)
	if probes == 1 {
		name = fmt.Sprintf("%d actions (1 probe)", actions)
	}
	base := hashing(root)
	fmt.Printf("\n%-*s %9.3f\n", nameWidth, "read and hash "+fmt.Sprint(2*probes*reps)+" replies", base.Seconds())
	b.row(name+": first build", base, 1, nil, root, "build", "//...")
	// Younger files are hashed each time: see the racy-timestamp rule.
	time.Sleep(2500 * time.Millisecond)
	b.row("", base, 1, nil, root, "build", "//...")
	b.row(name+": no-op", base, runs, nil, root, "build", "//...")
	b.row(name+": discriminators edited, re-scored", base, 3, edit, root, "build", "//...")
	// Last: for some seconds after files are removed in bulk, ext4 is slow to
	// make new ones.
	b.row(name+": all cached, eval-out gone", base, 3, func() { check(os.RemoveAll(filepath.Join(root, "eval-out"))) }, root, "build", "//...")
}

// live measures one probe of 2 arms × reps live reps of a program that does next
// to nothing. It needs a seal.
func (b *bench) live(reps int) {
	root := filepath.Join(b.dir, "live")
	edit := generateLive(root, reps)
	name := fmt.Sprintf("%d live reps", 2*reps)
	fmt.Println()
	b.row("", 0, 1, nil, root, "lock", "//...")
	b.row(name+": drawn", 0, 1, nil, root, "build", "--draws=allow", "//...")
	time.Sleep(2500 * time.Millisecond) // as above
	b.row("", 0, 1, nil, root, "build", "//...")
	b.row(name+": no-op", 0, runs, nil, root, "build", "//...")
	b.row(name+": discriminator edited, re-scored", 0, runs, edit, root, "build", "//...")
}

// matrix measures a failure matrix: nothing known, nothing to do, one contract
// edited. It needs a seal, and eval-world and eval-play beside the binary.
func (b *bench) matrix(example string) {
	root := filepath.Join(b.dir, "matrix")
	check(os.CopyFS(filepath.Join(root, "enterprise"), os.DirFS(example)))
	check(os.WriteFile(filepath.Join(root, "MODULE.star"), []byte("module(name = \"bench\")\n"), 0o644))
	contracts := filepath.Join(root, "enterprise/contracts.star")
	text, err := os.ReadFile(contracts)
	check(err)
	n := 0
	edit := func() {
		n++
		edited := strings.Replace(string(text), "max = 5000)", fmt.Sprintf("max = %d)", 5000-n), 1)
		check(os.WriteFile(contracts, []byte(edited), 0o644))
	}
	store := filepath.Join(b.dir, "matrix-store")
	build := []string{"build", "--store=" + store, "//enterprise:matrix"}
	fmt.Println()
	b.row("112 scenarios: first build", 0, 3, func() { check(os.RemoveAll(store)) }, root, build...)
	time.Sleep(2500 * time.Millisecond) // as above
	b.row("", 0, 1, nil, root, build...)
	b.row("112 scenarios: no-op", 0, runs, nil, root, build...)
	b.row("112 scenarios: one contract edited", 0, runs, edit, root, build...)
}

// row prints the median of n runs and returns it; with an empty name it only runs.
func (b *bench) row(name string, base time.Duration, n int, before func(), root string, args ...string) time.Duration {
	var times []time.Duration
	var peak int64
	for range n {
		if before != nil {
			before()
		}
		took, mb, _ := b.measure(root, args...)
		times, peak = append(times, took), max(peak, mb)
	}
	m := median(times)
	if name == "" {
		return m
	}
	b.print(name, m, base, peak)
	return m
}

// measure runs the binary once. It gives the wall time, the peak memory in MB and
// what was printed.
func (b *bench) measure(root string, args ...string) (took time.Duration, peak int64, out string) {
	cmd := exec.Command(b.exe, args...)
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "EVAL_STORE="+filepath.Join(b.dir, "store"), "HOME="+b.dir)
	var all strings.Builder
	cmd.Stdout, cmd.Stderr = &all, &all
	start := time.Now()
	err := cmd.Run()
	took = time.Since(start)
	if err != nil {
		check(fmt.Errorf("%s: %w\n%s", strings.Join(args, " "), err, all.String()))
	}
	unit := int64(1024) // kB on Linux
	if runtime.GOOS == "darwin" {
		unit = 1 << 20
	}
	return took, cmd.ProcessState.SysUsage().(*syscall.Rusage).Maxrss / unit, all.String()
}

// print prints a line of a table; base is what the time is compared with, peak in
// MB.
func (b *bench) print(name string, took, base time.Duration, peak int64) {
	ratio := ""
	if base > 0 {
		ratio = fmt.Sprintf("%.1f", float64(took)/float64(base))
	}
	fmt.Printf("%-*s %9.3f %9s %8d\n", nameWidth, name, took.Seconds(), ratio, peak)
}

func median(times []time.Duration) time.Duration {
	return slices.Sorted(slices.Values(times))[len(times)/2]
}

// generateLive writes a workspace with a live probe and returns a function that
// edits the logic of its discriminator.
func generateLive(root string, reps int) (edit func()) {
	write := func(rel, text string, mode os.FileMode) {
		check(os.MkdirAll(root, 0o755))
		check(os.WriteFile(filepath.Join(root, rel), []byte(text), mode))
	}
	write("MODULE.star", "module(name = \"bench\")\n", 0o644)
	write("question.md", "Which number?\n", 0o644)
	write("prelude.md", "Think of it twice.\n", 0o644)
	write("number.sh", "#!/bin/sh\nod -An -N8 -tu8 /dev/urandom\n", 0o755)
	write("BUILD.star", fmt.Sprintf(`load("@eval//rules:probe.star", "probe")
load("@eval//rules:producer.star", "producer")
load("@eval//rules:tool.star", "tool")
load(":marks.star", "ok")

tool(name = "number", path = "number.sh", data = ["/usr/bin/od"])
producer(name = "numbers", driver = "command", tool = ":number", price = "free")

probe(
    name = "x",
    question = "question.md",
    prelude = "prelude.md",
    producer = ":numbers",
    discriminator = ok,
    reps = %d,
)
`, reps), 0o644)
	n := 0
	edit = func() {
		n++
		write("marks.star", fmt.Sprintf("def ok(rep):\n    return PRESENT if \"%d\" in rep.reply else ABSENT\n", n), 0o644)
	}
	edit()
	return edit
}

// generate writes a workspace and returns a function that edits the logic of
// every discriminator, differently each time.
func generate(root string, probes, reps int) (edit func()) {
	write := func(rel, text string) {
		p := filepath.Join(root, filepath.FromSlash(rel))
		check(os.MkdirAll(filepath.Dir(p), 0o755))
		check(os.WriteFile(p, []byte(text), 0o644))
	}
	write("MODULE.star", "module(name = \"bench\")\n")
	for p := range probes {
		pkg := fmt.Sprintf("p%d/", p)
		write(pkg+"question.md", "Which number?\n")
		write(pkg+"prelude.md", "Think of it twice.\n")
		write(pkg+"BUILD.star", fmt.Sprintf(`load("@eval//rules:probe.star", "probe")
load("@eval//rules:producer.star", "captures")
load(":marks.star", "ok")

probe(
    name = "x",
    question = "question.md",
    prelude = "prelude.md",
    producer = captures(glob(["captures/*.txt"])),
    discriminator = ok,
    reps = %d,
)
`, reps))
		for _, arm := range []string{"control", "treatment"} {
			for i := 1; i <= reps; i++ {
				line := fmt.Sprintf("%s %d of probe %d says %d\n", arm, i, p, (i*7919+p)%1000)
				write(fmt.Sprintf("%scaptures/%s-%d.txt", pkg, arm, i), strings.Repeat(line, 4))
			}
		}
	}
	n := 0
	edit = func() {
		n++
		for p := range probes {
			write(fmt.Sprintf("p%d/marks.star", p), fmt.Sprintf("def ok(rep):\n    return PRESENT if \"%d\" in rep.reply else ABSENT\n", n+p%7))
		}
	}
	edit()
	return edit
}

// hashing reads and hashes every reply once, on all cores.
func hashing(root string) time.Duration {
	var files []string
	check(filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(p, ".txt") {
			files = append(files, p)
		}
		return err
	}))
	start := time.Now()
	var wg sync.WaitGroup
	part := len(files)/runtime.NumCPU() + 1
	for list := range slices.Chunk(files, part) {
		wg.Go(func() {
			for _, f := range list {
				data, err := os.ReadFile(f)
				check(err)
				sha256.Sum256(data)
			}
		})
	}
	wg.Wait()
	return time.Since(start)
}
