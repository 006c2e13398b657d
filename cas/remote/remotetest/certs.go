package remotetest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Certs names the PEM files of a small authority of one's own: its certificate,
// and a certificate with its key for a server on this machine (127.0.0.1, ::1,
// localhost) and for a client.
type Certs struct {
	CA                    string
	ServerCert, ServerKey string
	ClientCert, ClientKey string
}

// Certificates makes an authority and its certificates in a folder of the test.
// Those of two calls don't trust each other. They are valid from an hour ago, for
// a day.
func Certificates(t testing.TB) *Certs {
	t.Helper()
	c, err := makeCertificates(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func makeCertificates(dir string) (*Certs, error) {
	now := time.Now()
	template := func(serial int64, name string) *x509.Certificate {
		return &x509.Certificate{
			SerialNumber: big.NewInt(serial),
			Subject:      pkix.Name{CommonName: name},
			NotBefore:    now.Add(-time.Hour),
			NotAfter:     now.Add(24 * time.Hour),
		}
	}
	ca := template(1, "an authority of tests")
	ca.IsCA, ca.BasicConstraintsValid, ca.KeyUsage = true, true, x509.KeyUsageCertSign
	server := template(2, "localhost")
	server.DNSNames = []string{"localhost"}
	server.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback}
	server.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	client := template(3, "a client")
	client.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}

	at := func(name string) string { return filepath.Join(dir, name) }
	c := &Certs{
		CA:         at("ca.pem"),
		ServerCert: at("server.pem"), ServerKey: at("server-key.pem"),
		ClientCert: at("client.pem"), ClientKey: at("client-key.pem"),
	}
	caKey, err := makeCert(ca, ca, nil, c.CA, "")
	if err != nil {
		return nil, err
	}
	if _, err = makeCert(server, ca, caKey, c.ServerCert, c.ServerKey); err != nil {
		return nil, err
	}
	if _, err = makeCert(client, ca, caKey, c.ClientCert, c.ClientKey); err != nil {
		return nil, err
	}
	return c, nil
}

// makeCert makes a key and its certificate; without a parent's key the
// certificate is signed by its own.
func makeCert(cert, parent *x509.Certificate, parentKey *ecdsa.PrivateKey, certFile, keyFile string) (*ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make %s: %w", certFile, err)
	}
	if parentKey == nil {
		parentKey = key
	}
	der, err := x509.CreateCertificate(rand.Reader, cert, parent, key.Public(), parentKey)
	if err != nil {
		return nil, fmt.Errorf("make %s: %w", certFile, err)
	}
	if err := writePEM(certFile, "CERTIFICATE", der, 0o644); err != nil {
		return nil, err
	}
	if keyFile == "" {
		return key, nil
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("make %s: %w", keyFile, err)
	}
	return key, writePEM(keyFile, "PRIVATE KEY", private, 0o600)
}

func writePEM(file, kind string, der []byte, mode os.FileMode) error {
	return os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), mode)
}
