package reapi

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
)

// address is where a server is.
type address struct {
	tls      bool
	unix     bool
	dial     string // HOST:PORT or a path
	instance string
}

// String gives the spelling that parseAddress reads. It has no secrets since
// an address has none.
func (a address) String() string {
	switch {
	case a.unix && a.instance != "":
		return "unix://" + escapePath(a.dial) + "?instance=" + url.QueryEscape(a.instance)
	case a.unix:
		return "unix://" + escapePath(a.dial)
	}
	s := "grpc://"
	if a.tls {
		s = "grpcs://"
	}
	s += a.dial
	if a.instance != "" {
		s += "/" + a.instance
	}
	return s
}

// local says that no wire is between us and the server, as far as the address
// tells.
func (a address) local() bool {
	if a.unix {
		return true
	}
	host, _, _ := net.SplitHostPort(a.dial)
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

func escapePath(p string) string {
	return (&url.URL{Path: p}).EscapedPath()
}

// parseAddress reads grpc://HOST:PORT[/INSTANCE], grpcs://HOST:PORT[/INSTANCE]
// or unix:///PATH[?instance=NAME]. Its errors don't repeat the address: there
// may be a password in it, wherever it was put.
func parseAddress(s string) (address, error) {
	scheme, rest, ok := strings.Cut(s, "://")
	if !ok {
		return address{}, errors.New("want grpc://HOST:PORT[/INSTANCE], grpcs://HOST:PORT[/INSTANCE] or unix:///PATH[?instance=NAME]")
	}
	switch scheme {
	case "grpc", "grpcs":
		return parseHost(scheme == "grpcs", rest)
	case "unix":
		return parseUnix(rest)
	case "http", "https":
		return address{}, errors.New("the HTTP cache protocol is not spoken; want grpc:// or grpcs:// and the server's gRPC port")
	}
	return address{}, errors.New("unknown scheme; want grpc://, grpcs:// or unix://")
}

func parseHost(tls bool, rest string) (address, error) {
	dial, instance, _ := strings.Cut(rest, "/")
	if strings.Contains(dial, "@") {
		return address{}, errors.New("user and password don't belong into the address, which is shown and recorded; " +
			"use --remote_header=authorization=Basic …")
	}
	host, port, err := net.SplitHostPort(dial)
	if err != nil {
		return address{}, errors.New("want HOST:PORT after the scheme")
	}
	if err := checkHost(host); err != nil {
		return address{}, err
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || n == 0 {
		return address{}, errors.New("the port is not a number from 1 to 65535")
	}
	instance = strings.TrimSuffix(instance, "/")
	if err := checkInstance(instance); err != nil {
		return address{}, err
	}
	return address{tls: tls, dial: net.JoinHostPort(host, strconv.FormatUint(n, 10)), instance: instance}, nil
}

func checkHost(host string) error {
	if host == "" {
		return errors.New("no host")
	}
	if net.ParseIP(host) != nil {
		return nil
	}
	if addr, zone, ok := strings.Cut(host, "%"); ok && zone != "" && net.ParseIP(addr) != nil {
		host = zone
	}
	for _, c := range []byte(host) {
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '-', c == '.', c == '_':
		default:
			return fmt.Errorf("the host contains %q", c)
		}
	}
	return nil
}

// checkInstance refuses what would change the meaning of a resource name, in
// which the instance is the first segments of a path.
func checkInstance(name string) error {
	if name == "" {
		return nil
	}
	for _, c := range []byte(name) {
		if c <= ' ' || c >= 0x7f || c == '?' || c == '#' || c == '%' || c == '@' {
			return fmt.Errorf("the instance name contains %q", c)
		}
	}
	for seg := range strings.SplitSeq(name, "/") {
		switch seg {
		case "":
			return errors.New("the instance name has an empty segment")
		case "blobs", "uploads", "actions", "actionResults", "operations", "capabilities", "compressed-blobs":
			return fmt.Errorf("the instance name has the segment %q, which the protocol reserves", seg)
		}
	}
	return nil
}

func parseUnix(rest string) (address, error) {
	path, query, _ := strings.Cut(rest, "?")
	path, err := url.PathUnescape(path)
	if err != nil || !strings.HasPrefix(path, "/") || strings.IndexByte(path, 0) >= 0 || len(path) < 2 {
		return address{}, errors.New("want an absolute path after unix://")
	}
	a := address{unix: true, dial: path}
	values, err := url.ParseQuery(query)
	if err != nil {
		return address{}, errors.New("what follows the path is not ?instance=NAME")
	}
	for name, v := range values {
		if name != "instance" || len(v) != 1 {
			return address{}, errors.New("what follows the path is not ?instance=NAME")
		}
		a.instance = v[0]
	}
	return a, checkInstance(a.instance)
}
