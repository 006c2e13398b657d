package reapi

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"github.com/evalbuild/eval/cas"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"
)

// Header is sent with every call. Its value is a secret: it is in no error.
type Header struct {
	Name  string // lower-cased; not "grpc-…" nor what gRPC sets itself
	Value string // printable ASCII; of a name that ends in "-bin", the base64 of any bytes
}

// String gives the name alone.
func (h Header) String() string { return h.Name + "=…" }

// GoString gives the name alone.
func (h Header) GoString() string { return h.String() }

// Options says which server and how to speak with it.
type Options struct {
	Address string // grpc://HOST:PORT[/INSTANCE], grpcs://HOST:PORT[/INSTANCE] or unix:///PATH[?instance=NAME]
	Headers []Header

	// PEM files, read by New, only with grpcs: whom to believe ("" is the
	// system's roots) and who we are ("" is nobody).
	CA, Cert, Key string

	// Timeout is how long the server may give no answer, and a stream make no
	// progress; zero is DefaultTimeout.
	Timeout time.Duration

	// Prefer is the digest function to use if the server has it; zero is BLAKE3.
	Prefer cas.Func
}

// DefaultTimeout is what Bazel waits, too.
const DefaultTimeout = 60 * time.Second

// requestMetadata is the header in which REAPI wants to know who calls.
const requestMetadata = "build.bazel.remote.execution.v2.requestmetadata-bin"

// headers gives what goes with every call, and the values that no error may show.
func (o Options) headers() (md metadata.MD, secrets []string, err error) {
	who, err := proto.Marshal(&repb.RequestMetadata{ToolDetails: &repb.ToolDetails{ToolName: "eval"}})
	if err != nil {
		return nil, nil, err
	}
	md = metadata.MD{requestMetadata: {string(who)}}
	for _, h := range o.Headers {
		name := strings.ToLower(h.Name)
		if err := checkHeaderName(name); err != nil {
			return nil, nil, err
		}
		value, err := headerValue(name, h.Value)
		if err != nil {
			return nil, nil, err
		}
		md[name] = append(md[name], value)
		secrets = append(secrets, secretParts(h.Value)...)
	}
	return md, secrets, nil
}

// secretParts gives a value and its words, since who echoes a header may leave
// out the "Basic" of it. What is too short to be a secret would only spoil the
// error's text.
func secretParts(value string) []string {
	var parts []string
	for _, p := range append([]string{value}, strings.Fields(value)...) {
		if len(p) >= 8 {
			parts = append(parts, p)
		}
	}
	return parts
}

func checkHeaderName(name string) error {
	if name == "" {
		return errors.New("a header has no name")
	}
	for _, c := range []byte(name) {
		switch {
		case 'a' <= c && c <= 'z', '0' <= c && c <= '9', c == '-', c == '_', c == '.':
		default:
			// The name may be a value that was given in the wrong order.
			return fmt.Errorf("a header's name contains %q; want letters, digits, '-', '_' and '.'", c)
		}
	}
	switch name {
	case "content-type", "te", "user-agent", "host", "connection", "content-length", "transfer-encoding", requestMetadata:
		return fmt.Errorf("header %s: it is set by the protocol", name)
	}
	if strings.HasPrefix(name, "grpc-") {
		return fmt.Errorf("header %s: names in grpc- are the protocol's", name)
	}
	return nil
}

func headerValue(name, value string) (string, error) {
	if strings.HasSuffix(name, "-bin") {
		b, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(value, "="))
		if err != nil {
			return "", fmt.Errorf("header %s: the value of a header in -bin must be base64", name)
		}
		return string(b), nil
	}
	for _, c := range []byte(value) {
		if c < ' ' || c > '~' {
			return "", fmt.Errorf("header %s: the value has a character that is not printable ASCII", name)
		}
	}
	if strings.TrimSpace(value) != value {
		return "", fmt.Errorf("header %s: the value begins or ends with a space", name)
	}
	return value, nil
}

// credentials reads the PEM files. A file's content is in no error.
func (o Options) credentials(a address) (credentials.TransportCredentials, error) {
	if !a.tls {
		if o.CA != "" || o.Cert != "" || o.Key != "" {
			return nil, errors.New("certificates are of use only with grpcs://")
		}
		return insecure.NewCredentials(), nil
	}
	cfg := &tls.Config{MinVersion: tls.VersionTLS12}
	if o.CA != "" {
		pem, err := os.ReadFile(o.CA)
		if err != nil {
			return nil, err
		}
		cfg.RootCAs = x509.NewCertPool()
		if !cfg.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("%s: no certificate in PEM form in it", o.CA)
		}
	}
	if (o.Cert == "") != (o.Key == "") {
		return nil, errors.New("a client certificate needs its key, and the other way round")
	}
	if o.Cert != "" {
		cert, err := tls.LoadX509KeyPair(o.Cert, o.Key)
		if err != nil {
			return nil, fmt.Errorf("client certificate %s, key %s: %w", o.Cert, o.Key, err)
		}
		cfg.Certificates = []tls.Certificate{cert}
	}
	return credentials.NewTLS(cfg), nil
}
