package agent

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/evalbuild/eval/rules/world/wire"
)

// cutHere as a status cuts the connection.
const cutHere = 0

type scripted struct {
	status int
	body   string
}

// A fakeWorld answers each operation with its scripted replies, in turn; the last
// one stays. It notes every request.
type fakeWorld struct {
	replies map[string][]scripted // "POST /pay" -> replies; without an entry: 200 {}

	mu     sync.Mutex
	seen   []string // "POST /pay {"amount":1} key=call-1"
	report string   // body of the last POST /report
	counts map[string]int
}

func (f *fakeWorld) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(err)
	}
	op := r.Method + " " + r.URL.RequestURI()
	f.mu.Lock()
	if op == "POST /report" {
		f.report = string(body)
	} else {
		line := op
		if len(body) > 0 {
			line += " " + string(body)
		}
		if key := r.Header.Get("Idempotency-Key"); key != "" {
			line += " key=" + key
		}
		f.seen = append(f.seen, line)
	}
	if f.counts == nil {
		f.counts = map[string]int{}
	}
	n := f.counts[op]
	f.counts[op]++
	f.mu.Unlock()
	reply := scripted{200, "{}"}
	if all := f.replies[op]; len(all) > 0 {
		reply = all[min(n, len(all)-1)]
	}
	if reply.status == cutHere {
		panic(http.ErrAbortHandler)
	}
	w.WriteHeader(reply.status)
	fmt.Fprint(w, reply.body)
}

// start serves f and returns a client of it.
func (f *fakeWorld) start(t *testing.T) *wire.Client {
	t.Helper()
	srv := httptest.NewServer(f)
	t.Cleanup(srv.Close)
	c, err := wire.NewClient(srv.URL, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// wants compares what the world saw.
func (f *fakeWorld) wants(t *testing.T, seen []string, report string) {
	t.Helper()
	if got, want := strings.Join(f.seen, "\n"), strings.Join(seen, "\n"); got != want {
		t.Errorf("the world saw\n%s\nwant\n%s", got, want)
	}
	if f.report != report {
		t.Errorf("report %s\nwant   %s", f.report, report)
	}
}
