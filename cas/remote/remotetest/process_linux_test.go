package remotetest

import (
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

func TestBazelRemoteFull(t *testing.T) {
	b := StartBazelRemote(t, BazelRemoteOptions{})
	conn := dial(t, b)
	if err := b.SetFull(true); err != nil {
		t.Fatal(err)
	}
	err := putBlob(t.Context(), conn)
	if c := status.Code(err); c == codes.OK || c == codes.Unavailable {
		t.Errorf("put a blob on a full server: %v", err)
	}
	err = putResult(t.Context(), conn)
	if c := status.Code(err); c == codes.OK || c == codes.Unavailable {
		t.Errorf("put a result on a full server: %v", err)
	}
	if err := b.SetFull(false); err != nil {
		t.Fatal(err)
	}
	works(t, conn)
	if err := b.SetFull(true); err != nil {
		t.Fatal(err)
	}
	if err := getResult(t.Context(), conn); err != nil {
		t.Errorf("get a result from a full server: %v", err)
	}
}
