package sandbox

import (
	"errors"
	"io/fs"
	"slices"
	"strings"
	"syscall"
)

// A Finding is what Probe found of one layer.
type Finding struct {
	Layer string
	Live  bool
	// Untried says that nothing is known of it: a layer that it needs is missing.
	Untried bool
	State   string // observed, probed, applied; of a layer that isn't live: what failed, with its errno
	Cause   string // why it isn't, or what is soft about it
	Hint    string // what to change
}

// A host is where causes are read from: the root of the file system, and what
// the process is.
type host struct {
	files    fs.FS // of "/"
	root     bool  // we are uid 0
	dumpable bool
}

func (h host) read(name string) string {
	b, err := fs.ReadFile(h.files, name)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

func (h host) status(field string) string {
	for line := range strings.Lines(h.read("proc/self/status")) {
		if v, ok := strings.CutPrefix(line, field+":"); ok {
			return strings.TrimSpace(v)
		}
	}
	return ""
}

// overProc lists what is mounted over parts of /proc.
func (h host) overProc() []string {
	var out []string
	for line := range strings.Lines(h.read("proc/self/mountinfo")) {
		if f := strings.Fields(line); len(f) > 4 && strings.HasPrefix(f[4], "/proc/") && f[4] != "/proc/sys/fs/binfmt_misc" {
			out = append(out, f[4])
		}
	}
	return out
}

// nested says that we are inside of a seal ourselves.
func (h host) nested() bool {
	_, err := fs.Stat(h.files, ".seal")
	return err == nil && h.status("NoNewPrivs") == "1" && strings.Trim(h.status("CapBnd"), "0") == ""
}

// namespaceLayers are those that a clone makes, and a limit on namespaces stops.
var namespaceLayers = []string{"user", "mount", "pid", "net", "ipc", "uts", "cgroup"}

// dockerFlags are what a seal needs of a container.
const dockerFlags = "start the container with --security-opt seccomp=unconfined --security-opt apparmor=unconfined --security-opt systempaths=unconfined " +
	"(or a seccomp profile that allows clone with new namespaces, mount and pivot_root)"

// explain says why a layer failed, from the files that decide it, and what to
// change. The rows are in the order of what is most certain.
func (h host) explain(layer string, err error) (cause, hint string) {
	var errno syscall.Errno
	errors.As(err, &errno)
	denied := errno == syscall.EPERM || errno == syscall.EACCES
	switch {
	case h.nested():
		return "already inside of a seal", "run eval outside; a sealed process can't seal others"
	case layer == "landlock" && (errno == syscall.ENOSYS || errno == syscall.EOPNOTSUPP):
		return "the kernel has no Landlock, or it isn't switched on",
			"use Linux 5.13 or later, with landlock in the list of the boot parameter lsm="
	case layer == "proc" && denied && len(h.overProc()) > 0:
		return "parts of /proc are hidden by mounts over them (" + h.overProc()[0] + " …), as container engines do",
			"start the container with --security-opt systempaths=unconfined"
	case slices.Contains(namespaceLayers, layer) && (errno == syscall.ENOSPC || errno == syscall.EUSERS):
		if h.read("proc/sys/user/max_user_namespaces") == "0" {
			return "user.max_user_namespaces is 0", "sudo sysctl -w user.max_user_namespaces=15000"
		}
		return "a limit on namespaces, or on how deep they nest, is reached", "see /proc/sys/user/max_*_namespaces"
	case denied && !h.root && h.read("proc/sys/kernel/unprivileged_userns_clone") == "0":
		return "kernel.unprivileged_userns_clone is 0", "sudo sysctl -w kernel.unprivileged_userns_clone=1"
	case denied && h.status("Seccomp") != "0" && h.status("Seccomp") != "" && layer == "user":
		return "a seccomp filter that this process inherited forbids it, as Docker's default profile does", dockerFlags
	case denied && h.read("proc/sys/kernel/apparmor_restrict_unprivileged_userns") == "1" && !h.root:
		return "AppArmor takes all capabilities from new user namespaces (kernel.apparmor_restrict_unprivileged_userns is 1, the default since Ubuntu 23.10)",
			"sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0; or, narrower, a profile for this program's installed path with `flags=(unconfined) { userns, }`"
	case denied && layer == "user" && !h.dumpable:
		return "this process isn't dumpable, so its child can't write its own maps", "make the eval binary readable, and start it without set-user-id"
	case denied && strings.Contains(h.read("proc/self/attr/current"), "docker"):
		return "AppArmor's profile " + h.read("proc/self/attr/current") + " forbids it", dockerFlags
	case denied && h.root && layer == "user":
		return "root may not make a user namespace here", dockerFlags
	case denied && h.status("Seccomp") != "0" && h.status("Seccomp") != "":
		return "perhaps a seccomp filter that this process inherited", dockerFlags
	case errno == syscall.ENOSYS || errno == syscall.EINVAL:
		return "the kernel is too old or was built without it", "use Linux 5.13 or later"
	}
	return "", ""
}
