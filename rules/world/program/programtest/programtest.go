// Package programtest runs the programs of a scenario in tests, as builds do: a
// server with a control socket as its standard input, in a folder of its own.
package programtest

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// Build builds the program in the working directory, runs the tests with its
// path and returns their exit code.
func Build(name string, run func(program string) int) int {
	dir, err := os.MkdirTemp("", name+"-*")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, name)
	if out, err := exec.Command("go", "build", "-trimpath", "-o", path, ".").CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "build: %v\n%s", err, out)
		return 1
	}
	return run(path)
}

// A Server is a program with a control socket.
type Server struct {
	Folder string // where it works; its files are below

	t       testing.TB
	cmd     *exec.Cmd
	control *net.UnixConn
	stderr  bytes.Buffer
}

// Start starts a program in a new folder with these files, name -> text.
func Start(t testing.TB, files map[string]string, program string, args ...string) *Server {
	t.Helper()
	s := &Server{t: t, Folder: t.TempDir()}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(s.Folder, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	ours, theirs := os.NewFile(uintptr(fds[0]), "control"), os.NewFile(uintptr(fds[1]), "stdin")
	syscall.CloseOnExec(fds[0]) // or the program would hold its own end open
	defer ours.Close()
	defer theirs.Close()
	conn, err := net.FileConn(ours)
	if err != nil {
		t.Fatal(err)
	}
	s.control = conn.(*net.UnixConn)
	t.Cleanup(func() { s.control.Close() })
	s.cmd = exec.CommandContext(t.Context(), program, args...)
	s.cmd.Dir, s.cmd.Stdin, s.cmd.Stderr = s.Folder, theirs, &s.stderr
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return s
}

// Control is the other end of the server's standard input.
func (s *Server) Control() *net.UnixConn { return s.control }

// Hand sends descriptors in one message.
func (s *Server) Hand(files ...*os.File) {
	s.t.Helper()
	var fds []int
	for _, f := range files {
		fds = append(fds, int(f.Fd()))
	}
	if _, _, err := s.control.WriteMsgUnix([]byte("l"), syscall.UnixRights(fds...), nil); err != nil {
		s.t.Fatal(err)
	}
}

// Serve hands the server a listener that nobody else holds, and returns its URL.
func (s *Server) Serve() (url string) {
	s.t.Helper()
	f, url := Listener(s.t)
	defer f.Close()
	s.Hand(f)
	return url
}

// Listener makes a listening socket.
func Listener(t testing.TB) (file *os.File, url string) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	f, err := ln.(*net.TCPListener).File()
	if err != nil {
		t.Fatal(err)
	}
	return f, "http://" + ln.Addr().String()
}

// End closes the control socket and returns how the program ended.
func (s *Server) End() (code int, stderr string) {
	s.t.Helper()
	s.control.Close()
	return s.wait()
}

// Interrupt sends the program a signal, with the control socket still open, and
// returns how it ended.
func (s *Server) Interrupt() (code int, stderr string) {
	s.t.Helper()
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		s.t.Fatal(err)
	}
	return s.wait()
}

func (s *Server) wait() (code int, stderr string) {
	s.t.Helper()
	err := s.cmd.Wait()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		s.t.Fatal(err)
	}
	return s.cmd.ProcessState.ExitCode(), s.stderr.String()
}

// CPU is what the program took of the processor in all its threads, in seconds,
// after End.
func (s *Server) CPU() float64 {
	state := s.cmd.ProcessState
	return (state.UserTime() + state.SystemTime()).Seconds()
}

// Memory is the most that the program had of it at once, in bytes, after End.
func (s *Server) Memory() int64 {
	return s.cmd.ProcessState.SysUsage().(*syscall.Rusage).Maxrss << 10
}

// Files are the names in the server's folder, sorted.
func (s *Server) Files() string { return Listing(s.t, s.Folder) }

// Listing are the names in a folder, sorted, with spaces between.
func Listing(t testing.TB, folder string) string {
	t.Helper()
	entries, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return strings.Join(names, " ")
}
