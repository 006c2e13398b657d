package remotetest

import (
	"context"
	"crypto/sha1" // the best of what htpasswd files have that needs no further module
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	remoteexecution "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
)

// BazelRemoteOptions say how a bazel-remote is started. The zero value is a
// server on a TCP port of 127.0.0.1, open to all that reach it.
type BazelRemoteOptions struct {
	Dir     string // where it keeps what it has; "": a folder that goes with it
	MaxSize int    // of all it keeps, in GiB; 0: 2
	Unix    bool   // listen on a Unix socket, not on a port

	// With a user, calls need this name and password (basic authentication).
	User, Password string
	// With certificates the server speaks TLS; with ClientCertificates, calls
	// need one of the same authority.
	Certs              *Certs
	ClientCertificates bool
	// Reading needs neither a password nor a certificate.
	AllowUnauthenticatedReads bool

	Args []string // further flags
}

// A BazelRemote is a bazel-remote that was started here. Its methods may be
// called at any time, from any goroutine.
type BazelRemote struct {
	Dir string // cas.v2, ac.v2: what it keeps

	o       BazelRemoteOptions
	exe     string
	root    string // log, sockets, htpasswd, and Dir if none was named
	target  string // of its gRPC server
	client  credentials.TransportCredentials
	mu      sync.Mutex    // of what is below
	process *os.Process   // nil while there is none
	gone    chan struct{} // closed when process has ended
}

// ErrNoBazelRemote is why a BazelRemote can't be started at all.
var ErrNoBazelRemote = errors.New("there is no bin/tools/bazel-remote (`make deps` builds it)")

// BazelRemotePath finds the program in the module that holds the current
// folder, or fails with ErrNoBazelRemote.
func BazelRemotePath() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for ; ; dir = filepath.Dir(dir) {
		exe := filepath.Join(dir, "bin", "tools", "bazel-remote")
		if fi, err := os.Stat(exe); err == nil && fi.Mode().IsRegular() {
			return exe, nil
		}
		if dir == filepath.Dir(dir) {
			return "", ErrNoBazelRemote
		}
	}
}

// StartBazelRemote starts a server that ends with the test. Without the program
// the test is skipped, or fails if EVAL_STRICT is set.
func StartBazelRemote(t testing.TB, o BazelRemoteOptions) *BazelRemote {
	t.Helper()
	needBazelRemote(t)
	b, err := LaunchBazelRemote(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the end of bazel-remote's log:\n%s", tail(b.Log()))
		}
		if err := b.Stop(); err != nil {
			t.Error(err)
		}
	})
	return b
}

func needBazelRemote(t testing.TB) {
	t.Helper()
	_, err := BazelRemotePath()
	if err != nil && os.Getenv("EVAL_STRICT") != "" {
		t.Fatalf("EVAL_STRICT is set, and %v", err)
	}
	if err != nil {
		t.Skip(err)
	}
}

// LaunchBazelRemote starts a server and returns when it answers. The caller
// stops it.
func LaunchBazelRemote(o BazelRemoteOptions) (*BazelRemote, error) {
	exe, err := BazelRemotePath()
	if err != nil {
		return nil, err
	}
	// Not below the test's own folder: a socket's path has a hundred bytes at most.
	root, err := os.MkdirTemp("", "bazel-remote-")
	if err != nil {
		return nil, err
	}
	b := &BazelRemote{o: o, exe: exe, root: root, Dir: o.Dir}
	if b.Dir == "" {
		b.Dir = filepath.Join(root, "dir")
	}
	if err = b.prepare(); err == nil {
		// Between being found free and being listened to, a port can be taken.
		for range 5 {
			if err = b.pickAddress(); err != nil {
				break
			}
			if err = b.start(); err == nil || !strings.Contains(err.Error(), "address already in use") {
				break
			}
		}
	}
	if err != nil {
		os.RemoveAll(root)
		return nil, err
	}
	return b, nil
}

// prepare writes and reads the files that don't change from start to start.
func (b *BazelRemote) prepare() error {
	if b.o.User != "" {
		sum := sha1.Sum([]byte(b.o.Password))
		line := b.o.User + ":{SHA}" + base64.StdEncoding.EncodeToString(sum[:]) + "\n"
		if err := os.WriteFile(b.htpasswd(), []byte(line), 0o600); err != nil {
			return err
		}
	}
	b.client = insecure.NewCredentials()
	if c := b.o.Certs; c != nil {
		ca, err := os.ReadFile(c.CA)
		if err != nil {
			return err
		}
		config := &tls.Config{RootCAs: x509.NewCertPool()}
		config.RootCAs.AppendCertsFromPEM(ca)
		if b.o.ClientCertificates {
			pair, err := tls.LoadX509KeyPair(c.ClientCert, c.ClientKey)
			if err != nil {
				return err
			}
			config.Certificates = []tls.Certificate{pair}
		}
		b.client = credentials.NewTLS(config)
	}
	return nil
}

func (b *BazelRemote) htpasswd() string { return filepath.Join(b.root, "htpasswd") }
func (b *BazelRemote) logFile() string  { return filepath.Join(b.root, "log") }
func (b *BazelRemote) socket() string   { return filepath.Join(b.root, "grpc") }

// pickAddress takes a port below those that the kernel gives to outgoing
// connections, so that it is still free when the server is started again.
func (b *BazelRemote) pickAddress() error {
	if b.o.Unix {
		b.target = "unix://" + b.socket()
		return nil
	}
	var last error
	for range 100 {
		addr := fmt.Sprintf("127.0.0.1:%d", 15000+rand.IntN(17000))
		l, err := net.Listen("tcp", addr)
		if err != nil {
			last = err
			continue
		}
		b.target = addr
		return l.Close()
	}
	return fmt.Errorf("find a free port: %w", last)
}

// start starts the process at the address that was picked, and waits until it
// answers there.
func (b *BazelRemote) start() error {
	size := b.o.MaxSize
	if size == 0 {
		size = 2
	}
	// The HTTP side has a socket of its own: its port could be taken, and then the
	// server ends after its gRPC side has answered. An orphan ends by itself.
	web := filepath.Join(b.root, "http")
	args := []string{
		"--dir", b.Dir, "--max_size", fmt.Sprint(size), "--http_address", "unix://" + web, "--grpc_address", b.target,
		"--log_timezone", "none", "--idle_timeout", "10m",
	}
	if b.o.User != "" {
		args = append(args, "--htpasswd_file", b.htpasswd())
	}
	if c := b.o.Certs; c != nil {
		args = append(args, "--tls_cert_file", c.ServerCert, "--tls_key_file", c.ServerKey)
		if b.o.ClientCertificates {
			args = append(args, "--tls_ca_file", c.CA)
		}
	}
	if b.o.AllowUnauthenticatedReads {
		args = append(args, "--allow_unauthenticated_reads")
	}
	for _, s := range []string{web, b.socket()} { // a killed server leaves them
		if err := os.Remove(s); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	log, err := os.OpenFile(b.logFile(), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	from, err := log.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	cmd := exec.Command(b.exe, append(args, b.o.Args...)...)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		return err
	}
	gone := make(chan struct{})
	go func() {
		cmd.Wait()
		close(gone)
	}()
	b.process, b.gone = cmd.Process, gone
	if err := b.wait(from); err != nil {
		b.kill()
		return fmt.Errorf("start bazel-remote: %w\n%s", err, tail(b.logFrom(from)))
	}
	return nil
}

// startTime is what a slow machine may need for a start.
const startTime = time.Minute

// wait waits until this very process has answered: at a port that was taken
// after all, another would.
func (b *BazelRemote) wait(from int64) error {
	ctx, cancel := context.WithTimeout(context.Background(), startTime)
	defer cancel()
	go func() {
		select {
		case <-b.gone:
			cancel()
		case <-ctx.Done():
		}
	}()
	conn, err := b.Dial()
	if err != nil {
		return err
	}
	defer conn.Close()
	_, err = remoteexecution.NewCapabilitiesClient(conn).
		GetCapabilities(ctx, &remoteexecution.GetCapabilitiesRequest{}, grpc.WaitForReady(true))
	select {
	case <-b.gone:
		return errors.New("it ended")
	default:
	}
	if err != nil {
		return fmt.Errorf("it does not answer: %w", err)
	}
	if !strings.Contains(b.logFrom(from), "GRPC GETCAPABILITIES") {
		return fmt.Errorf("listen on %s: address already in use by another server", b.target)
	}
	return nil
}

// Address is what --remote_cache takes: grpc://, grpcs:// or unix://.
func (b *BazelRemote) Address() string {
	switch {
	case b.o.Unix:
		return b.target
	case b.o.Certs != nil:
		return "grpcs://" + b.target
	}
	return "grpc://" + b.target
}

// Target is what gRPC's own NewClient takes: 127.0.0.1:PORT or unix://PATH.
func (b *BazelRemote) Target() string { return b.target }

// Header is the header that lets a call pass, if there is a user.
func (b *BazelRemote) Header() (name, value string) {
	return "authorization", "Basic " + base64.StdEncoding.EncodeToString([]byte(b.o.User+":"+b.o.Password))
}

// Dial makes a plain gRPC client that may do everything.
func (b *BazelRemote) Dial(more ...grpc.DialOption) (*grpc.ClientConn, error) {
	opts := []grpc.DialOption{
		grpc.WithTransportCredentials(b.client),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 10 * time.Millisecond, Multiplier: 1.5, MaxDelay: 200 * time.Millisecond},
			MinConnectTimeout: 5 * time.Second,
		}),
	}
	if b.o.User != "" {
		opts = append(opts, grpc.WithPerRPCCredentials(basicAuth{b}))
	}
	return grpc.NewClient(b.target, append(opts, more...)...)
}

type basicAuth struct{ b *BazelRemote }

func (a basicAuth) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	name, value := a.b.Header()
	return map[string]string{name: value}, nil
}

func (basicAuth) RequireTransportSecurity() bool { return false }

// Pause stops the process where it is: its connections stay, and nothing is
// answered from now on.
func (b *BazelRemote) Pause() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.signal(syscall.SIGSTOP); err != nil {
		return err
	}
	return waitStopped(b.process.Pid)
}

// Resume lets a paused process go on.
func (b *BazelRemote) Resume() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.signal(syscall.SIGCONT)
}

func (b *BazelRemote) signal(s os.Signal) error {
	err := os.ErrProcessDone
	if b.process != nil {
		err = b.process.Signal(s)
	}
	if err != nil {
		return fmt.Errorf("signal bazel-remote: %w", err)
	}
	return nil
}

// Kill ends the process at once, paused or not. What it has written to Dir
// stays.
func (b *BazelRemote) Kill() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.kill()
}

func (b *BazelRemote) kill() {
	if b.process == nil {
		return
	}
	b.process.Kill()
	<-b.gone
	b.process = nil
}

// Restart kills the process and starts another at the same address, over the
// same Dir.
func (b *BazelRemote) Restart() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.kill()
	return b.start()
}

// Stop kills the process and removes what it has left, but not a Dir that was
// named.
func (b *BazelRemote) Stop() error {
	b.Kill()
	return os.RemoveAll(b.root)
}

// Log is all that it has said since the first start: each call is a line, as
// in "GRPC CAS PUT <hash> OK".
func (b *BazelRemote) Log() string { return b.logFrom(0) }

func (b *BazelRemote) logFrom(offset int64) string {
	data, err := os.ReadFile(b.logFile())
	if err != nil || int64(len(data)) < offset {
		return ""
	}
	return string(data[offset:])
}

// Corrupt flips a bit in the last byte of every blob in Dir that match accepts
// by the hash (nil: all), and says in how many; a second time it flips it back.
// Blobs are kept compressed unless Args has --storage_mode uncompressed: only
// then the server can't know, and serves a wrong blob of the right length.
func (b *BazelRemote) Corrupt(match func(hash string) bool) (int, error) {
	n := 0
	err := filepath.WalkDir(filepath.Join(b.Dir, "cas.v2"), func(p string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			if hash, _, _ := strings.Cut(d.Name(), "-"); match == nil || match(hash) {
				n++
				err = flipLast(p)
			}
		}
		if errors.Is(err, fs.ErrNotExist) { // evicted
			return nil
		}
		return err
	})
	return n, err
}

func flipLast(file string) error {
	f, err := os.OpenFile(file, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	fi, err := f.Stat()
	if err != nil || fi.Size() == 0 {
		return err
	}
	var last [1]byte
	if _, err := f.ReadAt(last[:], fi.Size()-1); err != nil {
		return err
	}
	last[0] ^= 1
	_, err = f.WriteAt(last[:], fi.Size()-1)
	return err
}

// tail is the end of a log, for an error.
func tail(s string) string {
	if len(s) > 2000 {
		s = s[len(s)-2000:]
	}
	return s
}
