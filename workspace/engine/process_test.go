package engine

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/evalbuild/eval/cas"
	"github.com/evalbuild/eval/starlark"
)

func init() {
	helpers["build"] = helpBuild
	helpers["limit"] = helpLimit
	helpers["readonly"] = helpReadOnly
}

// What the helper builds: small and large outputs, twins, and the same again
// for each value of s.
const shared = `
many(name = "small", n = 30, srcs = ["s"])
many(name = "large", n = 20, srcs = ["s"], pad = 2000)
node(name = "top", srcs = [":small", ":large"], salt = 5)
node(name = "twin", srcs = [":small", ":large"], salt = 5)
files(name = "w", content = {"sub/%s.txt": "1"}, pad = 5000)
`

func sharedFixture(dir, s string) *fixture {
	f := bareFixture(dir, fmt.Sprintf(shared, s))
	f.set("p/s", s+" ")
	return f
}

// helpBuild builds in the folder args[0] with the source args[1]. It tells what
// it does line by line, so that its end can be put anywhere.
func helpBuild(args []string) error {
	f := sharedFixture(args[0], args[1])
	s, err := cas.Open(cas.Options{Cache: f.storeDir(), Data: f.storeDir()})
	if err != nil {
		return err
	}
	targets, err := f.load()
	if err != nil {
		return err
	}
	f.onOpen = func(p string) error { fmt.Printf("open %s\n", p); return nil }
	fmt.Println("ready")
	if _, err := io.ReadAll(os.Stdin); err != nil { // the start signal
		return err
	}
	rep, err := New(f.options(s, func(e Event) { fmt.Printf("%s %s\n", e.Status, e.Key) })).Build(context.Background(), targets)
	if err != nil {
		return err
	}
	if len(rep.Problems) > 0 {
		return rep.Problems[0].Err
	}
	fmt.Println("end")
	return nil
}

// cleanOutputs is what a build in a new folder gives.
func cleanOutputs(t *testing.T, s string) map[string]string {
	t.Helper()
	f := sharedFixture(t.TempDir(), s)
	f.TB = t
	f.build()
	return f.outputs()
}

// finished drops what only a killed process leaves.
func finished(files map[string]string) map[string]string {
	out := map[string]string{}
	for p, s := range files {
		if !strings.Contains(p, ".eval-tmp-") {
			out[p] = s
		}
	}
	return out
}

func TestManyProcesses(t *testing.T) {
	dir := t.TempDir()
	for round := range 3 {
		s := strconv.Itoa(100 + round)
		var wg sync.WaitGroup
		var mu sync.Mutex
		ran := map[string]int{}
		var starts []io.Closer
		for range 3 {
			cmd := helper(t, "build", dir, s)
			in, err := cmd.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			lines := bufio.NewScanner(out)
			lines.Scan() // ready
			starts = append(starts, in)
			wg.Go(func() {
				for lines.Scan() {
					if key, ok := strings.CutPrefix(lines.Text(), "ran "); ok {
						mu.Lock()
						ran[key]++
						mu.Unlock()
					}
				}
				if err := cmd.Wait(); err != nil {
					t.Error(err, cmd.Stderr)
				}
			})
		}
		for _, c := range starts {
			c.Close()
		}
		wg.Wait()
		if want := 30 + 20 + 2 + 1 + min(1, 1-round); len(ran) < want-1 {
			t.Errorf("%d keys ran", len(ran))
		}
		for key, n := range ran {
			if n != 1 {
				t.Errorf("%s ran %d times", key, n)
			}
		}
		sameFiles(t, snapshot(t, filepath.Join(dir, "out"), false), cleanOutputs(t, s))
		if t.Failed() {
			return
		}
	}
}

func TestManyEngines(t *testing.T) {
	for _, sameStore := range []bool{true, false} {
		dir := t.TempDir()
		first := sharedFixture(dir, "7")
		first.TB = t
		store := first.store()
		var wg sync.WaitGroup
		var mu sync.Mutex
		ran := map[string]int{}
		for range 4 {
			f := sharedFixture(dir, "7")
			f.TB = t
			targets := f.targets()
			s := store
			if !sameStore {
				s = f.store()
			}
			wg.Go(func() {
				rep, err := New(f.options(s, func(e Event) {
					if e.Status == Ran {
						mu.Lock()
						defer mu.Unlock()
						ran[e.Key.String()]++
					}
				})).Build(context.Background(), targets)
				if err != nil || len(rep.Problems) > 0 {
					t.Errorf("%v %+v", err, rep.Problems)
				}
			})
		}
		wg.Wait()
		for key, n := range ran {
			if n != 1 {
				t.Errorf("%s ran %d times", key, n)
			}
		}
		first.wantOutputs(cleanOutputs(t, "7"))
		first.wantRan(first.build())
	}
}

// A build is killed after one of the things that it tells; then another process
// builds, and everything is as if nothing had happened.
func TestKill(t *testing.T) {
	rounds := 25
	if testing.Short() {
		rounds = 6
	}
	dir := t.TempDir()
	r := rand.New(rand.NewPCG(1, 2))
	killed := 0
	for round := range rounds {
		s := strconv.Itoa(1000 + round)
		cmd := helper(t, "build", dir, s)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		left := r.IntN(115)
		for lines := bufio.NewScanner(out); left > 0 && lines.Scan(); left-- {
		}
		if err := cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
			t.Fatal(err)
		}
		var exit interface{ ExitCode() int }
		if err := cmd.Wait(); errors.As(err, &exit) && exit.ExitCode() == -1 {
			killed++
		}
		again := helper(t, "build", dir, s)
		told, err := again.Output()
		if err != nil || !bytes.HasSuffix(told, []byte("end\n")) {
			t.Fatalf("round %d: %v %s", round, err, again.Stderr)
		}
		sameFiles(t, finished(snapshot(t, filepath.Join(dir, "out"), false)), cleanOutputs(t, s))
		if t.Failed() {
			t.Fatalf("round %d", round)
		}
	}
	if killed < rounds/2 {
		t.Errorf("%d of %d were killed in time: the test proves little", killed, rounds)
	}
}

const storing = `
node(name = "a", srcs = ["s"], salt = 1, pad = PAD)
node(name = "b", srcs = [":a"], salt = 2)
node(name = "other", srcs = ["s"], salt = 3)
`

func storingFixture(dir, pad string) *fixture {
	f := bareFixture(dir, "PAD = "+pad+storing)
	f.set("p/s", "1 ")
	f.jobs, f.keep = 1, true
	return f
}

// helpLimit builds where no file may grow beyond 900 bytes, as on a disk that
// fills up in the middle of a write.
func helpLimit(args []string) error {
	f := storingFixture(args[0], args[1])
	s, err := cas.Open(cas.Options{Cache: f.storeDir(), Data: f.storeDir()})
	if err != nil {
		return err
	}
	targets, err := f.load()
	if err != nil {
		return err
	}
	signal.Ignore(syscall.SIGXFSZ)
	if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: 900, Max: 900}); err != nil {
		return err
	}
	return wantInfra(New(f.options(s, nil)), targets, syscall.EFBIG)
}

// wantInfra builds and wants the one problem to be the machine's. Also with
// keep_going it stops.
func wantInfra(e *Engine, targets []*starlark.Target, cause error) error {
	rep, err := e.Build(context.Background(), targets)
	if err != nil {
		return err
	}
	if len(rep.Problems) != 1 || !rep.Problems[0].Infra || !errors.Is(rep.Problems[0].Err, cause) {
		return fmt.Errorf("problems %+v", rep.Problems)
	}
	if rep.Failed != 1 || rep.Skipped == 0 || rep.Failed+rep.Skipped+rep.Ran+rep.Disk != rep.Actions {
		return fmt.Errorf("report %+v", rep)
	}
	return nil
}

func TestDiskFull(t *testing.T) {
	for _, pad := range []string{"2000", "1000"} { // a blob, a result
		t.Run(pad, func(t *testing.T) {
			dir := t.TempDir()
			cmd := helper(t, "limit", dir, pad)
			if err := cmd.Run(); err != nil {
				t.Fatal(err, cmd.Stderr)
			}
			f := storingFixture(dir, pad)
			f.TB = t
			if left := f.stored("tmp"); len(left) > 0 {
				t.Errorf("left over: %q", left)
			}
			for _, kind := range []string{"cas", "ac"} {
				for _, p := range f.stored(kind) {
					if fi, err := os.Stat(p); err != nil || fi.Size() == 900 {
						t.Errorf("half-written: %s", p)
					}
				}
			}
			f.build()
			f.wantRan(f.build())
		})
	}
}

// helpReadOnly builds as a user who may write nowhere in the store any more.
func helpReadOnly(args []string) error {
	f := storingFixture(args[0], args[1])
	s, err := cas.Open(cas.Options{Cache: f.storeDir(), Data: f.storeDir()})
	if err != nil {
		return err
	}
	targets, err := f.load()
	if err != nil {
		return err
	}
	chmod := func(mode fs.FileMode) error {
		return filepath.WalkDir(f.storeDir(), func(p string, d fs.DirEntry, err error) error {
			if err == nil && d.IsDir() {
				err = os.Chmod(p, mode)
			}
			return err
		})
	}
	if err := chmod(0o555); err != nil {
		return err
	}
	return errors.Join(wantInfra(New(f.options(s, nil)), targets, fs.ErrPermission), chmod(0o755))
}

func TestReadOnlyStore(t *testing.T) {
	dir := t.TempDir()
	f := storingFixture(dir, "1500")
	f.TB = t
	f.keep = false
	f.build("other")
	cmd := helper(t, "readonly", dir, "2000")
	asNobody(t, cmd, dir)
	if err := cmd.Run(); err != nil {
		t.Fatal(err, cmd.Stderr)
	}
}

func TestStoreVanishes(t *testing.T) {
	f := storingFixture(t.TempDir(), "2000")
	f.TB = t
	s := f.store()
	f.check(os.RemoveAll(f.storeDir()))
	f.check(wantInfra(New(f.options(s, nil)), f.targets(), fs.ErrNotExist))
	f.build()
	// and in the middle of an action
	f.set("p/s", "2 ")
	f.onOpen = func(string) error { return os.RemoveAll(f.storeDir()) }
	f.check(wantInfra(New(f.options(f.store(), nil)), f.targets(), fs.ErrNotExist))
	f.onOpen = nil
	f.build()
}

// A state folder that can't be written costs an explanation and says so; the
// results are there.
func TestStateInTheWay(t *testing.T) {
	f := storingFixture(t.TempDir(), "2000")
	f.TB = t
	f.check(os.WriteFile(f.state(), nil, 0o644))
	b := f.run(context.Background())
	if b.err == nil || !strings.Contains(b.err.Error(), "save slots of //p:a") {
		t.Errorf("error %v", b.err)
	}
	if b.Ran != 3 || len(f.outputs()) != 3 {
		t.Errorf("%+v", b.Report)
	}
}
