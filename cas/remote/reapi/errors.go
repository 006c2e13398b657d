package reapi

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Kind says what a failure means to the caller.
type Kind uint8

// The kinds. Zero is the kind of an error that isn't the server's, such as one
// of the reader whose bytes are written.
const (
	NotFound  Kind = iota + 1 // the server doesn't have it
	Denied                    // who we are is not enough: credentials are missing or don't allow it
	Refused                   // this request will never do: a wrong digest, too large, not implemented
	Full                      // there is no room for what was to be written
	Down                      // no server, no answer in time, cut, or it has trouble of its own
	Garbage                   // what came can't be decoded or breaks the protocol
	Cancelled                 // the caller's context ended; Unwrap gives its error
)

var kindNames = [...]string{"other", "not found", "denied", "refused", "full", "down", "garbage", "cancelled"}

// String gives one or two words.
func (k Kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return fmt.Sprintf("kind %d", uint8(k))
}

// Error is a failed call.
type Error struct {
	Op      string // "read blob", "look up result"
	Object  string // a digest, or the server's name if it is about the server
	Kind    Kind
	Timeout bool // Down because there was no answer within Options.Timeout
	// Vague of a write that was Refused says that the server told no reason: it may
	// dislike the digest, or have a full disk, as bazel-remote does.
	Vague bool
	Err   error
}

// Error gives "operation object: cause".
func (e *Error) Error() string { return e.Op + " " + e.Object + ": " + e.Err.Error() }

func (e *Error) Unwrap() error { return e.Err }

// KindOf gives the kind of an *Error that err is or wraps, else 0.
func KindOf(err error) Kind {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Kind
	}
	return 0
}

func codeOf(err error) codes.Code { return status.Code(err) }

// use is what a call is for: servers give one code several meanings.
type use uint8

const (
	lookup use = iota + 1 // may be NotFound: a result or blob is asked for
	ask                   // other reads
	write
)

// errStalled ends a call that has had no answer for Options.Timeout.
var errStalled = errors.New("no answer in time")

// failure is one attempt that failed: what it means and whether to try again.
type failure struct {
	kind    Kind
	code    codes.Code
	timeout bool
	again   int           // how often a call may be tried again after it
	wait    time.Duration // the server asked for at least that much
	err     error
}

const (
	retries = 3 // of what is transient
	// A server's "internal" may be trouble that passes, or how it says that a
	// digest is wrong: one more try is all it is worth.
	doubtful = 1
)

// garbage is an answer that breaks the protocol.
type garbage struct{ msg string }

func (g *garbage) Error() string { return g.msg }

// cut is a stream that ended early, though with no error.
type cut struct{ msg string }

func (c *cut) Error() string { return c.msg }

// classify judges the error of an attempt. ctx is the caller's; attempt is
// that of the attempt, whose cause is errStalled if we gave up.
func (c *Client) classify(ctx, attempt context.Context, u use, err error) failure {
	if err := ctx.Err(); err != nil {
		return failure{kind: Cancelled, code: codes.Canceled, err: err}
	}
	if attempt != nil && errors.Is(context.Cause(attempt), errStalled) {
		return failure{
			kind: Down, code: codes.DeadlineExceeded, timeout: true,
			err: fmt.Errorf("no answer in %v", c.timeout),
		}
	}
	if g, ok := errors.AsType[*garbage](err); ok {
		return failure{kind: Garbage, code: codes.Internal, err: g}
	}
	if e, ok := errors.AsType[*cut](err); ok {
		return failure{kind: Down, code: codes.Unavailable, again: retries, err: e}
	}
	st, ok := status.FromError(err)
	if !ok {
		return failure{kind: Down, code: codes.Unknown, again: retries, err: errors.New(c.clean(err.Error()))}
	}
	f := failure{code: st.Code(), wait: retryDelay(st)}
	f.kind, f.again = judge(st.Code(), st.Message(), u)
	f.timeout = st.Code() == codes.DeadlineExceeded
	f.err = errors.New(c.said(st))
	return f
}

// judge tells kind and retries of a code.
func judge(code codes.Code, msg string, u use) (Kind, int) {
	switch code {
	case codes.NotFound:
		if u == lookup {
			return NotFound, 0
		}
		return Refused, 0 // it is the instance or the method that isn't there
	case codes.Unauthenticated, codes.PermissionDenied:
		return Denied, 0
	case codes.InvalidArgument, codes.OutOfRange, codes.FailedPrecondition, codes.AlreadyExists, codes.Unimplemented:
		return Refused, 0
	case codes.Canceled:
		if strings.Contains(msg, "the client connection is closing") {
			return Cancelled, 0 // by Close
		}
	case codes.Unavailable:
		if strings.Contains(msg, "handshake failed") && (strings.Contains(msg, "x509:") || strings.Contains(msg, "tls:")) {
			return Down, 0 // a certificate won't be another one in a second
		}
	case codes.DataLoss:
		return Refused, 0 // a blob that the server knows to be damaged
	case codes.ResourceExhausted:
		switch {
		case strings.Contains(msg, "larger than max"):
			return Refused, 0 // of a message's size: both sides' gRPC says so
		case strings.Contains(msg, "RST_STREAM"), u != write:
			return Down, retries // of a rate; reading needs no room
		}
		return Full, 0
	case codes.Internal:
		switch {
		case strings.Contains(msg, "failed to unmarshal the received message"),
			strings.Contains(msg, "decompress"):
			return Garbage, 0
		case strings.Contains(msg, "RST_STREAM"), strings.Contains(msg, "server closed the stream without sending trailers"):
			return Down, retries
		}
		fallthrough
	case codes.Unknown:
		// Servers answer wrong digests with codes 13, 2 or 3.
		if u == write {
			return Refused, doubtful
		}
		return Down, doubtful
	}
	return Down, retries // Unavailable, DeadlineExceeded, Aborted, the server's own Canceled
}

// retryDelay is what a google.rpc.RetryInfo among the details asks for.
func retryDelay(st *status.Status) time.Duration {
	if len(st.Proto().GetDetails()) == 0 {
		return 0
	}
	for _, d := range st.Details() {
		if r, ok := d.(*errdetails.RetryInfo); ok {
			return r.GetRetryDelay().AsDuration()
		}
	}
	return 0
}

// said is what a status says, for a person.
func (c *Client) said(st *status.Status) string {
	if st.Message() == "" {
		return st.Code().String()
	}
	return c.clean(st.Code().String() + ": " + st.Message())
}

// clean makes a server's text fit for a line of output: no secrets, which a
// server or proxy may echo, no control characters, not endless.
func (c *Client) clean(s string) string {
	for _, secret := range c.secrets {
		s = strings.ReplaceAll(s, secret, "…")
	}
	s = strings.Map(func(r rune) rune {
		if r == utf8.RuneError || unicode.IsControl(r) {
			return ' '
		}
		return r
	}, s)
	const most = 500
	if len(s) > most {
		cut := most
		for !utf8.RuneStart(s[cut]) {
			cut--
		}
		s = s[:cut] + "…"
	}
	return strings.TrimSpace(s)
}
