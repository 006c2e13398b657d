package escape

// refused is what a connection is refused with: there is nobody, or Landlock,
// which comes first where the port isn't the proxy's.
const refused = "ECONNREFUSED|EACCES"

// socketRows: nobody outside can be talked to, and no odd family reached.
var socketRows = []row{
	{item: 47, name: "abstract socket", in: native, try: "abstract $ABSTRACT", want: "ECONNREFUSED|EPERM", control: both("ok")},
	{item: 48, name: "socket in a folder", in: native, try: "unix $SOCKET", want: "ENOENT", control: both("ok")},
	{item: 48, name: "folder of services", in: native, try: "path /run", want: "ENOENT", control: both("ok")},

	{item: 49, name: "vsock", in: native, try: "call socket 40 1 0", want: "EAFNOSUPPORT", control: both("ok").unless("EAFNOSUPPORT")},
	{item: 49, name: "netlink", in: native, try: "call socket 16 3 0", want: "EAFNOSUPPORT", control: both("ok")},
	{item: 49, name: "packet", in: native, try: "call socket 17 3 0", want: "EAFNOSUPPORT", control: root("ok").unless("EAFNOSUPPORT")},
	{item: 49, name: "crypto", in: native, try: "call socket 38 5 0", want: "EAFNOSUPPORT", control: both("ok").unless("EAFNOSUPPORT")},
	{item: 49, name: "key management", in: native, try: "call socket 15 3 2", want: "EAFNOSUPPORT", control: root("ok").unless("EAFNOSUPPORT")},
	{item: 49, name: "express data path", in: native, try: "call socket 44 3 0", want: "EAFNOSUPPORT", control: root("ok").unless("EAFNOSUPPORT")},
	{item: 49, name: "bluetooth", in: native, try: "call socket 31 3 1", want: "EAFNOSUPPORT", control: both("ok").unless("EAFNOSUPPORT")},
	{item: 49, name: "can", in: native, try: "call socket 29 3 1", want: "EAFNOSUPPORT", control: both("ok").unless("EAFNOSUPPORT")},
	{item: 49, name: "tipc", in: native, try: "call socket 30 4 0", want: "EAFNOSUPPORT", control: both("ok").unless("EAFNOSUPPORT")},
	{item: 49, name: "pair of odd ends", in: native, try: "call socketpair 16 3 0 &", want: "EAFNOSUPPORT", control: both("EOPNOTSUPP")},
	{item: 50, name: "raw", in: native, try: "call socket 2 3 1", want: "EPERM", control: root("ok")},
	{item: 50, name: "ping", in: native, try: "call socket 2 2 1", want: "EPROTONOSUPPORT", control: both("ok").unless("EACCES")},
	{item: 50, name: "packet by type", in: native, try: "call socket 2 10 0x300", want: "EPERM", control: root("ok")},
	{item: 50, name: "multipath", in: native, try: "call socket 2 1 262", want: "EPROTONOSUPPORT", control: both("ok").unless("EPROTONOSUPPORT")},

	{item: 52, name: "shared memory of the host", in: native, try: "shm $SHM", want: "ENOENT", control: both("ok")},
	{item: 52, name: "message queue of the host", in: native, try: "mq $MQ", want: "ENOENT", control: both("ok")},

	{item: 53, name: "stream to an address", in: native, try: "tcp 192.0.2.1:443", want: "ENETUNREACH|EACCES", control: both("ok|EINPROGRESS|ECONNREFUSED|EHOSTUNREACH|ETIMEDOUT").unless("ENETUNREACH")},
	{item: 53, name: "datagram to an address", in: native, try: "udp 192.0.2.1:443", want: "ENETUNREACH", control: both("ok").unless("ENETUNREACH")},
	{item: 53, name: "name server", in: native, try: "udp 192.0.2.1:53", want: "ENETUNREACH", control: both("ok").unless("ENETUNREACH")},
	{item: 53, name: "version 6", in: native, try: "udp [2001:db8::1]:443", want: "ENETUNREACH|EADDRNOTAVAIL", control: both("ok").unless("ENETUNREACH|EADDRNOTAVAIL|socket-EAFNOSUPPORT")},
	{item: 53, name: "service of the host", in: native, try: "tcp $TCP", want: refused, control: both("ok")},
	{item: 53, name: "listen", in: native, try: "bind 127.0.0.1:0", want: "EACCES", control: both("ok")},

	{item: 54, name: "name in a request", in: native, try: "proxy secret.evil.example:443", want: "403", control: none(ours), seal: network},
	{item: 55, name: "loopback by name", in: native, try: "proxy localhost:443", want: "403", control: none(ours), seal: network},
	{item: 56, name: "address", in: native, try: "proxy 93.184.216.34:443", want: "403", control: none(ours), seal: network},
	{item: 59, name: "suffix", in: native, try: "proxy api.example.com.evil.example:443", want: "403", control: none(ours), seal: network},
	{item: 60, name: "no list, no proxy", in: native, try: "proxy api.example.com:443", want: refused, control: none(ours)},
	{item: 63, name: "port", in: native, try: "proxy api.example.com:22", want: "403", control: none(ours), seal: network},
	{item: 65, name: "around the proxy", in: native, try: "udp 192.0.2.1:443", want: "ENETUNREACH", control: both("ok").unless("ENETUNREACH"), seal: network},
	{item: 65, name: "around the proxy, to the host", in: native, try: "tcp $TCP", want: refused, control: both("ok"), seal: network},
}

const (
	network = `network = ["api.example.com"]`
	ours    = "there is a proxy inside only: TestEgress has the request that it carries"
)
