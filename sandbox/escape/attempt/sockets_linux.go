package main

import (
	"bufio"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// sockets are attempts to talk to somebody.
var sockets = table{
	// abstract NAME and unix PATH connect to a listener of the host.
	"abstract": func(a []string) string {
		return connect(unix.AF_UNIX, unix.SOCK_STREAM, &unix.SockaddrUnix{Name: "@" + a[0]})
	},
	"unix": func(a []string) string {
		return connect(unix.AF_UNIX, unix.SOCK_STREAM, &unix.SockaddrUnix{Name: a[0]})
	},
	"tcp": func(a []string) string { return inet(unix.SOCK_STREAM, a[0]) },
	"udp": func(a []string) string { return inet(unix.SOCK_DGRAM, a[0]) }, // sends nothing
	"bind": func(a []string) string {
		at := netip.MustParseAddrPort(a[0])
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return "socket-" + is(err)
		}
		defer unix.Close(fd)
		return is(unix.Bind(fd, &unix.SockaddrInet4{Port: int(at.Port()), Addr: at.Addr().As4()}))
	},
	// shm KEY and mq NAME look for what the host made.
	"shm": func(a []string) string {
		key, _ := strconv.ParseInt(a[0], 0, 64)
		_, err := unix.SysvShmGet(int(key), 0, 0)
		return is(err)
	},
	"mq": func(a []string) string {
		text := append([]byte(a[0]), 0)
		fd, _, errno := unix.RawSyscall6(unix.SYS_MQ_OPEN, uintptr(unsafe.Pointer(&text[0])), unix.O_RDONLY|unix.O_NONBLOCK, 0, 0, 0, 0)
		if errno == 0 {
			unix.Close(int(fd))
		}
		return nameOf(errno)
	},
	// proxy TARGET asks the proxy for a connection, and gives the status.
	"proxy": func(a []string) string { return ask("127.0.0.1:3128", a[0]) },
	// rights sends a descriptor through the proxy's connection.
	"rights": func([]string) string {
		c, err := net.DialTimeout("tcp", "127.0.0.1:3128", 2*time.Second)
		if err != nil {
			return is(err)
		}
		defer c.Close()
		raw, err := c.(*net.TCPConn).SyscallConn()
		if err != nil {
			return is(err)
		}
		var sent error
		raw.Control(func(fd uintptr) {
			sent = unix.Sendmsg(int(fd), []byte("x"), unix.UnixRights(int(os.Stderr.Fd())), nil, 0)
		})
		return is(sent)
	},
}

func connect(family, kind int, to unix.Sockaddr) string {
	fd, err := unix.Socket(family, kind|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return "socket-" + is(err)
	}
	defer unix.Close(fd)
	err = unix.Connect(fd, to)
	if err == unix.EINPROGRESS {
		p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}
		if n, _ := unix.Poll(p, 500); n == 0 {
			return "EINPROGRESS" // on its way out
		}
		n, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ERROR)
		if err != nil {
			return is(err)
		}
		return nameOf(unix.Errno(n))
	}
	return is(err)
}

func inet(kind int, text string) string {
	at, err := netip.ParseAddrPort(text)
	if err != nil {
		return "no-address"
	}
	if at.Addr().Is4() {
		return connect(unix.AF_INET, kind, &unix.SockaddrInet4{Port: int(at.Port()), Addr: at.Addr().As4()})
	}
	return connect(unix.AF_INET6, kind, &unix.SockaddrInet6{Port: int(at.Port()), Addr: at.Addr().As16()})
}

func ask(proxy, target string) string {
	c, err := net.DialTimeout("tcp", proxy, 2*time.Second)
	if err != nil {
		return is(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(5 * time.Second))
	fmt.Fprintf(c, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n", target, target)
	line, err := bufio.NewReader(c).ReadString('\n')
	if err != nil {
		return is(err)
	}
	if f := strings.Fields(line); len(f) > 1 {
		return f[1]
	}
	return "no-status"
}
