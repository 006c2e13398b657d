package sandbox

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"
)

// TestExplain: the causes that are known, from files as the hosts in question
// have them.
func TestExplain(t *testing.T) {
	status := func(noNewPrivs, seccomp, bnd string) string {
		return fmt.Sprintf("Name:\teval\nNoNewPrivs:\t%s\nSeccomp:\t%s\nCapBnd:\t%s\n", noNewPrivs, seccomp, bnd)
	}
	const all = "000001ffffffffff"
	for _, tt := range []struct {
		name, layer string
		errno       syscall.Errno
		root        bool
		notDumpable bool
		files       map[string]string
		cause, hint string
	}{
		{
			name: "Ubuntu 24.04", layer: "mount", errno: syscall.EACCES,
			files: map[string]string{"proc/self/status": status("0", "0", all), "proc/sys/kernel/apparmor_restrict_unprivileged_userns": "1\n"},
			cause: "AppArmor", hint: "apparmor_restrict_unprivileged_userns=0",
		},
		{
			name: "Ubuntu 24.04, maps", layer: "user", errno: syscall.EPERM,
			files: map[string]string{"proc/self/status": status("0", "0", all), "proc/sys/kernel/apparmor_restrict_unprivileged_userns": "1\n"},
			cause: "AppArmor", hint: "userns,",
		},
		{
			name: "Docker, user", layer: "user", errno: syscall.EPERM,
			files: map[string]string{"proc/self/status": status("0", "2", "00000000a80425fb")},
			cause: "Docker's default profile", hint: "seccomp=unconfined",
		},
		{
			name: "Docker, root", layer: "user", errno: syscall.EPERM, root: true,
			files: map[string]string{"proc/self/status": status("0", "2", "00000000a80425fb")},
			cause: "Docker's default profile", hint: "systempaths=unconfined",
		},
		{
			name: "Docker with seccomp off", layer: "mount", errno: syscall.EACCES, root: true,
			files: map[string]string{"proc/self/status": status("0", "0", "00000000a80425fb"), "proc/self/attr/current": "docker-default (enforce)\n"},
			cause: "docker-default", hint: "apparmor=unconfined",
		},
		{
			name: "masked /proc", layer: "proc", errno: syscall.EPERM,
			files: map[string]string{
				"proc/self/status":    status("0", "0", all),
				"proc/self/mountinfo": "30 29 0:5 / /proc rw - proc proc rw\n31 30 0:6 / /proc/kcore rw - tmpfs tmpfs rw\n",
			},
			cause: "/proc/kcore", hint: "systempaths=unconfined",
		},
		{
			name: "no user namespaces", layer: "user", errno: syscall.ENOSPC,
			files: map[string]string{"proc/self/status": status("0", "0", all), "proc/sys/user/max_user_namespaces": "0\n"},
			cause: "max_user_namespaces is 0", hint: "max_user_namespaces=15000",
		},
		{
			name: "too many namespaces", layer: "user", errno: syscall.ENOSPC,
			files: map[string]string{"proc/self/status": status("0", "0", all), "proc/sys/user/max_user_namespaces": "96000\n"},
			cause: "a limit on namespaces", hint: "max_*_namespaces",
		},
		{
			name: "Debian's switch", layer: "user", errno: syscall.EPERM,
			files: map[string]string{"proc/self/status": status("0", "0", all), "proc/sys/kernel/unprivileged_userns_clone": "0\n"},
			cause: "unprivileged_userns_clone is 0", hint: "unprivileged_userns_clone=1",
		},
		{
			name: "root without namespaces", layer: "user", errno: syscall.EPERM, root: true,
			files: map[string]string{"proc/self/status": status("0", "0", all)},
			cause: "root may not", hint: "--security-opt",
		},
		{
			name: "not dumpable", layer: "user", errno: syscall.EACCES, notDumpable: true,
			files: map[string]string{"proc/self/status": status("0", "0", all)},
			cause: "isn't dumpable", hint: "readable",
		},
		{
			name: "nested", layer: "user", errno: syscall.EPERM,
			files: map[string]string{"proc/self/status": status("1", "2", "0000000000000000"), ".seal": ""},
			cause: "already inside of a seal", hint: "outside",
		},
		{
			name: "no Landlock", layer: "landlock", errno: syscall.EOPNOTSUPP,
			files: map[string]string{"proc/self/status": status("0", "0", all)},
			cause: "no Landlock", hint: "lsm=",
		},
		{
			name: "old kernel", layer: "mount", errno: syscall.ENOSYS,
			files: map[string]string{"proc/self/status": status("0", "0", all)},
			cause: "too old", hint: "5.13",
		},
		{
			name: "a full file system", layer: "root", errno: syscall.ENOSPC,
			files: map[string]string{"proc/self/status": status("0", "0", all)},
		},
		{
			name: "unknown", layer: "root", errno: syscall.EIO,
			files: map[string]string{"proc/self/status": status("0", "0", all)},
		},
	} {
		files := fstest.MapFS{}
		for name, content := range tt.files {
			files[name] = &fstest.MapFile{Data: []byte(content)}
		}
		h := host{files: files, root: tt.root, dumpable: !tt.notDumpable}
		cause, hint := h.explain(tt.layer, &SetupError{Row: 3, Layer: tt.layer, Call: "x", Err: tt.errno})
		if !strings.Contains(cause, tt.cause) || !strings.Contains(hint, tt.hint) || tt.cause == "" && cause != "" {
			t.Errorf("%s: %q, %q", tt.name, cause, hint)
		}
	}
}
