package reapi

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/evalbuild/eval/cas"
)

func TestAddress(t *testing.T) {
	for in, want := range map[string]address{
		"grpc://cache.example:8980":           {dial: "cache.example:8980"},
		"grpc://cache.example:8980/":          {dial: "cache.example:8980"},
		"grpcs://cache.example:443/team/main": {tls: true, dial: "cache.example:443", instance: "team/main"},
		"grpc://[::1]:80/x":                   {dial: "[::1]:80", instance: "x"},
		"grpc://10.0.0.1:080":                 {dial: "10.0.0.1:80"},
		"unix:///run/cache.sock":              {unix: true, dial: "/run/cache.sock"},
		"unix:///run/a%20b?instance=x%2Fy":    {unix: true, dial: "/run/a b", instance: "x/y"},
	} {
		got, err := parseAddress(in)
		if err != nil || got != want {
			t.Errorf("%s: %+v, %v; want %+v", in, got, err, want)
		}
		if again, err := parseAddress(got.String()); err != nil || again != got {
			t.Errorf("%s: as %s it is %+v, %v", in, got, again, err)
		}
	}
	for in, want := range map[string]string{
		"":                                    "want grpc://HOST:PORT",
		"cache.example:8980":                  "want grpc://HOST:PORT",
		"http://cache.example:8080":           "HTTP cache protocol",
		"ftp://x:1":                           "unknown scheme",
		"grpc://cache.example":                "want HOST:PORT",
		"grpc://:80":                          "no host",
		"grpc://h:":                           "port",
		"grpc://h:0":                          "port",
		"grpc://h:65536":                      "port",
		"grpc://h:http":                       "port",
		"grpc://a b:80":                       "host contains",
		"grpc://me:hunter22@h:80":             "--remote_header",
		"grpc://me@h:80":                      "--remote_header",
		"grpc://h:80/a//b":                    "empty segment",
		"grpc://h:80/a/blobs":                 "reserves",
		"grpc://h:80/a?x=1":                   "instance name contains",
		"grpc://h:80/me:hunter22@x":           "instance name contains",
		"unix://run/x":                        "absolute path",
		"unix://":                             "absolute path",
		"unix:///":                            "absolute path",
		"unix:///x?inst=1":                    "instance=NAME",
		"unix:///x?instance=1&instance=2":     "instance=NAME",
		"unix:///x?instance=compressed-blobs": "reserves",
	} {
		_, err := New(Options{Address: in})
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hunter22") {
			t.Errorf("%s: %v, want %q", in, err, want)
		}
	}
	for in, want := range map[string]bool{
		"grpc://127.0.0.1:1": true, "grpc://[::1]:1": true, "grpc://localhost:1": true, "unix:///x": true,
		"grpc://10.1.2.3:1": false, "grpcs://cache.example:1": false,
	} {
		if a, err := parseAddress(in); err != nil || a.local() != want {
			t.Errorf("%s is local: %v, %v", in, a.local(), err)
		}
	}
}

func FuzzAddress(f *testing.F) {
	for _, s := range []string{"grpc://h:1", "grpcs://[::1%25a]:443/a/b", "unix:///a%2fb?instance=c", "grpc://u:p@h:1", "grpc://[fe80::1%eth0]:1/"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		a, err := parseAddress(s)
		if err != nil {
			return
		}
		if strings.Contains(a.dial, "@") && !a.unix || strings.Contains(a.instance, "@") {
			t.Errorf("%q: a password may be in %+v", s, a)
		}
		again, err := parseAddress(a.String())
		if err != nil || again != a {
			t.Errorf("%q is %+v; as %q it is %+v, %v", s, a, a, again, err)
		}
	})
}

func TestOptions(t *testing.T) {
	file := filepath.Join(t.TempDir(), "x.pem")
	if err := os.WriteFile(file, []byte("hunter22"), 0o600); err != nil {
		t.Fatal(err)
	}
	const plain, tls = "grpc://h:1", "grpcs://h:1"
	header := func(name, value string) Options { return Options{Address: plain, Headers: []Header{{name, value}}} }
	for _, x := range []struct {
		o    Options
		want string
	}{
		{Options{Address: plain, CA: file}, "only with grpcs"},
		{Options{Address: plain, Cert: file}, "only with grpcs"},
		{Options{Address: tls, CA: file}, "no certificate"},
		{Options{Address: tls, CA: file + "x"}, "no such file"},
		{Options{Address: tls, Cert: file}, "needs its key"},
		{Options{Address: tls, Cert: file, Key: file}, "client certificate"},
		{Options{Address: plain, Timeout: -time.Second}, "negative"},
		{Options{Address: plain, Prefer: 77}, "digest function"},
		{header("", "hunter22"), "no name"},
		{header("a b", "hunter22"), "contains ' '"},
		{header("grpc-timeout", "hunter22"), "protocol"},
		{header("Content-Type", "hunter22"), "protocol"},
		{header(requestMetadata, "hunter22"), "protocol"},
		{header("a", "hunter22\n"), "printable"},
		{header("a", "hunter22é"), "printable"},
		{header("a", " hunter22"), "space"},
		{header("a-bin", "hunter22!"), "base64"},
	} {
		c, err := New(x.o)
		if err == nil {
			c.Close()
		}
		if err == nil || !strings.Contains(err.Error(), x.want) || strings.Contains(err.Error(), "hunter22") {
			t.Errorf("%+v: %v, want %q", x.o, err, x.want)
		}
	}
	c, err := New(Options{Address: "grpcs://h:1/team"})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if c.Name() != "grpcs://h:1/team" || c.timeout != DefaultTimeout || c.prefer != cas.BLAKE3 {
		t.Errorf("%s, %v, %v", c.Name(), c.timeout, c.prefer)
	}
}
