package graph

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// ErrAddress is in the error of a host that is an address, in any spelling.
var ErrAddress = errors.New("addresses are refused")

// CanonicalHost gives the one form of a DNS name: ASCII lower case, one dot at
// the end dropped. It accepts labels of letters, digits, hyphens and
// underscores (RFC 1035 lengths). What a policy lists and what a process asks
// for are both read by it, so that they can't differ.
func CanonicalHost(s string) (string, error) {
	if a, err := netip.ParseAddr(strings.TrimSuffix(strings.TrimPrefix(s, "["), "]")); err == nil && a.Zone() == "" {
		return "", ErrAddress
	}
	h := lowerASCII(strings.TrimSuffix(s, "."))
	if h == "" || len(h) > 253 {
		return "", fmt.Errorf("a host has 1 to 253 bytes")
	}
	last := ""
	for l := range strings.SplitSeq(h, ".") {
		if err := checkHostLabel(l); err != nil {
			return "", err
		}
		last = l
	}
	if numeric(last) {
		return "", fmt.Errorf("a host name doesn't end in a number; %w", ErrAddress)
	}
	return h, nil
}

// lowerASCII is not strings.ToLower, which maps the Kelvin sign to k.
func lowerASCII(s string) string {
	b := []byte(s)
	for i, c := range b {
		if c >= 'A' && c <= 'Z' {
			b[i] = c + 'a' - 'A'
		}
	}
	return string(b)
}

func checkHostLabel(l string) error {
	if l == "" || len(l) > 63 || l[0] == '-' || l[len(l)-1] == '-' {
		return fmt.Errorf("%q is no part of a host name", l)
	}
	for _, c := range l {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' && c != '_' {
			return fmt.Errorf("%q can't stand in a host name; write other scripts in their xn-- form", string(c))
		}
	}
	return nil
}

// numeric says whether a host with this last label is an address to
// inet_aton, which takes 2130706433, 0x7f.1 and 0177.0.0.1 for 127.0.0.1 (the
// "ends in a number" rule of the WHATWG URL standard).
func numeric(last string) bool {
	if hex, ok := strings.CutPrefix(last, "0x"); ok {
		return strings.Trim(hex, "0123456789abcdef") == ""
	}
	return strings.Trim(last, "0123456789") == ""
}

// ParsePort reads a port as it must be written: decimal, nothing before it.
func ParsePort(s string) (uint16, error) {
	n, err := strconv.ParseUint(s, 10, 16)
	if err != nil || n == 0 || s[0] == '0' {
		return 0, fmt.Errorf("%q is no port: 1 to 65535", s)
	}
	return uint16(n), nil
}
