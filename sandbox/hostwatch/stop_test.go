package hostwatch

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

const childVariable = "HOSTWATCH_TEST_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(childVariable) != "" {
		if err := child(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// child watches from the start to the end of a line on its input.
func child() error {
	h := &Host{Period: 10 * time.Millisecond}
	w, err := h.Start()
	if err != nil {
		return err
	}
	fmt.Println("watching")
	if _, err := bufio.NewReader(os.Stdin).ReadString('\n'); err != nil {
		return err
	}
	v, err := w.Stop()
	fmt.Println(v.Stalled.Nanoseconds(), v.Suspended.Nanoseconds())
	return err
}

// TestSIGSTOP stops a real harness for a time: a tenth of MaxStalled, with a
// period to match. It waits for real, since nobody else's clock can be had.
func TestSIGSTOP(t *testing.T) {
	const stopped = MaxStalled / 10
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childVariable+"=1")
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Process.Kill()
	out := bufio.NewReader(pipe)
	if line, err := out.ReadString('\n'); line != "watching\n" {
		t.Fatal(line, err)
	}
	for _, s := range []syscall.Signal{syscall.SIGSTOP, syscall.SIGCONT} {
		if err := cmd.Process.Signal(s); err != nil {
			t.Fatal(err)
		}
		if s == syscall.SIGSTOP {
			time.Sleep(stopped)
		}
	}
	if _, err := in.Write([]byte("\n")); err != nil {
		t.Fatal(err)
	}
	line, err := out.ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	var stalled, suspended time.Duration
	if _, err := fmt.Sscan(strings.TrimSpace(line), &stalled, &suspended); err != nil {
		t.Fatal(line, err)
	}
	// The stop begins a little after the signal was sent.
	if stalled < stopped*9/10-10*time.Millisecond || suspended >= MaxSuspended {
		t.Errorf("stalled for %v, suspended for %v; it was stopped for %v", stalled, suspended, stopped)
	}
}
