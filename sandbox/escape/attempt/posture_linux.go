package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

func init() { outside["posture"] = posture }

// posture writes what a process can see of itself, each line once and in order.
// It is for comparing: numbers that differ from run to run are left out.
func posture([]string) string {
	var b strings.Builder
	section := func(name string, lines ...string) {
		fmt.Fprintf(&b, "\n[%s]\n", name)
		for _, l := range lines {
			b.WriteString(l + "\n")
		}
	}
	fds := descriptors() // before the runtime has any of its own
	section("status", statusLines()...)
	var ns []string
	for _, n := range []string{"cgroup", "ipc", "mnt", "net", "pid", "time", "user", "uts"} {
		to, err := os.Readlink("/proc/self/ns/" + n)
		ns = append(ns, n+" "+to+errorText(err))
	}
	section("namespaces", ns...)
	section("descriptors", fds...)
	section("limits", limits()...)
	section("mounts", fileLines("/proc/self/mountinfo")...)
	env := os.Environ()
	slices.Sort(env)
	section("environment", env...)
	cwd, err := os.Getwd()
	host, _ := os.Hostname()
	mask := unix.Umask(0)
	unix.Umask(mask)
	var uts unix.Utsname
	unix.Uname(&uts)
	section("process",
		"cwd "+cwd+errorText(err), "host "+host, "domain "+unix.ByteSliceToString(uts.Domainname[:]),
		fmt.Sprintf("umask %04o", mask), "oom_score_adj "+strings.Join(fileLines("/proc/self/oom_score_adj"), ""))
	section("scheduling", scheduling()...)
	section("session", session()...)
	for _, dir := range []string{"/", "/dev", "/proc", "/etc", "/scratch", "/tmp"} {
		section(dir, listing(dir)...)
	}
	return b.String()
}

func errorText(err error) string {
	if err != nil {
		return " " + is(err)
	}
	return ""
}

func fileLines(name string) []string {
	b, err := os.ReadFile(name)
	if err != nil {
		return []string{name + " " + is(err)}
	}
	return strings.Split(strings.TrimSuffix(string(b), "\n"), "\n")
}

// statusLines are credentials, capabilities, filters and signals.
func statusLines() []string {
	var out []string
	for _, l := range fileLines("/proc/self/status") {
		name, value, _ := strings.Cut(l, ":")
		switch {
		case strings.HasPrefix(name, "Cap"), slices.Contains([]string{
			"Uid", "Gid", "Groups", "NoNewPrivs", "Seccomp", "Seccomp_filters", "SigBlk", "SigIgn", "NStgid", "NSsid", "NSpgid",
		}, name):
			out = append(out, name+" "+strings.Join(strings.Fields(value), " "))
		}
	}
	return out
}

func descriptors() []string {
	var out []string
	for fd := range 4096 {
		to, err := os.Readlink("/proc/self/fd/" + strconv.Itoa(fd))
		if err != nil {
			continue
		}
		flags, _ := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
		to, _, _ = strings.Cut(to, ":[")
		out = append(out, fmt.Sprintf("%d %s %s", fd, to, []string{"read", "write", "both"}[flags&unix.O_ACCMODE]))
	}
	return out
}

func limits() []string {
	var out []string
	for _, l := range fileLines("/proc/self/limits")[1:] {
		out = append(out, strings.Join(strings.Fields(l), " "))
	}
	return out
}

func scheduling() []string {
	policy, _, _ := unix.RawSyscall(unix.SYS_SCHED_GETSCHEDULER, 0, 0, 0)
	nice, _, _ := unix.RawSyscall(unix.SYS_GETPRIORITY, unix.PRIO_PROCESS, 0, 0)
	io, _, _ := unix.RawSyscall(unix.SYS_IOPRIO_GET, 1, 0, 0)
	return []string{fmt.Sprintf("policy %d", policy), fmt.Sprintf("nice %d", 20-int(nice)), fmt.Sprintf("io class %d", io>>13)}
}

// session says who leads, by whether it is PID 1, this process, or another.
func session() []string {
	b, _ := os.ReadFile("/proc/self/stat")
	_, after, _ := strings.Cut(string(b), ") ")
	f := strings.Fields(after) // state ppid pgrp session tty_nr tpgid
	if len(f) < 6 {
		return nil
	}
	who := func(pid string) string {
		switch pid {
		case "0", "1", "-1":
			return pid
		case strconv.Itoa(os.Getpid()):
			return "itself"
		}
		return "other"
	}
	return []string{"parent " + who(f[1]), "group " + who(f[2]), "session " + who(f[3]), "tty " + f[4], "foreground " + who(f[5])}
}

// listing is a folder with modes, owners and where links lead.
func listing(dir string) []string {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return []string{is(err)}
	}
	var out []string
	for _, e := range entries {
		var st unix.Stat_t
		p := filepath.Join(dir, e.Name())
		if err := unix.Lstat(p, &st); err != nil {
			out = append(out, e.Name()+" "+is(err))
			continue
		}
		if _, err := strconv.Atoi(e.Name()); err == nil && dir == "/proc" {
			continue
		}
		line := fmt.Sprintf("%s %o %d:%d", e.Name(), st.Mode, st.Uid, st.Gid)
		if to, err := os.Readlink(p); err == nil && dir != "/proc" {
			line += " -> " + to
		}
		if st.Rdev != 0 {
			line += fmt.Sprintf(" %d:%d", unix.Major(st.Rdev), unix.Minor(st.Rdev))
		}
		out = append(out, line)
	}
	return out
}
