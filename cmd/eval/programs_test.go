package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/evalbuild/eval/cas"
)

// Programs that scripts run; each is the test binary under another name.

// asUser runs ev as an ordinary user: `asuser ev build //x`. A caller who is
// one already stays who it is. On Linux the program is executed once more: a
// process that changed its uid isn't dumpable, and so can't seal.
func asUser() {
	const nobody = 65534
	if os.Getuid() == 0 {
		for _, err := range []error{syscall.Setgroups(nil), syscall.Setgid(nobody), syscall.Setuid(nobody)} {
			if err != nil {
				die("asuser: %v", err)
			}
		}
	}
	os.Args = os.Args[1:]
	syscall.Exec("/proc/self/exe", os.Args, os.Environ())
	os.Exit(run())
}

// later runs ev gc with a clock that is so many days ahead: `later 40 ev gc`.
func later() {
	days, err := strconv.ParseFloat(os.Args[1], 64)
	if err != nil {
		die("later: %v", err)
	}
	clock = func() time.Time { return time.Now().Add(time.Duration(days * 24 * float64(time.Hour))) }
	os.Args = os.Args[2:]
	os.Exit(run())
}

// putPaid records a capture of one text in the user's store, or in the one that
// is named, and prints its key: `putpaid TEXT [STORE]`.
func putPaid() {
	s := &settings{values: map[string]string{}}
	if len(os.Args) > 2 {
		s.values["store"] = os.Args[2]
	}
	cache, data, err := storeRoots(s)
	if err != nil {
		die("putpaid: %v", err)
	}
	store, err := cas.Open(cas.Options{Cache: cache, Data: data})
	if err != nil {
		die("putpaid: %v", err)
	}
	key := cas.BLAKE3.Sum([]byte("key of " + os.Args[1]))
	blob, err := store.Put(cas.Capture, []byte(os.Args[1]))
	if err == nil {
		err = store.PutResult(cas.Capture, key, cas.Result{Stdout: blob})
	}
	if err != nil {
		die("putpaid: %v", err)
	}
	fmt.Println(key)
}

// maxRSS asserts that a program keeps within so many MB: `rss 250 ev build //x`.
func maxRSS() {
	limit, err := strconv.Atoi(os.Args[1])
	if err != nil {
		die("rss: %v", err)
	}
	cmd := exec.Command(os.Args[2], os.Args[3:]...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if err := cmd.Run(); err != nil {
		die("rss: %v", err)
	}
	used := cmd.ProcessState.SysUsage().(*syscall.Rusage).Maxrss / 1024
	if runtime.GOOS == "darwin" { // bytes there
		used /= 1024
	}
	fmt.Fprintf(os.Stderr, "rss: %d MB\n", used)
	if int(used) > limit {
		die("rss: %s used %d MB, more than %d", strings.Join(os.Args[2:], " "), used, limit)
	}
}

// interrupt runs a program, sends it a signal once it says that a first action
// ran, and ends with its exit code, as a shell has it: `interrupt [-TERM] ev …`.
func interrupt() {
	signals := map[string]os.Signal{"-TERM": syscall.SIGTERM, "-KILL": syscall.SIGKILL}
	args := os.Args[1:]
	signal, ok := signals[args[0]]
	if ok {
		args = args[1:]
	} else {
		signal = os.Interrupt
	}
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Stdout = os.Stdout
	stderr, err := cmd.StderrPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		die("interrupt: %v", err)
	}
	r := bufio.NewReader(stderr)
	for sent := false; ; {
		line, err := r.ReadString('\n')
		io.WriteString(os.Stderr, line)
		if strings.HasPrefix(line, "[1/") && !sent {
			sent = true
			cmd.Process.Signal(signal)
		}
		if err != nil {
			break
		}
	}
	cmd.Wait()
	if status := cmd.ProcessState.Sys().(syscall.WaitStatus); status.Signaled() {
		os.Exit(128 + int(status.Signal()))
	}
	os.Exit(cmd.ProcessState.ExitCode())
}

// generate writes files that are too big or too strange for a script:
//
//	gen replies DIR N          N text replies an arm
//	gen codex FILE MB          a codex transcript with commands of 10 kB output
//	gen lines FILE N           a text of N lines
//	gen bytes FILE QUOTED…     bytes as in a Go string, \x00 and all; FILE likewise
//	gen flip DIR               one bit of the first file below DIR
func generate() {
	var err error
	switch what, dst := os.Args[1], os.Args[2]; what {
	case "replies":
		n, _ := strconv.Atoi(os.Args[3])
		err = os.MkdirAll(dst, 0o755)
		for i := 1; i <= n && err == nil; i++ {
			for arm, text := range map[string]string{"control": "Done, as number %d.\n", "treatment": "Which one, of %d?\n"} {
				err = os.WriteFile(filepath.Join(dst, fmt.Sprintf("%s-%d.txt", arm, i)), fmt.Appendf(nil, text, i), 0o644)
			}
		}
	case "codex":
		mb, _ := strconv.Atoi(os.Args[3])
		err = writeFile(dst, func(w io.Writer) { codexTranscript(w, filepath.Base(dst), mb<<20) })
	case "lines":
		n, _ := strconv.Atoi(os.Args[3])
		err = writeFile(dst, func(w io.Writer) {
			for i := range n {
				fmt.Fprintf(w, "line %d?\n", i)
			}
		})
	case "bytes":
		err = writeFile(goString(dst), func(w io.Writer) {
			for _, q := range os.Args[3:] {
				io.WriteString(w, goString(q))
			}
		})
	case "flip":
		err = flipBit(dst)
	default:
		die("gen: what is %s?", what)
	}
	if err != nil {
		die("gen: %v", err)
	}
}

func goString(q string) string {
	s, err := strconv.Unquote(`"` + strings.ReplaceAll(q, `"`, `\"`) + `"`)
	if err != nil {
		die("gen: %q: %v", q, err)
	}
	return s
}

func writeFile(path string, f func(io.Writer)) error {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	w := bufio.NewWriter(file)
	f(w)
	if err := w.Flush(); err != nil {
		return err
	}
	return file.Close()
}

func codexTranscript(w io.Writer, thread string, size int) {
	fmt.Fprintf(w, `{"type":"thread.started","thread_id":%q}`+"\n"+`{"type":"turn.started"}`+"\n", thread)
	output := strings.Repeat(`all is well\n`, 900)
	for n, id := 0, 0; n < size; id++ {
		m, _ := fmt.Fprintf(w, `{"type":"item.completed","item":{"id":"item_%d","type":"command_execution","command":"/bin/sh -lc 'cat log.%d'","aggregated_output":"%s","exit_code":0,"status":"completed"}}`+"\n",
			id, id, output)
		n += m
	}
	fmt.Fprintf(w, `{"type":"item.completed","item":{"id":"last","type":"agent_message","text":"Which one is meant?"}}`+"\n"+
		`{"type":"turn.completed","usage":{"input_tokens":10,"cached_input_tokens":0,"output_tokens":3,"reasoning_output_tokens":0}}`+"\n")
}

// flipBit changes a bit in the middle of the first file that it finds.
func flipBit(dir string) error {
	done := false
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || done || !d.Type().IsRegular() {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil || len(data) == 0 {
			return err
		}
		data[len(data)/2] ^= 1
		done = true
		os.Chmod(path, 0o644)
		return os.WriteFile(path, data, 0o444)
	})
	if err == nil && !done {
		err = fmt.Errorf("%s holds no file", dir)
	}
	return err
}

func die(format string, args ...any) {
	fmt.Fprintf(os.Stderr, format+"\n", args...)
	os.Exit(70)
}
