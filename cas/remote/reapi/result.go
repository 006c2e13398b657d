package reapi

import (
	"context"
	"errors"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"github.com/evalbuild/eval/cas"
	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/proto" // the codec that wireCodec falls back to
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// Result gives the bytes of the ActionResult under key as the server sent
// them, with all fields that nobody here knows. Bytes that are no ActionResult
// are an error of kind Garbage; nothing else of them is checked.
func (c *Client) Result(ctx context.Context, key cas.Digest) ([]byte, error) {
	const op = "look up result"
	if _, err := oneFunc([]cas.Digest{key}); err != nil {
		return nil, &Error{Op: op, Object: key.String(), Kind: Refused, Err: err}
	}
	req := &repb.GetActionResultRequest{InstanceName: c.instance, ActionDigest: wireDigest(key), DigestFunction: wireFunc(key.Func)}
	var resp wire
	err := c.unary(ctx, &c.small, op, key.String(), lookup, func(ctx context.Context, conn *conn) error {
		return conn.Invoke(ctx, repb.ActionCache_GetActionResult_FullMethodName, req, &resp, grpc.ForceCodecV2(wireCodec{}))
	})
	if err != nil {
		return nil, err
	}
	if err := proto.Unmarshal(resp.b, new(repb.ActionResult)); err != nil {
		return nil, &Error{Op: op, Object: key.String(), Kind: Garbage, Err: errors.New("not an ActionResult")}
	}
	return resp.b, nil
}

// PutResult writes msg, an encoded ActionResult, under key. What was there is
// replaced.
func (c *Client) PutResult(ctx context.Context, key cas.Digest, msg []byte) error {
	const op = "write result"
	if _, err := oneFunc([]cas.Digest{key}); err != nil {
		return &Error{Op: op, Object: key.String(), Kind: Refused, Err: err}
	}
	head, err := proto.Marshal(&repb.UpdateActionResultRequest{
		InstanceName: c.instance, ActionDigest: wireDigest(key), DigestFunction: wireFunc(key.Func),
	})
	if err != nil {
		return &Error{Op: op, Object: key.String(), Kind: Refused, Err: err}
	}
	const actionResult = 3
	req := wire{protowire.AppendBytes(protowire.AppendTag(head, actionResult, protowire.BytesType), msg)}
	return c.unary(ctx, &c.small, op, key.String(), write, func(ctx context.Context, conn *conn) error {
		var resp wire
		return conn.Invoke(ctx, repb.ActionCache_UpdateActionResult_FullMethodName, &req, &resp, grpc.ForceCodecV2(wireCodec{}))
	})
}

// wire is a message as it is on the wire.
type wire struct{ b []byte }

// wireCodec sends and receives *wire as it is, and other messages as usual.
type wireCodec struct{}

func (wireCodec) Marshal(v any) (mem.BufferSlice, error) {
	if w, ok := v.(*wire); ok {
		return mem.BufferSlice{mem.SliceBuffer(w.b)}, nil
	}
	return encoding.GetCodecV2("proto").Marshal(v)
}

func (wireCodec) Unmarshal(data mem.BufferSlice, v any) error {
	if w, ok := v.(*wire); ok {
		w.b = data.Materialize()
		return nil
	}
	return encoding.GetCodecV2("proto").Unmarshal(data, v)
}

func (wireCodec) Name() string { return "proto" }
