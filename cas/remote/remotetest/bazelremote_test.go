package remotetest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	remoteexecution "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
)

func digestOf(data []byte) *remoteexecution.Digest {
	sum := sha256.Sum256(data)
	return &remoteexecution.Digest{Hash: hex.EncodeToString(sum[:]), SizeBytes: int64(len(data))}
}

func dial(t *testing.T, b *BazelRemote) *grpc.ClientConn {
	t.Helper()
	conn, err := b.Dial()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

var (
	blob   = []byte("what was paid for\n")
	action = digestOf([]byte("an action"))
)

func putBlob(ctx context.Context, conn *grpc.ClientConn) error {
	got, err := remoteexecution.NewContentAddressableStorageClient(conn).BatchUpdateBlobs(ctx, &remoteexecution.BatchUpdateBlobsRequest{
		Requests: []*remoteexecution.BatchUpdateBlobsRequest_Request{{Digest: digestOf(blob), Data: blob}},
	})
	if err != nil {
		return err
	}
	return status.ErrorProto(got.Responses[0].Status)
}

func getBlob(ctx context.Context, conn *grpc.ClientConn) ([]byte, error) {
	got, err := remoteexecution.NewContentAddressableStorageClient(conn).BatchReadBlobs(ctx, &remoteexecution.BatchReadBlobsRequest{
		Digests: []*remoteexecution.Digest{digestOf(blob)},
	})
	if err != nil {
		return nil, err
	}
	return got.Responses[0].Data, status.ErrorProto(got.Responses[0].Status)
}

func putResult(ctx context.Context, conn *grpc.ClientConn) error {
	_, err := remoteexecution.NewActionCacheClient(conn).UpdateActionResult(ctx, &remoteexecution.UpdateActionResultRequest{
		ActionDigest: action,
		ActionResult: &remoteexecution.ActionResult{OutputFiles: []*remoteexecution.OutputFile{{Path: "reply.txt", Digest: digestOf(blob)}}},
	})
	return err
}

func getResult(ctx context.Context, conn *grpc.ClientConn) error {
	got, err := remoteexecution.NewActionCacheClient(conn).GetActionResult(ctx, &remoteexecution.GetActionResultRequest{ActionDigest: action})
	if err == nil && (len(got.OutputFiles) != 1 || got.OutputFiles[0].Digest.Hash != digestOf(blob).Hash) {
		err = errors.New("another result came")
	}
	return err
}

// works puts a blob and a result, and gets them back.
func works(t *testing.T, conn *grpc.ClientConn) {
	t.Helper()
	for _, step := range []struct {
		name string
		f    func(context.Context, *grpc.ClientConn) error
	}{{"put a blob", putBlob}, {"put a result", putResult}, {"get a result", getResult}} {
		if err := step.f(t.Context(), conn); err != nil {
			t.Fatalf("%s: %v", step.name, err)
		}
	}
	if got, err := getBlob(t.Context(), conn); err != nil || !bytes.Equal(got, blob) {
		t.Fatalf("get a blob: %q, %v", got, err)
	}
}

func TestBazelRemote(t *testing.T) {
	for name, o := range map[string]BazelRemoteOptions{
		"plain":    {},
		"unix":     {Unix: true},
		"password": {User: "ann", Password: "correct:horse"},
		"tls":      {Certs: Certificates(t)},
		"mtls":     {Certs: Certificates(t), ClientCertificates: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := StartBazelRemote(t, o)
			works(t, dial(t, b))
			scheme, _, _ := strings.Cut(b.Address(), "://")
			if want := map[string]string{"unix": "unix", "tls": "grpcs", "mtls": "grpcs"}[name]; scheme != want && !(want == "" && scheme == "grpc") {
				t.Errorf("the address is %s", b.Address())
			}
		})
	}
}

// wants is the code of a call that must fail.
func wants(t *testing.T, what string, err error, code codes.Code) {
	t.Helper()
	if status.Code(err) != code {
		t.Errorf("%s: %v; %v is meant", what, err, code)
	}
}

// a stranger has neither password nor certificate, or those that are named.
func stranger(t *testing.T, b *BazelRemote, certs *Certs, user string) *grpc.ClientConn {
	t.Helper()
	s := &BazelRemote{target: b.target, o: b.o}
	s.o.User, s.o.ClientCertificates = user, false
	if certs != nil {
		trusted := *certs
		trusted.CA = b.o.Certs.CA
		s.o.Certs, s.o.ClientCertificates = &trusted, true
	}
	s.root = t.TempDir()
	if err := s.prepare(); err != nil {
		t.Fatal(err)
	}
	return dial(t, s)
}

func TestBazelRemoteRefuses(t *testing.T) {
	t.Run("password", func(t *testing.T) {
		b := StartBazelRemote(t, BazelRemoteOptions{User: "ann", Password: "secret"})
		for _, user := range []string{"", "bob"} {
			conn := stranger(t, b, nil, user)
			wants(t, "put", putBlob(t.Context(), conn), codes.Unauthenticated)
			wants(t, "get", getResult(t.Context(), conn), codes.Unauthenticated)
		}
		if strings.Contains(b.Log(), "secret") {
			t.Error("the password is in the log")
		}
	})
	t.Run("certificate", func(t *testing.T) {
		b := StartBazelRemote(t, BazelRemoteOptions{Certs: Certificates(t), ClientCertificates: true})
		wants(t, "without", putBlob(t.Context(), stranger(t, b, nil, "")), codes.Unauthenticated)
		wants(t, "another authority's", putBlob(t.Context(), stranger(t, b, Certificates(t), "")), codes.Unavailable)
		conn, err := grpc.NewClient(b.Target(), grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		wants(t, "without TLS", putBlob(t.Context(), conn), codes.Unavailable)
		conn, err = grpc.NewClient(b.Target(), grpc.WithTransportCredentials(credentials.NewTLS(nil)))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		wants(t, "with an authority of the machine", putBlob(t.Context(), conn), codes.Unavailable)
	})
}

func TestBazelRemoteReadOnly(t *testing.T) {
	for name, o := range map[string]BazelRemoteOptions{
		"password":    {User: "ann", Password: "secret", AllowUnauthenticatedReads: true},
		"certificate": {Certs: Certificates(t), ClientCertificates: true, AllowUnauthenticatedReads: true},
	} {
		t.Run(name, func(t *testing.T) {
			b := StartBazelRemote(t, o)
			works(t, dial(t, b))
			conn := stranger(t, b, nil, "")
			if err := getResult(t.Context(), conn); err != nil {
				t.Error(err)
			}
			wants(t, "put", putResult(t.Context(), conn), codes.Unauthenticated)
		})
	}
}

func TestBazelRemoteFaults(t *testing.T) {
	for _, unix := range []bool{false, true} {
		b := StartBazelRemote(t, BazelRemoteOptions{Unix: unix})
		conn := dial(t, b)
		works(t, conn)

		if err := b.Pause(); err != nil {
			t.Fatal(err)
		}
		if err := b.Pause(); err != nil {
			t.Errorf("pause once more: %v", err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		wants(t, "get from a paused server", getResult(ctx, conn), codes.DeadlineExceeded)
		cancel()
		if err := b.Resume(); err != nil {
			t.Fatal(err)
		}
		if err := getResult(t.Context(), conn); err != nil {
			t.Errorf("resumed: %v", err)
		}

		b.Kill()
		wants(t, "get from a dead server", getResult(t.Context(), conn), codes.Unavailable)
		if err := b.Pause(); !errors.Is(err, os.ErrProcessDone) {
			t.Errorf("pause a dead server: %v", err)
		}
		before := b.Address()
		if err := b.Restart(); err != nil {
			t.Fatal(err)
		}
		if b.Address() != before {
			t.Errorf("restarted at %s, not %s", b.Address(), before)
		}
		ctx, cancel = context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		conn.ResetConnectBackoff()
		_, err := remoteexecution.NewActionCacheClient(conn).GetActionResult(ctx, &remoteexecution.GetActionResultRequest{ActionDigest: action}, grpc.WaitForReady(true))
		if err != nil {
			t.Errorf("restarted: %v", err)
		}
		if err := b.Pause(); err != nil {
			t.Fatal(err)
		}
		if err := b.Restart(); err != nil {
			t.Errorf("restart a paused server: %v", err)
		}
	}
}

func TestBazelRemoteCorrupt(t *testing.T) {
	b := StartBazelRemote(t, BazelRemoteOptions{Args: []string{"--storage_mode", "uncompressed"}})
	conn := dial(t, b)
	works(t, conn)
	if n, err := b.Corrupt(func(hash string) bool { return hash != digestOf(blob).Hash }); n != 0 || err != nil {
		t.Errorf("corrupted %d, %v", n, err)
	}
	if n, err := b.Corrupt(nil); n != 1 || err != nil {
		t.Errorf("corrupted %d, %v", n, err)
	}
	got, err := getBlob(t.Context(), conn)
	if err != nil || len(got) != len(blob) || bytes.Equal(got, blob) {
		t.Errorf("a corrupt blob came as %q, %v", got, err)
	}

	// Where blobs are compressed, nothing wrong is served as if it were right.
	b = StartBazelRemote(t, BazelRemoteOptions{})
	conn = dial(t, b)
	works(t, conn)
	if n, err := b.Corrupt(nil); n != 1 || err != nil {
		t.Errorf("corrupted %d, %v", n, err)
	}
	got, err = getBlob(t.Context(), conn)
	if err == nil {
		t.Errorf("a corrupt compressed blob came as %q", got)
	}
}

// TestBazelRemoteTaken starts servers where others are: each answer has to be
// that of the process that was started.
func TestBazelRemoteTaken(t *testing.T) {
	first := StartBazelRemote(t, BazelRemoteOptions{})
	second := StartBazelRemote(t, BazelRemoteOptions{})
	second.mu.Lock()
	defer second.mu.Unlock()
	second.kill()
	own := second.target
	second.target = first.target
	err := second.start()
	if err == nil || !strings.Contains(err.Error(), "address already in use") {
		t.Errorf("started at a port that another has: %v", err)
	}
	second.target = own
	if err := second.start(); err != nil {
		t.Error(err)
	}
}

func TestBazelRemoteFails(t *testing.T) {
	needBazelRemote(t)
	before := time.Now()
	b, err := LaunchBazelRemote(BazelRemoteOptions{Args: []string{"--storage_mode", "sideways"}})
	if err == nil {
		b.Stop()
		t.Fatal("it started")
	}
	if !strings.Contains(err.Error(), "storage_mode") || time.Since(before) > startTime/2 {
		t.Errorf("after %v: %v", time.Since(before), err)
	}
}
