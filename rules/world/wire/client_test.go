package wire

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

func client(t *testing.T, url string) *Client {
	t.Helper()
	c, err := NewClient(url, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// cut closes the connection as a world does: with a reset, or quietly.
func cut(w http.ResponseWriter, reset bool) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(err)
	}
	if reset {
		_ = conn.(*net.TCPConn).SetLinger(0)
	}
	conn.Close()
}

// TestCutIsOneAttempt: the first call succeeds, so that a client that keeps its
// connection has one to reuse; then net/http would send the second call twice.
func TestCutIsOneAttempt(t *testing.T) {
	for _, reset := range []bool{false, true} {
		for _, r := range []Request{
			{Method: "GET", Target: "/x"},
			{Method: "POST", Target: "/x", Body: []byte(`{"a":1}`)},
			{Method: "POST", Target: "/x", Body: []byte(`{"a":1}`), Key: "call-1"},
			{Method: "DELETE", Target: "/x"},
			{Method: "PUT", Target: "/x", Key: "k"},
		} {
			var calls atomic.Int32
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				if calls.Add(1) > 1 {
					cut(w, reset)
				}
			}))
			c := client(t, srv.URL)
			if got, err := c.Do(t.Context(), r); err != nil || !got.Delivered || got.Status != 200 {
				t.Fatalf("%v: first call: %+v, %v", r, got, err)
			}
			if got, err := c.Do(t.Context(), r); err != nil || got.Delivered || got.Status != 0 || got.Body != nil || !got.Failed() {
				t.Errorf("%v, reset %v: %+v, %v; a reply that was not delivered is meant", r, reset, got, err)
			}
			if n := calls.Load(); n != 2 {
				t.Errorf("%v, reset %v: the server saw %d calls of 2", r, reset, n)
			}
			srv.Close()
		}
	}
}

func TestCutInTheMiddleOfAReply(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "100")
		_, _ = w.Write([]byte(`{"id":`))
		panic(http.ErrAbortHandler)
	}))
	defer srv.Close()
	if got, err := client(t, srv.URL).Do(t.Context(), Request{Method: "GET", Target: "/"}); err != nil || got.Delivered {
		t.Errorf("%+v, %v", got, err)
	}
}

// TestNoLostReply: what is not a cut connection is an error.
func TestNoLostReply(t *testing.T) {
	nobody, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody.Close()
	if got, err := client(t, "http://"+nobody.Addr().String()).Do(t.Context(), Request{Method: "GET", Target: "/"}); err == nil || !strings.Contains(err.Error(), "request GET /: ") {
		t.Errorf("nobody listens: %+v, %v", got, err)
	}

	release := make(chan struct{})
	slow := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-release }))
	defer slow.Close()
	defer close(release)
	c, err := NewClient(slow.URL, time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := c.Do(t.Context(), Request{Method: "GET", Target: "/"}); err == nil || !strings.Contains(err.Error(), "no reply within 1ms") {
		t.Errorf("no answer: %+v, %v", got, err)
	}
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if _, err := client(t, slow.URL).Do(ctx, Request{Method: "GET", Target: "/"}); !errors.Is(err, context.Canceled) {
		t.Errorf("interrupted: %v", err)
	}
}

func TestMalformedReplyIsAnError(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			panic(err)
		}
		_, _ = conn.Write([]byte("SMTP 220 hello\r\n\r\n"))
		conn.Close()
	}))
	defer srv.Close()
	if got, err := client(t, srv.URL).Do(t.Context(), Request{Method: "GET", Target: "/"}); err == nil {
		t.Errorf("%+v", got)
	}
}

func TestWhatIsSent(t *testing.T) {
	var got *http.Request
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = r
		http.Redirect(w, r, "/elsewhere", http.StatusFound)
	}))
	defer srv.Close()
	reply, err := client(t, srv.URL+"/").Do(t.Context(), Request{Method: "PATCH", Target: "/a%20b/c?x=1&y=%C3%A9", Key: "k 1", Body: []byte("{}")})
	if err != nil || reply.Status != 302 {
		t.Fatalf("%+v, %v: a redirect is a reply", reply, err)
	}
	if got.Method != "PATCH" || got.URL.Path != "/a b/c" || got.URL.Query().Get("y") != "é" || got.Header.Get("Idempotency-Key") != "k 1" || got.Header.Get("Content-Type") != "application/json" {
		t.Errorf("%s %s %v", got.Method, got.URL, got.Header)
	}
}

func TestRequestCheck(t *testing.T) {
	for _, c := range []struct {
		r    Request
		want string
	}{
		{Request{Method: "GET", Target: "/x?a=b"}, ""},
		{Request{Method: "HEAD", Target: "/x"}, "is meant"},
		{Request{Method: "", Target: ""}, "is meant"},
		{Request{Method: "GET", Target: "x"}, "begins with /"},
		{Request{Method: "GET", Target: "/a b"}, "escaped"},
		{Request{Method: "GET", Target: "/a\r\nHost: x"}, "escaped"},
		{Request{Method: "GET", Target: "/a#b"}, "escaped"},
		{Request{Method: "GET", Target: "/%zz"}, "doesn't parse"},
		{Request{Method: "GET", Target: "/", Key: "a\nb"}, "control character"},
		{Request{Method: "GET", Target: "/", Key: "a "}, "a space at an end"},
		{Request{Method: "GET", Target: "/", Key: strings.Repeat("k", MaxKey)}, ""},
		{Request{Method: "GET", Target: "/", Key: strings.Repeat("k", MaxKey+1)}, "more than 255 bytes"},
	} {
		err := c.r.Check()
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%+v: %v, want %q", c.r, err, c.want)
		}
	}
}

// TestQuote: a request of 50 kB is no error of 50 kB.
func TestQuote(t *testing.T) {
	r := Request{Method: "GET", Target: "/" + strings.Repeat("x", 50_000) + "#"}
	if err := r.Check(); err == nil || len(err.Error()) > 300 || !strings.Contains(err.Error(), "xxx…\": the character '#' must be escaped") {
		t.Errorf("err = %v", err)
	}
}

func TestNewClientRefuses(t *testing.T) {
	for _, base := range []string{"", "127.0.0.1:8700", "https://x", "http://", "http://x/path", "http://x?y", "http://a b"} {
		if _, err := NewClient(base, time.Second); err == nil {
			t.Errorf("%q was accepted", base)
		}
	}
}

func TestFloat(t *testing.T) {
	for text, want := range map[string]bool{
		"1": true, "-0.5": true, "1e300": true, "2E-3": true, "1e301": false, "1e999": false,
		"": false, "nan": false, "inf": false, "-Infinity": false, "0x1p3": false, "1_0": false, " 1": false,
	} {
		if _, ok := Float(text); ok != want {
			t.Errorf("%q: %v", text, ok)
		}
	}
}
