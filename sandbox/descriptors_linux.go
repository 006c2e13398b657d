package sandbox

import (
	"fmt"
	"io"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// descriptors makes what the child gets, by symbol.
func (r *run) descriptors() (child map[string]int, err error) {
	child = map[string]int{}
	give := func(name string, fd int) error {
		if fd >= minFD {
			child[name] = fd
			return nil
		}
		up, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, minFD)
		unix.Close(fd)
		if err == nil {
			child[name] = up
		}
		return err
	}
	// Two sockets, so that one wait, for the hello, is enough: each wakes threads.
	for _, s := range []struct {
		name string
		ours *int
	}{{"control", &r.control}, {"passing", &r.passing}} {
		pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return child, err
		}
		*s.ours = r.keep(pair[0])
		tv := unix.NsecToTimeval(int64(setupTimeout))
		for _, fd := range pair {
			unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &tv)
		}
		if err := give(s.name, pair[1]); err != nil {
			return child, err
		}
	}
	var death [2]int
	if err := unix.Pipe2(death[:], unix.O_CLOEXEC); err != nil {
		return child, err
	}
	r.keep(death[1]) // our death closes it, and nothing else
	if err := give("death", death[0]); err != nil {
		return child, err
	}
	var stdin int
	if r.spec.Control != nil {
		stdin, err = unix.FcntlInt(r.spec.Control.Fd(), unix.F_DUPFD_CLOEXEC, minFD)
	} else {
		stdin, err = r.stdin()
	}
	if err == nil {
		err = give("stdin", stdin)
	}
	if err != nil {
		return child, err
	}
	for _, p := range []struct {
		name string
		to   *stream
	}{{"stdout", &r.stdout}, {"stderr", &r.stderr}} {
		var fds [2]int
		if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
			return child, err
		}
		*p.to = stream{fd: r.keep(fds[0]), limit: r.plan.Policy.Limits.Output}
		if err := give(p.name, fds[1]); err != nil {
			return child, err
		}
	}
	image, err := unix.FcntlInt(uintptr(r.s.image), unix.F_DUPFD_CLOEXEC, minFD)
	if err == nil {
		child["image"] = image
	}
	return child, err
}

// stdin is a file in memory, so that a process that doesn't read doesn't block.
func (r *run) stdin() (int, error) {
	fd, err := unix.MemfdCreate("stdin", unix.MFD_CLOEXEC)
	if err != nil {
		return -1, err
	}
	f := os.NewFile(uintptr(fd), "stdin")
	defer f.Close()
	// None is an empty one: the host's /dev/null, opened out here, is on a mount
	// that can be written, and inside its times could be set and locks be held.
	if r.spec.Stdin != nil {
		if _, err := io.Copy(f, r.spec.Stdin); err != nil {
			return -1, err
		}
	}
	// Opened again: read-only, at the start.
	return unix.Open("/proc/self/fd/"+strconv.Itoa(fd), unix.O_RDONLY|unix.O_CLOEXEC, 0)
}

func (r *run) bindings(child map[string]int) bindings {
	b := bindings{
		numbers: map[string]uint64{},
		bytes:   map[string][]byte{"byte": make([]byte, 8)},
		vectors: map[string][]string{
			"argv": append([]string{"eval-init"}, sealedStrings(r.spec.Args)...),
			"env":  sealedStrings(environment(r.spec)),
		},
	}
	for name, fd := range child {
		b.numbers[name] = uint64(fd)
	}
	for i, m := range r.spec.Mounts {
		if m.Link == "" {
			b.bytes["mount/"+strconv.Itoa(i)] = append([]byte(m.Source), 0)
			b.bytes["stat/"+strconv.Itoa(i)] = make([]byte, statxSize)
		}
	}
	if r.plan.Facts.Variant == VariantUser {
		for name, id := range map[string]int{"uid_map": os.Geteuid(), "gid_map": os.Getegid()} {
			line := fmt.Sprintf("%d %d 1\n", UID, id)
			b.bytes[name] = []byte(line)
			b.numbers[name+"_size"] = uint64(len(line))
		}
	}
	return b
}

// receive takes the descriptors that the child passes out.
func (r *run) receive() error {
	want := 1 + len(r.plan.ports())
	b, oob := make([]byte, 1), make([]byte, unix.CmsgSpace(4*want))
	var oobn int
	n, err := retry(func() (n int, err error) {
		n, oobn, _, _, err = unix.Recvmsg(r.passing, b, oob, unix.MSG_CMSG_CLOEXEC|unix.MSG_DONTWAIT)
		return n, err
	})
	if err == nil && n == 0 {
		err = io.EOF
	}
	if err != nil {
		return err
	}
	msgs, err := unix.ParseSocketControlMessage(oob[:oobn])
	if err != nil {
		return fmt.Errorf("descriptors from the child: %w", err)
	}
	var fds []int
	for i := range msgs {
		rights, err := unix.ParseUnixRights(&msgs[i])
		for _, fd := range rights {
			fds = append(fds, r.keep(fd))
		}
		if err != nil {
			return fmt.Errorf("descriptors from the child: %w", err)
		}
	}
	if len(fds) != want {
		return fmt.Errorf("%d descriptors from the child, not %d", len(fds), want)
	}
	r.scratch, r.listener = fds[0], fds[1:]
	return nil
}

// sealedStrings drops the marks: under a seal the root is the root.
func sealedStrings(in []string) []string { return rooted(in, "") }
