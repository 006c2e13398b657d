package graph

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestCanonicalHost(t *testing.T) {
	long := strings.Repeat("a", 63)
	for _, c := range []struct {
		host, want string // "" is an error
		address    bool
	}{
		{"api.example.com", "api.example.com", false},
		{"API.Example.COM.", "api.example.com", false},
		{"xn--bcher-kva.example", "xn--bcher-kva.example", false},
		{"_dns.1a.2b", "_dns.1a.2b", false},
		{"host.1a", "host.1a", false},     // to no reader an address
		{"localhost", "localhost", false}, // a name like any other: the list decides, then the address
		{long + ".b", long + ".b", false},

		{"", "", false},
		{".", "", false},
		{"a..", "", false},
		{".a", "", false},
		{"a..b", "", false},
		{"-a.b", "", false},
		{"a-.b", "", false},
		{"a b", "", false},
		{"a\tb", "", false},
		{"a\x00.b", "", false},
		{"a%2eb", "", false},
		{"bücher.example", "", false},
		{"\u212aelvin.example", "", false},
		{"ａ.example", "", false},
		{"a。b", "", false},
		{"u@a.b", "", false},
		{"a.b/c", "", false},
		{"[a.b]", "", false},
		{"fe80::1%eth0", "", false},
		{"[fe80::1%25eth0]", "", false},
		{"*.b", "", false},
		{long + "a.b", "", false},
		{strings.Repeat("a.", 127) + "a", "", false},

		{"127.0.0.1", "", true},
		{"127.0.0.1.", "", true},
		{"127.1", "", true},
		{"2130706433", "", true},
		{"0177.0.0.1", "", true},
		{"0x7f.1", "", true},
		{"0X7F000001", "", true},
		{"127.0.0.0x1", "", true},
		{"1.2.3.4.5", "", true},
		{"a.0x", "", true},
		{"8.8.8.8", "", true},
		{"::1", "", true},
		{"[::1]", "", true},
		{"[::ffff:127.0.0.1]", "", true},
		{"::ffff:7f00:1", "", true},
		{"[2001:db8::1]", "", true},
	} {
		got, err := CanonicalHost(c.host)
		if got != c.want || (err != nil) != (c.want == "") || errors.Is(err, ErrAddress) != c.address {
			t.Errorf("CanonicalHost(%q) = %q, %v", c.host, got, err)
		}
	}
}

func TestParsePort(t *testing.T) {
	for s, want := range map[string]uint16{
		"1": 1, "443": 443, "65535": 65535,
		"": 0, "0": 0, "0443": 0, "+443": 0, "-1": 0, "65536": 0, " 1": 0, "1 ": 0, "x": 0, "1_0": 0,
	} {
		if got, err := ParsePort(s); got != want || (err != nil) != (want == 0) {
			t.Errorf("ParsePort(%q) = %d, %v", s, got, err)
		}
	}
}

func TestParseEndpoint(t *testing.T) {
	for s, want := range map[string]string{
		"API.Example.com":     "api.example.com:443",
		".Example.com.:8,7,8": ".example.com:7,8",
		"a.1b:80":             "a.1b:80",
	} {
		if e, err := ParseEndpoint(s); err != nil || e.String() != want {
			t.Errorf("ParseEndpoint(%q) = %s, %v; want %s", s, e, err, want)
		}
	}
	for s, want := range map[string]string{
		"10.0.0.1":        `"10.0.0.1" is an address; name a host, or use forward for a local port`,
		"[::1]":           `"[::1]" is an address; name a host, or use forward for a local port`,
		"10.0.0.1:80":     `"10.0.0.1:80": addresses are refused`,
		"127.1":           `"127.1": a host name doesn't end in a number; addresses are refused`,
		".10.0.0.1":       `".10.0.0.1": addresses are refused`,
		"\u212aelvin.b:1": "\"\u212aelvin.b:1\": \"\u212a\" can't stand in a host name; write other scripts in their xn-- form",
		"..a":             `"..a": "" is no part of a host name`,
		".":               `".": a host has 1 to 253 bytes`,
		"a:80,":           `"a:80,": "" is no port: 1 to 65535`,
	} {
		if e, err := ParseEndpoint(s); err == nil || err.Error() != want {
			t.Errorf("ParseEndpoint(%q) = %s, %v; want %s", s, e, err, want)
		}
	}
}

func TestParseForward(t *testing.T) {
	for _, target := range []string{"127.0.0.1:11434", "[::1]:80", "Model.local:1", "a.1b:1"} {
		f, err := ParseForward(8080, target)
		if diff := cmp.Diff(Forward{Port: 8080, Target: target}, f); diff != "" || err != nil {
			t.Errorf("%v\n%s", err, diff)
		}
	}
	for _, target := range []string{"a", "a:", "a:0", "127.1:80", "0x7f.1:80", ":80", "a b:80", "\u212a:80", "::1"} {
		if f, err := ParseForward(8080, target); err == nil {
			t.Errorf("forward to %q: %v", target, f)
		}
	}
}
