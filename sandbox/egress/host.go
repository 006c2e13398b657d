package egress

import (
	"net/netip"
	"strconv"
	"strings"
)

// canonical gives the form of a host in which graph.Endpoint has it, or the
// reason why there is none. It takes what graph.ParseEndpoint takes and a little
// more (a last label such as 1a, which no list can have), and tells addresses
// apart.
func canonical(host string) (string, string) {
	if a, err := netip.ParseAddr(strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")); err == nil && a.Zone() == "" {
		return "", BadAddress
	}
	h := strings.TrimSuffix(host, ".")
	if h == "" || len(h) > 253 {
		return "", Malformed
	}
	lower := []byte(h)
	for i, c := range lower {
		if c >= 'A' && c <= 'Z' { // not strings.ToLower: it maps the Kelvin sign to k
			lower[i] = c + 'a' - 'A'
		}
	}
	h = string(lower)
	last := ""
	for l := range strings.SplitSeq(h, ".") {
		if !label(l) {
			return "", Malformed
		}
		last = l
	}
	if numeric(last) {
		return "", BadAddress
	}
	return h, ""
}

func label(l string) bool {
	if l == "" || len(l) > 63 || l[0] == '-' || l[len(l)-1] == '-' {
		return false
	}
	for _, c := range []byte(l) {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' && c != '_' {
			return false
		}
	}
	return true
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

// parsePort reads a port as it must be written: decimal, nothing before it.
func parsePort(s string) (uint16, bool) {
	n, err := strconv.ParseUint(s, 10, 16)
	if err != nil || n == 0 || s[0] == '0' {
		return 0, false
	}
	return uint16(n), true
}
