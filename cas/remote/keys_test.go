package remote

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"os"
	"path/filepath"
	"strings"
	"testing"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/evalbuild/eval/cas"
)

// A stand-in is what the generated types make of it, and whole.
func TestStandIn(t *testing.T) {
	for _, fn := range funcs {
		marshal := func(m proto.Message) []byte {
			b, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
			if err != nil {
				t.Fatal(err)
			}
			return b
		}
		command := marshal(&repb.Command{Arguments: []string{"eval"}})
		root := marshal(&repb.Directory{})
		action := marshal(&repb.Action{
			CommandDigest: wireDigest(fn.Sum(command)), InputRootDigest: wireDigest(fn.Sum(root)),
			Timeout: &durationpb.Duration{Seconds: 600}, Salt: []byte("a salt"),
		})
		got := standFor(fn, "a salt")
		if got.key != fn.Sum(action) {
			t.Errorf("%v: the key is %v, want %v", fn, got.key, fn.Sum(action))
		}
		for _, want := range [][]byte{command, root, action} {
			found := false
			for _, it := range got.blobs {
				found = found || it.server == fn.Sum(want) && string(it.data) == string(want)
			}
			if !found {
				t.Errorf("%v: blob %q is missing", fn, want)
			}
		}
	}
}

func TestKeys(t *testing.T) {
	key, other := cas.BLAKE3.Sum([]byte("key")), cas.BLAKE3.Sum([]byte("other"))
	if s := byKey(cas.BLAKE3, key); s.key != key || len(s.blobs) != 0 {
		t.Errorf("native: %+v", s)
	}
	seen := map[cas.Digest]bool{key: true, other: true}
	for _, fn := range funcs {
		for _, d := range []cas.Digest{
			byKey(cas.SHA256, key).key, byKey(cas.SHA256, other).key, byCapture(fn, key, other).key,
			byCapture(fn, other, key).key, byCapture(fn, key, key).key,
		} {
			if d.Func == fn && seen[d] {
				t.Errorf("%v stands for two", d)
			}
		}
		for _, d := range []cas.Digest{byCapture(fn, key, other).key, byCapture(fn, other, key).key, byCapture(fn, key, key).key} {
			if seen[d] || d.Func != fn {
				t.Errorf("%v stands for two, or is of another function", d)
			}
			seen[d] = true
		}
	}
	// What a server has under them is there for good: these never change.
	const want = "sha256:a4c35b10f634d0fa509b4f4a54abaa3d4ab3d14ef489074351fdba8bb88c45ca/229"
	if got := byKey(cas.SHA256, key).key.String(); got != want {
		t.Errorf("the stand-in is %s, was %s", got, want)
	}
}

func TestPublicKey(t *testing.T) {
	k, _, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	text := FormatKey(k)
	got, err := ParseKey(text)
	if err != nil || !got.Equal(k) || !strings.HasPrefix(text, "ed25519:") {
		t.Errorf("%s: %v, %v", text, got, err)
	}
	for _, bad := range []string{"", "ed25519:", text[8:], "ED25519:" + text[8:], text + "=", text + "\n", text[:len(text)-1], text[:len(text)-4], "ed25519:" + text[8:20] + "\n" + text[20:], "rsa:" + text[8:]} {
		if _, err := ParseKey(bad); err == nil || !strings.HasPrefix(err.Error(), "parse key ") {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

func TestLoadKey(t *testing.T) {
	// As `openssl genpkey -algorithm ed25519` wrote it.
	const openssl = "-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2VwBCIEIJ1hsZ3v/VpguoRK9JLsLMREScVpezJpGXA7rAMcrn9g\n-----END PRIVATE KEY-----\n"
	dir := t.TempDir()
	write := func(name, text string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	k, err := LoadKey(write("good", openssl, 0o600))
	if err != nil {
		t.Fatal(err)
	}
	// RFC 8032, section 7.1, test 1.
	if got := FormatKey(k.Public().(ed25519.PublicKey)); got != "ed25519:11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo=" {
		t.Errorf("the public key is %s", got)
	}
	if _, err := LoadKey(write("read-only", openssl, 0o400)); err != nil {
		t.Error(err)
	}
	pair, err := rsa.GenerateKey(rand.Reader, 1024)
	if err != nil {
		pair, err = rsa.GenerateKey(rand.Reader, 2048)
	}
	der, err2 := x509.MarshalPKCS8PrivateKey(pair)
	if err != nil || err2 != nil {
		t.Fatal(err, err2)
	}
	for name, c := range map[string]struct {
		path, want string
	}{
		"group":     {write("group", openssl, 0o640), "its mode is 0640"},
		"others":    {write("others", openssl, 0o604), "its mode is 0604"},
		"written":   {write("written", openssl, 0o602), "its mode is 0602"},
		"absent":    {dir + "/absent", "no such file"},
		"a folder":  {dir, "not a regular file"},
		"empty":     {write("empty", "", 0o600), "no PEM block"},
		"no pem":    {write("nopem", "secret", 0o600), "no PEM block"},
		"public":    {write("public", strings.ReplaceAll(openssl, "PRIVATE", "PUBLIC"), 0o600), "no PEM block"},
		"cut":       {write("cut", strings.Replace(openssl, "MC4CAQ", "AAAAAA", 1), 0o600), "no PKCS #8"},
		"of others": {write("rsa", string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})), 0o600), "no ed25519 key"},
	} {
		_, err := LoadKey(c.path)
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.HasPrefix(err.Error(), "read private key "+c.path+": ") ||
			strings.Count(err.Error(), c.path) != 1 || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
