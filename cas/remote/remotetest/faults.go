package remotetest

import (
	"context"
	"path"
	"slices"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/proto" // the codec that rawCodec falls back to
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// Fault is what goes wrong in one call.
type Fault struct {
	Times int // for that many calls; 0 is 1, less than 0 is for ever

	Hang    <-chan struct{}      // the call does nothing until it is closed, or the call's context ends
	Code    codes.Code           // the call fails with it; with Cut the stream does
	Message string               // of the failure
	Detail  proto.Message        // of the failure
	Cut     bool                 // a stream fails after After bytes, by default with Unavailable
	Short   bool                 // a stream of Read ends well after After bytes
	After   int64                // of the messages' data
	Stall   <-chan struct{}      // a stream stops after After bytes, as by Hang
	Garbage bool                 // the answer is no message at all
	Flip    bool                 // a bit of each blob that is read is wrong
	More    bool                 // a stream of Read has a byte too many
	Present bool                 // FindMissingBlobs: nothing is missing
	Lose    bool                 // a write succeeds, and what came is lost
	Do      func(method string)  // called first
	Alter   func(answer any) any // changes the answer of a unary call
}

// Inject lets the next calls of a method go wrong, each by the next fault of
// the list. Method "" is any that has no faults of its own.
func (f *Fake) Inject(method string, faults ...Fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.faults[method] = append(f.faults[method], faults...)
}

// Heal forgets the faults that have not happened.
func (f *Fake) Heal() {
	f.mu.Lock()
	defer f.mu.Unlock()
	clear(f.faults)
}

// nextFault is called with the lock held.
func (f *Fake) nextFault(method string) Fault {
	if len(f.faults[method]) == 0 {
		method = ""
	}
	list := f.faults[method]
	if len(list) == 0 {
		return Fault{}
	}
	next := list[0]
	switch {
	case next.Times > 1:
		list[0].Times--
	case next.Times >= 0:
		f.faults[method] = slices.Delete(list, 0, 1)
	}
	return next
}

// call is what the code below an interceptor must know.
type call struct {
	Fault
	method string
	raw    []byte // answer with these bytes
}

type callKey struct{}

func callOf(ctx context.Context) *call { return ctx.Value(callKey{}).(*call) }

// begin counts a call and lets it fail. end must be called.
func (f *Fake) begin(ctx context.Context, fullMethod string) (_ context.Context, c *call, end func(), err error) {
	c = &call{method: path.Base(fullMethod)}
	md, _ := metadata.FromIncomingContext(ctx)
	f.mu.Lock()
	c.Fault = f.nextFault(c.method)
	f.calls[c.method]++
	f.flying[c.method]++
	f.headers = append(f.headers, md)
	before := f.knobs.Before
	f.stir()
	f.mu.Unlock()
	end = func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.flying[c.method]--
		f.stir()
	}
	if before != nil {
		before(ctx, c.method)
	}
	if c.Do != nil {
		c.Do(c.method)
	}
	if c.Hang != nil {
		if err := hang(ctx, c.Hang); err != nil {
			return nil, c, end, err
		}
	}
	if c.Code != codes.OK && !c.Cut {
		return nil, c, end, c.failure()
	}
	return context.WithValue(ctx, callKey{}, c), c, end, nil
}

func hang(ctx context.Context, until <-chan struct{}) error {
	select {
	case <-until:
		return nil
	case <-ctx.Done():
		return status.FromContextError(ctx.Err()).Err()
	}
}

func (c *call) failure() error {
	code := c.Code
	if code == codes.OK {
		code = codes.Unavailable
	}
	msg := c.Message
	if msg == "" {
		msg = "as the test wants it"
	}
	st := status.New(code, msg)
	if c.Detail != nil {
		if with, err := st.WithDetails(protoV1(c.Detail)); err == nil {
			st = with
		}
	}
	return st.Err()
}

func (f *Fake) unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	ctx, c, end, err := f.begin(ctx, info.FullMethod)
	defer end()
	f.recordMessage(c.method, req)
	if err != nil {
		return nil, err
	}
	resp, err := handler(ctx, req)
	switch {
	case err != nil:
		return nil, err
	case c.Garbage:
		return &raw{garbageBytes}, nil
	case c.Alter != nil:
		return c.Alter(resp), nil
	case c.raw != nil:
		return &raw{c.raw}, nil
	}
	return resp, nil
}

func (f *Fake) recordMessage(method string, m any) {
	if f.knob().NoRecord {
		return
	}
	if m, ok := m.(proto.Message); ok {
		if b, err := proto.Marshal(m); err == nil {
			f.record(method, b)
		}
	}
}

func (f *Fake) stream(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	ctx, c, end, err := f.begin(ss.Context(), info.FullMethod)
	defer end()
	if err != nil {
		return err
	}
	return handler(srv, &faultyStream{ss, ctx, c, f})
}

type faultyStream struct {
	grpc.ServerStream
	ctx context.Context
	c   *call
	f   *Fake
}

func (s *faultyStream) Context() context.Context { return s.ctx }

func (s *faultyStream) RecvMsg(m any) error {
	err := s.ServerStream.RecvMsg(m)
	if err == nil {
		s.f.recordMessage(s.c.method, m)
	}
	return err
}

func (s *faultyStream) SendMsg(m any) error {
	if s.c.Garbage {
		m = &raw{garbageBytes}
	}
	return s.ServerStream.SendMsg(m)
}

// spend takes n bytes of a stream off what is left of it, and tells how many
// may pass before the stream ends, as err says. It may hang.
func (c *call) spend(ctx context.Context, n int) (pass int, err error) {
	if !c.Cut && !c.Short && c.Stall == nil {
		return n, nil
	}
	if int64(n) <= c.After {
		c.After -= int64(n)
		return n, nil
	}
	pass = int(c.After)
	c.After = 0
	switch {
	case c.Stall != nil && pass > 0:
		return pass, nil // and hang before the next byte
	case c.Stall != nil:
		if err := hang(ctx, c.Stall); err != nil {
			return 0, err
		}
		c.Stall = nil
		return n, nil
	case c.Short:
		return pass, errShort
	}
	return pass, c.failure()
}

var garbageBytes = []byte("\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xffgarbage")

// raw is an answer as it goes over the wire.
type raw struct{ b []byte }

type rawCodec struct{}

func (rawCodec) Marshal(v any) (mem.BufferSlice, error) {
	if r, ok := v.(*raw); ok {
		return mem.BufferSlice{mem.SliceBuffer(r.b)}, nil
	}
	return encoding.GetCodecV2("proto").Marshal(v)
}

func (rawCodec) Unmarshal(b mem.BufferSlice, v any) error {
	return encoding.GetCodecV2("proto").Unmarshal(b, v)
}

func (rawCodec) Name() string { return "proto" }
