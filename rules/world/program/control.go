package program

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/evalbuild/eval/rules/world/wire"
)

// ServeUntilEnd serves h on the listener that the first message on stdin, a unix
// socket, carries, until stdin ends. Whatever the client sent before is answered
// then, also what stands in a connection that wasn't accepted yet; of a request
// that isn't whole h gets a body that ends with an error, or nothing. If ctx ends
// before, that is an error.
func ServeUntilEnd(ctx context.Context, stdin *os.File, h http.Handler) error {
	conn, err := controlSocket(stdin)
	if err != nil {
		return err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })() // it ends the reads below
	ln, err := receiveListener(conn)
	if err != nil {
		return fmt.Errorf("receive listener: %w", cmp.Or(ctx.Err(), err))
	}
	d, srv := newDoor(ln), wire.NewServer(h)
	served := make(chan error, 1)
	go func() { served <- srv.Serve(d) }()
	ended := make(chan error, 1)
	go func() {
		_, err := io.Copy(io.Discard, conn)
		ended <- err
	}()
	select {
	case err = <-served:
		return fmt.Errorf("serve %s: %w", ln.Addr(), err)
	case err = <-ended:
	}
	if ctx.Err() == nil {
		d.drain(srv, served)
	}
	if err = cmp.Or(ctx.Err(), err); err != nil {
		return fmt.Errorf("read standard input: %w", err)
	}
	return nil
}

func controlSocket(stdin *os.File) (*net.UnixConn, error) {
	conn, err := net.FileConn(stdin)
	if err != nil {
		return nil, fmt.Errorf("open standard input: it is no socket: %w", err)
	}
	u, ok := conn.(*net.UnixConn)
	if !ok {
		conn.Close()
		return nil, errors.New("open standard input: it is no unix socket")
	}
	return u, nil
}

// receiveListener takes the one descriptor of the first message.
func receiveListener(conn *net.UnixConn) (*net.TCPListener, error) {
	data, oob := make([]byte, 4096), make([]byte, 4096)
	n, oobn, _, _, err := conn.ReadMsgUnix(data, oob)
	if errors.Is(err, io.EOF) || err == nil && n == 0 && oobn == 0 {
		return nil, errors.New("standard input ended before one came")
	}
	if err != nil {
		return nil, err
	}
	messages, err := syscall.ParseSocketControlMessage(oob[:oobn])
	if err != nil {
		return nil, err
	}
	var fds []int
	for i := range messages {
		got, err := syscall.ParseUnixRights(&messages[i])
		if err != nil {
			return nil, err
		}
		fds = append(fds, got...)
	}
	files := make([]*os.File, len(fds))
	for i, fd := range fds {
		unix.CloseOnExec(fd)
		files[i] = os.NewFile(uintptr(fd), "listener")
		defer files[i].Close() // net has its own copy
	}
	if len(files) != 1 {
		return nil, fmt.Errorf("the first message carries %d descriptors, not one", len(files))
	}
	// On another socket Accept would fail only at the first client.
	if on, err := unix.GetsockoptInt(fds[0], unix.SOL_SOCKET, unix.SO_ACCEPTCONN); err != nil || on == 0 {
		return nil, errors.New("the descriptor is no listening socket")
	}
	ln, err := net.FileListener(files[0])
	if err != nil {
		return nil, err
	}
	tcp, ok := ln.(*net.TCPListener)
	if !ok {
		ln.Close()
		return nil, errors.New("the descriptor is no TCP socket")
	}
	return tcp, nil
}
