package cas

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// The test program runs itself as another process: CAS_HELPER names one of
// these functions, which gets the arguments.
var helpers = map[string]func(args []string) error{
	"writer":   helpWriter,
	"lock":     helpLock,
	"count":    helpCount,
	"limit":    helpLimit,
	"readonly": helpReadOnly,
	"receipts": helpReceipts,
}

func TestMain(m *testing.M) {
	if name := os.Getenv("CAS_HELPER"); name != "" {
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
	cmd.Env = append(os.Environ(), "CAS_HELPER="+name)
	cmd.Stderr = new(bytes.Buffer)
	return cmd
}

// What the writer of a seed has written at a step is known to who looks later.
func stepResult(seed uint64, step int) (key Digest, class Class, blobs [][]byte) {
	id := seed<<20 | uint64(step)
	r := newRandom(id)
	key = BLAKE3.Sum(fmt.Append(nil, id))
	for i := range 2 {
		n := []int{10, 5000, 70_000}[r.IntN(3)]
		blob := noise(id, n)
		if r.IntN(2) == 0 {
			blob = append(fmt.Append(nil, id, i), prose(n)...)
		}
		blobs = append(blobs, blob)
	}
	class = Pure
	if step%4 == 0 { // these take time
		class = Capture
	}
	return key, class, blobs
}

func helpWriter(args []string) error {
	seed, err := strconv.ParseUint(args[1], 10, 64)
	if err != nil {
		return err
	}
	fmt.Println("opening")
	s, err := Open(Options{Cache: args[0] + "/cache", Data: args[0] + "/data"})
	if err != nil {
		return err
	}
	for step := 0; ; step++ {
		key, class, blobs := stepResult(seed, step)
		unlock, err := s.Lock(context.Background(), key)
		if err != nil {
			return err
		}
		out, err := s.Put(class, blobs[0])
		if err != nil {
			return err
		}
		stdout, err := s.PutReader(class, bytes.NewReader(blobs[1]))
		if err != nil {
			return err
		}
		r := Result{Files: []OutputFile{{"out", out, false, nil}}, Stdout: stdout}
		if err := s.PutResult(class, key, r); err != nil {
			return err
		}
		unlock()
		fmt.Println(step)
	}
}

// killer collects what a writer reports and kills it a moment after some line:
// so that a slow machine gets as far as a fast one.
type killer struct {
	text  bytes.Buffer
	lines int
	delay time.Duration
	cmd   *exec.Cmd
	done  bool
}

func (k *killer) Write(p []byte) (int, error) {
	k.text.Write(p)
	if !k.done && bytes.Count(k.text.Bytes(), []byte("\n")) > k.lines {
		k.done = true
		time.AfterFunc(k.delay, func() { k.cmd.Process.Kill() })
	}
	return len(p), nil
}

// Two writers at once on one store, both killed at some point; two rounds share
// a seed, so that they also write what is half there.
func TestKill(t *testing.T) {
	rounds := 30
	if testing.Short() {
		rounds = 5
	}
	dir := t.TempDir()
	random := newRandom(uint64(os.Getpid()))
	steps := map[uint64]int{} // reported as finished
	for round := range rounds {
		seed := uint64(round / 2)
		outputs := make([]killer, 2)
		var writers []*exec.Cmd
		for i := range outputs {
			cmd := helper(t, "writer", dir, strconv.FormatUint(seed, 10))
			outputs[i] = killer{lines: random.IntN(40), cmd: cmd, delay: time.Duration(random.IntN(3000)) * time.Microsecond}
			cmd.Stdout = &outputs[i]
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			writers = append(writers, cmd)
		}
		for i, cmd := range writers {
			cmd.Wait()
			if msg := fmt.Sprint(cmd.Stderr); msg != "" {
				t.Fatal(msg)
			}
			for line := range strings.Lines(outputs[i].text.String()) {
				if n, err := strconv.Atoi(strings.TrimSuffix(line, "\n")); err == nil && strings.HasSuffix(line, "\n") {
					steps[seed] = max(steps[seed], n+1)
				}
			}
		}
	}
	checkAfterKill(t, dir, steps)
}

func checkAfterKill(t *testing.T, dir string, steps map[uint64]int) {
	t.Helper()
	s := open(t, dir+"/cache", dir+"/data")
	hits := 0
	for seed, finished := range steps {
		for step := range finished + 50 {
			key, _, blobs := stepResult(seed, step)
			r, err := s.Lookup(Capture, key)
			var miss *MissError
			switch {
			case errors.As(err, &miss) && miss.Reason == "no result" && step >= finished:
				continue
			case err != nil:
				t.Fatalf("seed %d step %d of %d: %v", seed, step, finished, err)
			}
			hits++
			for i, d := range []Digest{r.Files[0].Digest, r.Stdout} {
				if b, err := s.Read(d); err != nil || !bytes.Equal(b, blobs[i]) {
					t.Fatalf("seed %d step %d: %v", seed, step, err)
				}
			}
		}
	}
	n, err := s.Verify(t.Context(), func(e Damage) { t.Error(&e) })
	if err != nil || hits == 0 {
		t.Errorf("%d hits, %+v, %v", hits, n, err)
	}
	for _, r := range s.roots(Pure) {
		if names, err := readDir(r.path("quarantine")); err != nil || len(names) > 0 {
			t.Errorf("quarantine holds %q, %v", names, err)
		}
	}
	t.Logf("%d hits, %d blobs", hits, n)
}

func helpLock(args []string) error {
	s, err := Open(Options{Cache: args[0], Data: args[0]})
	if err != nil {
		return err
	}
	if _, err := s.Lock(context.Background(), testKey); err != nil {
		return err
	}
	fmt.Println("locked")
	time.Sleep(time.Hour) // a bare select would be taken for a deadlock
	return nil
}

func TestLockFreedByKill(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, dir)
	cmd := helper(t, "lock", dir)
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err == nil {
		_, err = out.Read(make([]byte, 7))
	}
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := s.Lock(ctx, testKey); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("locked what another process holds: %v", err)
	}
	unlock, err := s.Lock(t.Context(), BLAKE3.Sum([]byte("another")))
	if err != nil {
		t.Fatal(err)
	}
	unlock()
	cmd.Process.Kill()
	cmd.Wait()
	if unlock, err = s.Lock(t.Context(), testKey); err != nil {
		t.Fatal(err)
	}
	unlock()
}

// helpCount adds one to the number in a file 50 times, under the lock.
func helpCount(args []string) error {
	s, err := Open(Options{Cache: args[0], Data: args[0]})
	if err != nil {
		return err
	}
	return count(s, args[0]+"/count", 50)
}

func count(s *Store, file string, times int) error {
	for range times {
		unlock, err := s.Lock(context.Background(), testKey)
		if err != nil {
			return err
		}
		b, err := os.ReadFile(file)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		n, _ := strconv.Atoi(string(b))
		if err := os.WriteFile(file, strconv.AppendInt(nil, int64(n+1), 10), 0o644); err != nil {
			return err
		}
		unlock()
	}
	return nil
}

// RLIMIT_FSIZE fails a write in its middle, as a full disk does, for root too.
func helpLimit(args []string) error {
	s, err := Open(Options{Cache: args[0], Data: args[0]})
	if err != nil {
		return err
	}
	signal.Ignore(syscall.SIGXFSZ)
	limit := unix.Rlimit{Cur: 100_000, Max: 100_000}
	if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &limit); err != nil {
		return err
	}
	b := noise(8, 150_000)
	_, err = s.Put(Capture, b)
	if !errors.Is(err, syscall.EFBIG) || !strings.HasPrefix(err.Error(), "write blob "+BLAKE3.Sum(b).String()+": ") {
		return fmt.Errorf("Put: %v", err)
	}
	if _, err = s.PutReader(Pure, bytes.NewReader(b)); !errors.Is(err, syscall.EFBIG) {
		return fmt.Errorf("PutReader: %v", err)
	}
	packed := append(prose(sampleSize), b...)
	if _, err = s.PutReader(Pure, bytes.NewReader(packed)); !errors.Is(err, syscall.EFBIG) {
		return fmt.Errorf("PutReader, packed: %v", err)
	}
	if err = s.PutResult(Capture, testKey, Result{Aux: map[string][]byte{"a": b}}); !errors.Is(err, syscall.EFBIG) {
		return fmt.Errorf("PutResult: %v", err)
	}
	big, err := ParseDigest(args[1])
	if err != nil {
		return err
	}
	if err = s.Export(big, args[0]+"/exported"); !errors.Is(err, syscall.EFBIG) {
		return fmt.Errorf("Export: %v", err)
	}
	_, err = s.Put(Capture, noise(9, 50_000))
	return err
}

func TestDiskFull(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, dir)
	old := noise(7, 200_000)
	d := put(t, s, Capture, old)
	cmd := helper(t, "limit", dir, d.String())
	if err := cmd.Run(); err != nil {
		t.Fatal(err, cmd.Stderr)
	}
	checkNoTemps(t, s)
	checkBlob(t, s, d, old)
	checkBlob(t, s, BLAKE3.Sum(noise(9, 50_000)), noise(9, 50_000))
	_, err := s.Lookup(Capture, testKey)
	wantLost(t, Pure, err, "no result")
	if n, err := s.Verify(t.Context(), func(e Damage) { t.Error(&e) }); n.Blobs != 2 || err != nil {
		t.Errorf("%+v, %v", n, err)
	}
	if names, err := filepath.Glob(dir + "/*exported*"); err != nil || len(names) > 0 {
		t.Errorf("left %q, %v", names, err)
	}
	if names, err := filepath.Glob(dir + "/.eval*"); err != nil || len(names) > 0 {
		t.Errorf("left %q, %v", names, err)
	}
}

// helpReadOnly runs as a user without rights on the folder.
func helpReadOnly(args []string) error {
	for _, o := range []Options{{Cache: args[0], Data: args[1]}, {Cache: args[1], Data: args[0]}, {Cache: args[0] + "/new", Data: args[1]}} {
		_, err := Open(o)
		if !errors.Is(err, fs.ErrPermission) || !strings.HasPrefix(err.Error(), "open store "+args[0]) {
			return fmt.Errorf("%+v: %v", o, err)
		}
	}
	s, err := Open(Options{Cache: args[1], Data: args[1]})
	if err != nil {
		return err
	}
	d, err := s.Put(Pure, []byte("x"))
	if err != nil {
		return err
	}
	if err = s.Export(d, args[0]+"/x"); !errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("Export: %v", err)
	}
	// A result that may not be read is one that may be there.
	if err := errors.Join(s.Delete(testKey), s.PutResult(Capture, testKey, Result{Stdout: d})); err != nil {
		return err
	}
	if err := os.Chmod(s.data.resultPath(testKey), 0); err != nil {
		return err
	}
	var incomplete *IncompleteError
	if _, err := s.Lookup(Capture, testKey); !errors.As(err, &incomplete) || !errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("Lookup: %v", err)
	}
	return nil
}

func TestReadOnlyRoot(t *testing.T) {
	dir := t.TempDir()
	readOnly, own := dir+"/readonly", dir+"/own"
	s := open(t, readOnly, readOnly)
	put(t, s, Pure, []byte("x"))
	if err := os.Mkdir(own, 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := helper(t, "readonly", readOnly, own)
	if os.Geteuid() == 0 {
		asNobody(t, cmd, dir, own)
	}
	for _, sub := range []string{"", "/tmp"} {
		if err := os.Chmod(readOnly+sub, 0o555); err != nil {
			t.Fatal(err)
		}
		defer os.Chmod(readOnly+sub, 0o755)
	}
	if err := cmd.Run(); err != nil {
		t.Error(err, cmd.Stderr)
	}
}

// asNobody has cmd run as a user whom permissions hold back. The program must be
// where that user can read it, which go test's own folder isn't.
func asNobody(t *testing.T, cmd *exec.Cmd, dir, own string) {
	t.Helper()
	const nobody = 65534
	b, err := os.ReadFile(cmd.Path)
	if err != nil {
		t.Fatal(err)
	}
	cmd.Path = dir + "/program"
	err = errors.Join(os.WriteFile(cmd.Path, b, 0o755), os.Chmod(cmd.Path, 0o755), os.Chown(own, nobody, nobody))
	for above := dir; strings.HasPrefix(above, os.TempDir()+"/"); above = filepath.Dir(above) {
		err = errors.Join(err, os.Chmod(above, 0o755))
	}
	if err != nil {
		t.Fatal(err)
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	cmd.Dir = dir
}
