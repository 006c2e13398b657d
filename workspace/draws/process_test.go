package draws

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"errors"
	"flag"
	"fmt"
	mrand "math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

var soak = flag.Bool("soak", false, "kill 200 processes that append, instead of 20")

// The test program runs itself as another process: DRAWS_HELPER names one of
// these functions, which gets the arguments.
var helpers = map[string]func(args []string) error{
	"append": helpAppend,
	"draw":   helpDraw,
	"limit":  helpLimit,
}

func TestMain(m *testing.M) {
	if name := os.Getenv("DRAWS_HELPER"); name != "" {
		if err := helpers[name](os.Args[1:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func helper(t testing.TB, name string, args ...string) *exec.Cmd {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe, args...)
	cmd.Env = append(os.Environ(), "DRAWS_HELPER="+name)
	cmd.Stderr = new(bytes.Buffer)
	return cmd
}

// helpAppend appends n intents, each its own rep, without fsync: that is a
// second of the disk's time and excludes nobody.
func helpAppend(args []string) error {
	n, err := strconv.Atoi(args[2])
	if err != nil {
		return err
	}
	l, err := Open(args[0])
	if err != nil {
		return err
	}
	l.sync = noSync
	for i := range n {
		if _, err := l.Append(NewIntent(labelA, rep(args[1], i+1), runA)); err != nil {
			return err
		}
	}
	return nil
}

func TestTwoProcesses(t *testing.T) {
	path := lockPath(t)
	n := 1000
	if testing.Short() {
		n = 100
	}
	var cmds []*exec.Cmd
	for _, stream := range []string{"control", "treatment"} {
		cmd := helper(t, "append", path, stream, strconv.Itoa(n))
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		cmds = append(cmds, cmd)
	}
	for _, cmd := range cmds {
		if err := cmd.Wait(); err != nil {
			t.Error(err, cmd.Stderr)
		}
	}
	l := open(t, path)
	if got := len(l.Lines()); got != 2*n || strings.Count(contents(t, path), "\n") != 2*n {
		t.Errorf("%d lines", got)
	}
	for i, x := range l.Lines() {
		if x.Seq != int64(i+1) {
			t.Fatalf("line %d has seq %d", i+1, x.Seq)
		}
	}
	for _, stream := range []string{"control", "treatment"} {
		for i := range n {
			if l.State(rep(stream, i+1)).Status != StatusIntent {
				t.Fatalf("%s-%d is lost", stream, i+1)
			}
		}
	}
}

// helpDraw draws reps that are not drawn, for ever, and says what Append has
// returned. With a number it kills itself in the middle of that write.
func helpDraw(args []string) error {
	path, state := args[0], args[1]
	die, err := strconv.Atoi(args[2])
	if err != nil {
		return err
	}
	run, err := NewRun(state, rand.Reader)
	if err != nil {
		return err
	}
	l, err := Open(path)
	if err != nil {
		return err
	}
	if die > 0 {
		l.write = func(f *os.File, b []byte) (int, error) {
			if die--; die > 0 {
				return f.Write(b)
			}
			f.Write(b[:mrand.IntN(len(b)+1)])
			return 0, unix.Kill(os.Getpid(), unix.SIGKILL)
		}
	}
	if _, err := l.Recover(run.ID, func(id string) bool { return Alive(state, id) }); err != nil {
		return err
	}
	for i := 1; ; i++ {
		if l.State(rep("control", i)).Status == StatusDrawn {
			continue // else each costs an Append that is refused
		}
		intent := NewIntent(labelA, rep("control", i), run.ID)
		switch _, err := l.Append(intent); {
		case errors.Is(err, ErrDrawn):
			continue
		case err != nil:
			return err
		}
		fmt.Println("intent", i, run.ID)
		if _, err := l.Append(intent.Drawn(cap1, 1)); err != nil {
			return err
		}
		fmt.Println("draw", i, run.ID)
	}
}

// TestKill kills a process that draws, at a random moment or byte, again and
// again: what Append returned is there, once; no rep is drawn twice; what was
// interrupted is counted as abandoned.
func TestKill(t *testing.T) {
	rounds := 20
	switch {
	case *soak:
		rounds = 200
	case testing.Short():
		rounds = 5
	}
	dir := t.TempDir()
	path, state := filepath.Join(dir, Name), filepath.Join(dir, "runs")
	told := map[string]bool{}
	torn := 0
	for round := range rounds {
		die := 0
		if round%2 == 1 {
			die = 1 + mrand.IntN(20)
		}
		cmd := helper(t, "draw", path, state, strconv.Itoa(die))
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		wait, delay := mrand.IntN(20), time.Duration(mrand.IntN(3000))*time.Microsecond
		for s := bufio.NewScanner(out); s.Scan(); wait-- {
			told[s.Text()] = true
			if wait == 0 && die == 0 {
				time.AfterFunc(delay, func() { cmd.Process.Kill() })
			}
		}
		var exit *exec.ExitError
		if err := cmd.Wait(); !errors.As(err, &exit) || exit.ExitCode() != -1 {
			t.Fatalf("round %d: %v, %v", round, err, cmd.Stderr)
		}
		l := open(t, path)
		if l.Torn() != nil {
			torn++
		}
		checkKilled(t, l, told)
	}
	l := open(t, path)
	if _, err := l.Recover(runA, func(id string) bool { return Alive(state, id) }); err != nil {
		t.Fatal(err)
	}
	if c := l.Counts(labelA); c.Intents != c.Draws+c.Abandoned || c.Draws == 0 || c.Abandoned == 0 {
		t.Errorf("counts %+v", c)
	}
	t.Logf("%d kills, %d torn tails, %+v", rounds, torn, l.Counts(labelA))
}

func checkKilled(t *testing.T, l *Lock, told map[string]bool) {
	t.Helper()
	have := map[string]int{}
	draws := map[int]int{}
	for i, x := range l.Lines() {
		if x.Seq != int64(i+1) {
			t.Fatalf("line %d has seq %d", i+1, x.Seq)
		}
		have[fmt.Sprintln(x.Kind, x.Sample.Index, x.Run)]++
		if x.Kind == Draw {
			draws[x.Sample.Index]++
		}
	}
	for line := range told {
		if have[line+"\n"] != 1 {
			t.Fatalf("%s was appended and is there %d times", line, have[line+"\n"])
		}
	}
	for i, n := range draws {
		if n != 1 {
			t.Fatalf("rep %d is drawn %d times", i, n)
		}
	}
}

// helpLimit appends until the limit on the size of files stops it, then
// without the limit.
func helpLimit(args []string) error {
	signal.Ignore(unix.SIGXFSZ)
	l, err := Open(args[0])
	if err != nil {
		return err
	}
	var was unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_FSIZE, &was); err != nil {
		return err
	}
	if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: 4000, Max: was.Max}); err != nil {
		return err
	}
	for i := 1; ; i++ {
		before, err := os.ReadFile(args[0])
		if err != nil && i > 1 {
			return err
		}
		intent := NewIntent(labelA, rep("control", i), runA)
		if _, err = l.Append(intent); err == nil {
			continue
		}
		after, _ := os.ReadFile(args[0])
		if !errors.Is(err, unix.EFBIG) || !bytes.Equal(before, after) || i < 5 {
			return fmt.Errorf("append %d: %w; %d bytes, then %d", i, err, len(before), len(after))
		}
		if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &was); err != nil {
			return err
		}
		if _, err := l.Append(intent); err != nil {
			return err
		}
		if n := len(l.Lines()); n != i {
			return fmt.Errorf("%d lines, want %d", n, i)
		}
		return nil
	}
}

func TestFileSizeLimit(t *testing.T) {
	path := lockPath(t)
	cmd := helper(t, "limit", path)
	if err := cmd.Run(); err != nil {
		t.Fatal(err, cmd.Stderr)
	}
	open(t, path)
}
