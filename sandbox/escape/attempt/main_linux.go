// Attempt makes one attempt to get out of a seal, and says what came of it:
//
//	attempt [-o FILE] NAME [ARG…]     prints NAME RESULT
//
// RESULT is ok, the name of an errno, the name of the signal that ended the
// attempt, or a word that the attempt has for it. Each is made in a process of
// its own, since some end it and others change it. $NAME in an argument is
// replaced from the environment.
//
// No attempt does harm where it succeeds, for root outside of any seal neither:
// what is opened for writing isn't written to, calls about the whole machine get
// arguments that are refused after the caller's rights were looked at, and
// signals go to processes of the suite's own, or are signal 0.
package main

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A table has attempts by name. Their arguments are the words of the line.
type table map[string]func(args []string) string

// attempts are all tables in one.
func attempts() table {
	all := table{}
	for _, t := range []table{basics, files, processes, memory, kernel, sockets, outside} {
		maps.Copy(all, t)
	}
	return all
}

// direct attempts look at the process as it was started.
var direct = map[string]bool{"planted": true, "posture": true}

func main() {
	args := os.Args[1:]
	out := ""
	if len(args) > 2 && args[0] == "-o" {
		out, args = args[1], args[2:]
	}
	if len(args) > 1 && args[0] == "-1" {
		fmt.Print(run(args[1:]))
		return
	}
	if len(args) == 0 {
		fmt.Fprintln(os.Stderr, "usage: attempt [-o FILE] NAME [ARG...]")
		os.Exit(2)
	}
	var result string
	if direct[args[0]] {
		result = run(args)
	} else {
		result = inChild(args)
	}
	line := args[0] + " " + result + "\n"
	if out == "" {
		fmt.Print(line)
		return
	}
	if err := os.WriteFile(out, []byte(line), 0o644); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(args []string) string {
	f, ok := attempts()[args[0]]
	if !ok {
		fmt.Fprintf(os.Stderr, "attempt: what is %s?\n", args[0])
		os.Exit(2)
	}
	words := make([]string, len(args)-1)
	for i, a := range args[1:] {
		words[i] = os.ExpandEnv(a)
	}
	return f(words)
}

// childTime is above all that an attempt takes, and below a seal's wall limit.
const childTime = 20 * time.Second

func inChild(args []string) string {
	cmd := exec.Command("/proc/self/exe", append([]string{"-1"}, args...)...)
	cmd.Stdin, cmd.Stderr = os.Stdin, os.Stderr
	timer := time.AfterFunc(childTime, func() { cmd.Process.Kill() })
	defer timer.Stop()
	b, err := cmd.Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		if ws := exit.Sys().(syscall.WaitStatus); ws.Signaled() {
			return unix.SignalName(ws.Signal())
		}
		return fmt.Sprintf("exit %d", exit.ExitCode())
	}
	if err != nil {
		return is(err)
	}
	return string(b)
}

// is names an error.
func is(err error) string {
	var errno syscall.Errno
	switch {
	case err == nil:
		return "ok"
	case errors.As(err, &errno):
		return nameOf(errno)
	}
	return strings.ReplaceAll(err.Error(), " ", "-")
}

func nameOf(errno syscall.Errno) string {
	if errno == 0 {
		return "ok"
	}
	if errno == unix.EOPNOTSUPP {
		return "EOPNOTSUPP" // ErrnoName says ENOTSUP
	}
	if name := unix.ErrnoName(errno); name != "" {
		return name
	}
	return fmt.Sprintf("errno-%d", int(errno))
}

// self starts this program again with another attempt, which runs beside.
func self(args ...string) (*exec.Cmd, error) {
	cmd := exec.Command("/proc/self/exe", append([]string{"-1"}, args...)...)
	cmd.Stderr = os.Stderr
	return cmd, cmd.Start()
}

// onChild makes an attempt on a child that sleeps: who may do it to anybody may
// do it to that.
func onChild(f func(pid int) string) string {
	cmd, err := self("sleep", "5s")
	if err != nil {
		return "start-" + is(err)
	}
	defer func() {
		cmd.Process.Kill()
		cmd.Wait()
	}()
	// Until it has executed it is still us.
	for range 100 {
		if line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", cmd.Process.Pid)); strings.Contains(string(line), "sleep") {
			break
		}
		time.Sleep(time.Millisecond)
	}
	return f(cmd.Process.Pid)
}
