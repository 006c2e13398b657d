package main

import (
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// The tests here are agents that don't behave: whatever they do, the world ends
// well and says what they did.

func request(path, headers, body string) string {
	return fmt.Sprintf("POST %s HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n%sContent-Length: %d\r\n\r\n%s", path, headers, len(body), body)
}

// TestFireAndForget: calls of an agent that doesn't wait for replies are in the
// log, over MCP too, and half a call never is.
func TestFireAndForget(t *testing.T) {
	s, url := startServe(t)
	send := func(text string) {
		t.Helper()
		c, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := io.WriteString(c, text); err != nil {
			t.Fatal(err)
		}
	}
	const tool = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"s_post_rows","arguments":{"mcp":%d}}}`
	for n := range 50 {
		whole := request("/s/rows", "", fmt.Sprintf(`"whole %d"`, n))
		half := request("/s/rows", "", `"half"`)
		send(half[:len(half)-1-n%6])
		send(whole)
		send(request("/mcp", "Accept: application/json, text/event-stream\r\n", fmt.Sprintf(tool, n)))
	}
	if code, stderr := s.End(); code != 0 {
		t.Fatalf("exit %d: %s", code, stderr)
	}
	run, err := os.ReadFile(filepath.Join(s.Folder, "run.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	for n := range 50 {
		for _, want := range []string{fmt.Sprintf(`"body":"whole %d"`, n), fmt.Sprintf(`"body":{"mcp":%d}`, n)} {
			if strings.Count(string(run), want) != 1 {
				t.Errorf("%s is %d times in the log", want, strings.Count(string(run), want))
			}
		}
	}
	if n := strings.Count(string(run), "\n"); n != 100 {
		t.Errorf("%d calls in the log", n)
	}
}

// TestHalfSentBodies: 900 connections with most of a body each.
func TestHalfSentBodies(t *testing.T) {
	s, url := startServe(t)
	whole := request("/s/rows", "", `"`+strings.Repeat("x", 999_990)+`"`)
	var all sync.WaitGroup
	conns := make([]net.Conn, 900)
	for i := range conns {
		c, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		conns[i] = c
		all.Go(func() {
			c.SetWriteDeadline(time.Now().Add(2 * time.Second)) // what the server doesn't read stands in the sockets
			io.WriteString(c, whole[:len(whole)-1])
		})
	}
	all.Wait()
	for _, c := range conns {
		c.Close()
	}
	if code, stderr := s.End(); code != 0 {
		t.Fatalf("exit %d: %s", code, stderr)
	}
	if m := s.Memory(); m > 256<<20 {
		t.Errorf("the world took %d MiB", m>>20)
	}
	if run, err := os.ReadFile(filepath.Join(s.Folder, "run.jsonl")); err != nil || len(run) != 0 {
		t.Errorf("run.jsonl: %.200q, %v", run, err)
	}
}
