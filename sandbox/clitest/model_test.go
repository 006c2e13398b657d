//go:build linux

package clitest

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
)

// A turn is what the model answers to one request: text, or a shell command
// for the CLI's own tool.
type turn struct{ say, run string }

// A protocol is what a provider speaks.
type protocol struct {
	// asks says whether a request is one for a turn of the model.
	asks func(r *http.Request) bool
	// result is what the last command of the model printed, as a request's body
	// tells it.
	result func(body []byte) string
	// answer is turn n as the events of a stream, each one JSON object.
	answer func(n int, t turn) []string
}

// A model is a scripted model server.
type model struct {
	*httptest.Server
	t testing.TB
	p protocol

	mu     sync.Mutex
	turns  []turn
	asked  []string // METHOD PATH of each request, in order
	bodies [][]byte // of the requests for a turn
}

func newModel(t testing.TB, p protocol, turns ...turn) *model {
	m := &model{t: t, p: p, turns: turns}
	m.Server = httptest.NewServer(m)
	t.Cleanup(m.Close)
	return m
}

func (m *model) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.asked = append(m.asked, r.Method+" "+r.URL.RequestURI())
	n := len(m.bodies)
	switch {
	case err != nil:
		m.t.Errorf("%s %s: %v", r.Method, r.URL, err)
		return
	case !m.p.asks(r):
		http.NotFound(w, r) // unscripted: the test sees it in asked
		return
	case n == len(m.turns):
		m.t.Errorf("a request beyond the script: %.2000s", body)
		http.Error(w, "the script has ended", http.StatusForbidden) // 4xx that no CLI tries again
		return
	}
	m.bodies = append(m.bodies, body)
	w.Header().Set("Content-Type", "text/event-stream")
	for _, event := range m.p.answer(n, m.turns[n]) {
		// The Responses API repeats the event's type in a line of its own.
		if kind := field(event, "type"); kind != "" {
			fmt.Fprintf(w, "event: %s\n", kind)
		}
		fmt.Fprintf(w, "data: %s\n\n", event)
	}
}

// check wants one request for each turn and no other.
func (m *model) check(want string) {
	m.t.Helper()
	m.mu.Lock()
	defer m.mu.Unlock()
	if all := slices.Repeat([]string{want}, len(m.turns)); !slices.Equal(m.asked, all) {
		m.t.Fatalf("the model was asked\n\t%s\nand not\n\t%s", strings.Join(m.asked, "\n\t"), strings.Join(all, "\n\t"))
	}
}
