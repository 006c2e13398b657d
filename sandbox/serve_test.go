//go:build linux

package sandbox_test

import (
	"bufio"
	"context"
	"io"
	"net"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/evalbuild/eval/sandbox"
	"github.com/evalbuild/eval/workspace/graph"
)

// TestServe: the socket that listens inside is handed out, whoever has it serves
// the process, and when it is closed nothing answers.
func TestServe(t *testing.T) {
	s := newSandbox(t, sandbox.Options{})
	const code = `exec 3<>/dev/tcp/127.0.0.1/8700 && echo hello >&3 && head -n 1 <&3
exec 3>&-
while (exec 4<>/dev/tcp/127.0.0.1/8700) 2>/dev/null; do :; done; echo gone`
	spec := sandbox.Spec{
		Args:   []string{"/bin/bash", "-c", code},
		Policy: graph.Policy{Limits: graph.DefaultLimits, Forward: []graph.Forward{{Port: 8700, Target: graph.ServerTarget}}},
		Mounts: hostMounts(t, "/bin/bash", "/usr/bin/head"),
	}
	var heard string
	spec.Serve = func(f *os.File) error {
		defer f.Close()
		ln, err := net.FileListener(f)
		if err != nil {
			return err
		}
		go func() {
			defer ln.Close()
			c, err := ln.Accept()
			if err != nil {
				return
			}
			defer c.Close()
			heard, _ = bufio.NewReader(c).ReadString('\n')
			io.WriteString(c, "welcome\n")
		}()
		return nil
	}
	res := mustRun(t, s, spec)
	if got := string(res.Stdout.Data); got != "welcome\ngone\n" || heard != "hello\n" {
		t.Errorf("stdout %q, stderr %q, heard %q", got, res.Stderr.Data, heard)
	}
	if len(res.Egress) != 0 {
		t.Errorf("the harness carried something: %v", res.Egress)
	}
}

// TestControl: a socket as stdin stays open until the caller closes its end.
func TestControl(t *testing.T) {
	s := newSandbox(t, sandbox.Options{})
	for _, unsealed := range []bool{false, true} {
		pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		ours, theirs := os.NewFile(uintptr(pair[0]), "ours"), os.NewFile(uintptr(pair[1]), "theirs")
		spec := script(t, "cat; echo end", "/bin/cat")
		spec.Policy.Unsealed, spec.Control = unsealed, theirs
		go func() {
			io.WriteString(ours, "word\n")
			ours.Close()
		}()
		res, err := s.Run(context.Background(), spec)
		theirs.Close()
		if err != nil {
			t.Fatal(err)
		}
		if got := string(res.Stdout.Data); got != "word\nend\n" {
			t.Errorf("unsealed %v: stdout %q, stderr %q", unsealed, got, res.Stderr.Data)
		}
	}
}

// TestServeUnsealed: without a seal the port is a free one of this machine, and
// the process is told.
func TestServeUnsealed(t *testing.T) {
	s := newSandbox(t, sandbox.Options{})
	spec := script(t, "echo $"+graph.ServerURL)
	spec.Policy.Unsealed = true
	spec.Policy.Forward = []graph.Forward{{Port: 8700, Target: graph.ServerTarget}}
	var at string
	spec.Serve = func(f *os.File) error {
		defer f.Close()
		ln, err := net.FileListener(f)
		if err == nil {
			at = ln.Addr().String()
			err = ln.Close()
		}
		return err
	}
	res, err := s.Run(context.Background(), spec)
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.TrimSpace(string(res.Stdout.Data)); at == "" || got != "http://"+at {
		t.Errorf("it was told %q, and is served at %q", got, at)
	}
}
