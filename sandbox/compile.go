package sandbox

import (
	"encoding/binary"
	"fmt"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/evalbuild/eval/sandbox/collect"
	"github.com/evalbuild/eval/sandbox/pid1"
	"github.com/evalbuild/eval/sandbox/seccomp"
	"github.com/evalbuild/eval/workspace/graph"
)

// UID is who the target is inside, in every variant.
const UID = 1000

// ProxyPort is where the CONNECT proxy listens inside.
const ProxyPort = graph.ProxyPort

const (
	imageFD   = 5 // PID 1's program
	passingFD = 6 // where network passes descriptors out; closed then
	firstFD   = 7 // of what rows open; all below are set, all above are closed
)

// A Plan is what one program is compiled from.
type Plan struct {
	Policy   graph.Policy
	Mounts   []graph.Mount
	Folders  []string // folders below WorkDir that are there at the start, parents first
	Listener bool     // a proxy listener even without a network
	Facts    Facts
}

// outputFolders are the folders that outputs lie in: like the workers of
// remote execution, a seal makes them, and the process needn't.
func outputFolders(outs []collect.Output) []string {
	made := map[string]bool{}
	for _, o := range outs {
		for up := path.Dir(o.Path); up != "." && up != "/"; up = path.Dir(up) {
			made[up] = true
		}
	}
	return slices.Sorted(maps.Keys(made)) // a parent is before what is in it
}

// ports lists the listeners inside, the proxy first.
func (p *Plan) ports() []uint16 {
	var out []uint16
	if p.Listener || len(p.Policy.Network) > 0 {
		out = append(out, ProxyPort)
	}
	for _, f := range p.Policy.Forward {
		out = append(out, f.Port)
	}
	return out
}

// compiler collects rows; fd is the next descriptor that a call returns.
type compiler struct {
	rows  []Row
	layer string
	fd    int
}

func (c *compiler) add(call string, args ...Operand) {
	c.rows = append(c.rows, Row{Layer: c.layer, Call: call, Args: args, FD: -1})
}

// open adds a call that returns a descriptor, and returns which.
func (c *compiler) open(call string, args ...Operand) int {
	c.rows = append(c.rows, Row{Layer: c.layer, Call: call, Args: args, FD: c.fd})
	c.fd++
	return c.fd - 1
}

func (c *compiler) close(fd int) {
	c.add("close", num(int64(fd)))
	c.fd--
}

func (c *compiler) closeFrom(fd int) {
	c.add("close_range", num(int64(fd)), num(1<<32-1), num(0))
	c.fd = fd
}

// Compile makes the program of a plan: a pure function of it, on any system.
// The order is forced where a comment says so.
func Compile(p Plan) (Program, error) {
	if err := p.Facts.check(); err != nil {
		return Program{}, err
	}
	if p.Policy.Unsealed {
		return Program{}, fmt.Errorf("an unsealed policy has no program")
	}
	if err := checkMounts(p.Mounts); err != nil {
		return Program{}, err
	}
	for _, f := range p.Folders {
		if !filepath.IsLocal(f) || path.Clean(f) != f || strings.ContainsRune(f, 0) {
			return Program{}, fmt.Errorf("folder %q: no clean path below the working directory", f)
		}
	}
	code, err := seccomp.Compile(p.Facts.Arch)
	if err != nil {
		return Program{}, err
	}
	c := &compiler{fd: firstFD}
	c.begin(&p)
	c.identity(&p)
	c.root(&p)
	c.scratch(&p)
	c.mounts(&p)
	c.finishRoot()
	c.network(&p)
	c.names()
	c.limits(&p)
	c.capabilities()
	c.landlock(&p)
	c.layer = "seccomp" // last: it forbids most rows above
	c.add("seccomp", num(seccompSetModeFilter), num(0), bpf(filterBytes(code)))
	c.layer = "reap"
	c.add("execveat", num(imageFD), str(""), sym("argv"), sym("env"), num(atEmptyPath))
	return Program{
		Clone: cloneNewUser | cloneNewNS | cloneNewPID | cloneNewNet | cloneNewIPC | cloneNewUTS | cloneNewCgroup,
		Rows:  c.rows,
	}, nil
}

// filterBytes is the array of struct sock_filter.
func filterBytes(code []seccomp.Instruction) []byte {
	b := make([]byte, 0, 8*len(code))
	for _, in := range code {
		b = binary.LittleEndian.AppendUint16(b, in.Code)
		b = append(b, in.JT, in.JF)
		b = binary.LittleEndian.AppendUint32(b, in.K)
	}
	return b
}

// begin makes the child one that can do no harm while it is set up.
func (c *compiler) begin(p *Plan) {
	c.layer = "limits"
	c.add("prlimit64", num(0), num(rlimitCore), rlimit(coreLimit), num(0))
	c.layer = "session"
	c.add("setsid")
	// The harness's could make another machine of this one (setarch i686).
	c.add("personality", num(0))
	c.layer = "fds"
	for fd, name := range []string{"stdin", "stdout", "stderr", "death", "control", "image", "passing"} {
		flags := int64(0)
		if fd >= imageFD {
			flags = openCloexec
		}
		c.rows = append(c.rows, Row{Layer: c.layer, Call: "dup3", Args: []Operand{sym(name), num(int64(fd)), num(flags)}, FD: fd})
	}
	// Early: a sibling stuck below would hold other reps' death pipes open.
	c.closeFrom(firstFD)
	c.layer = "limits"
	// Each mount is a descriptor for a while.
	c.add("prlimit64", num(0), num(rlimitNofile), rlimit(p.Facts.ceiling(rlimitNofile, max(openFiles, int64(len(p.Mounts))+64))), num(0))
	c.layer = "env"
	c.add("umask", num(0o022))
}

// identity takes hold of the mounts' sources and becomes uid 1000. A root
// harness maps a uid of its slot from outside; until then the child is still
// the host's root, though without power over it, and so may open what lies in
// root's private folders. After it, it can't: the order is forced.
func (c *compiler) identity(p *Plan) {
	c.layer = "user"
	if p.Facts.Variant == VariantUser {
		for _, m := range []struct{ file, content string }{{"setgroups", "deny"}, {"uid_map", ""}, {"gid_map", ""}} {
			fd := c.open("openat", num(atCwd), str("/proc/self/"+m.file), num(openWrite|openCloexec), num(0))
			if m.content != "" {
				c.add("write", num(int64(fd)), str(m.content), num(int64(len(m.content))))
			} else {
				c.add("write", num(int64(fd)), sym(m.file), sym(m.file+"_size"))
			}
			c.close(fd)
		}
	}
	c.layer = "mount"
	c.add("mount", num(0), str("/"), num(0), num(msRec|msPrivate), num(0))
	for i, m := range p.Mounts {
		if m.Link != "" {
			continue
		}
		fd := c.open("open_tree", num(atCwd), named("input/"+m.Digest.String(), "mount/"+strconv.Itoa(i)), num(openTreeClone|openCloexec|atRecursive|atSymlinkNofolow|atNoAutomount))
		// What was opened is compared with what was meant, before the word to go.
		c.add("statx", num(int64(fd)), str(""), num(atEmptyPath), num(statxIno), sym("stat/"+strconv.Itoa(i)))
		c.add("mount_setattr", num(int64(fd)), str(""), num(atEmptyPath|atRecursive),
			mountAttr(mountAttrReadonly|mountAttrNosuid|mountAttrNodev), num(32))
	}
	c.layer = "dev"
	for _, d := range devices {
		fd := c.open("open_tree", num(atCwd), str("/dev/"+d), num(openTreeClone|openCloexec|atSymlinkNofolow|atNoAutomount))
		// Without NODEV, or they would be dead. Read-only concerns the node, not the device.
		c.add("mount_setattr", num(int64(fd)), str(""), num(atEmptyPath), mountAttr(mountAttrReadonly|mountAttrNosuid|mountAttrNoexec), num(32))
	}
	if p.Facts.Variant == VariantRoot {
		c.layer = "user"
		// The socket has a receive timeout: no row waits without a bound.
		c.add("recvfrom", num(pid1.ControlFD), sym("byte"), num(1), num(0), num(0), num(0))
		c.add("setgroups", num(0), num(0))
		c.add("setresgid", num(UID), num(UID), num(UID))
		c.add("setresuid", num(UID), num(UID), num(UID))
	}
}

// devices are all that /dev has besides links.
var devices = []string{"full", "null", "random", "urandom", "zero"}

// root pivots into an empty file system. The old root stays below it until
// /proc is mounted: the kernel wants to see that a /proc is visible already.
func (c *compiler) root(p *Plan) {
	c.layer = "root"
	c.add("mount", str("tmpfs"), str("/tmp"), str("tmpfs"), num(msNosuid|msNodev), str("mode=0755"))
	c.add("chdir", str("/tmp"))
	c.mkdir("old")
	c.add("pivot_root", str("."), str("old"))
	c.add("chdir", str("/"))
	c.layer = "proc"
	c.mkdir("/proc")
	c.add("mount", str("proc"), str("/proc"), str("proc"), num(msNosuid|msNodev|msNoexec), str("subset=pid"))
	c.layer = "root"
	c.add("umount2", str("/old"), num(umountDetach))
	c.add("unlinkat", num(atCwd), str("/old"), num(0x200))
	c.add("mknodat", num(atCwd), str("/.seal"), num(fileRegular|0o444), num(0)) // Landlock's probe
	for _, f := range []struct{ path, content string }{
		// Programs ask who they are and where localhost is.
		{"/etc/group", "eval:x:1000:\n"},
		{"/etc/hosts", "127.0.0.1 localhost eval\n::1 localhost\n"},
		{"/etc/nsswitch.conf", "group: files\nhosts: files\npasswd: files\n"},
		{"/etc/passwd", "eval:x:1000:1000:eval:" + HomeDir + ":/bin/sh\n"},
	} {
		if f.path == "/etc/group" {
			if slices.ContainsFunc(p.Mounts, func(m graph.Mount) bool { return m.Path == "/etc" }) {
				break // a folder of the host in its place
			}
			c.mkdir("/etc")
		}
		if slices.ContainsFunc(p.Mounts, func(m graph.Mount) bool { return m.Path == f.path }) {
			continue
		}
		fd := c.open("openat", num(atCwd), str(f.path), num(openWrite|openCreate|openExclusive|openCloexec), num(0o444))
		c.add("write", num(int64(fd)), str(f.content), num(int64(len(f.content))))
		c.close(fd)
	}
}

func (c *compiler) mkdir(p string) { c.add("mkdirat", num(atCwd), str(p), num(0o755)) }

func (c *compiler) symlink(target, p string) { c.add("symlinkat", str(target), num(atCwd), str(p)) }

// scratch is the one place that can be written: a file system of its own, so
// that its limit is hard and nothing is left to delete.
func (c *compiler) scratch(p *Plan) {
	c.layer = "root"
	c.mkdir("/scratch")
	size := p.Policy.Limits.Scratch
	c.add("mount", str("tmpfs"), str("/scratch"), str("tmpfs"), num(msNosuid|msNodev),
		str(fmt.Sprintf("mode=0755,size=%d,nr_inodes=%d", size, min(max(size/4096, 4096), 1<<20))))
	for _, d := range []string{WorkDir, HomeDir, TempDir, "/scratch/shm"} {
		c.mkdir(d)
	}
	for _, d := range p.Folders {
		c.mkdir(path.Join(WorkDir, d))
	}
	if slices.ContainsFunc(p.Mounts, func(m graph.Mount) bool { return top(m.Path) == "/tmp" }) {
		c.mkdir("/tmp")
		c.add("mount", str(TempDir), str("/tmp"), num(0), num(msBind), num(0))
	} else {
		c.symlink("scratch/tmp", "/tmp")
	}
}

// mounts attaches devices and inputs. Descriptors count up as identity opened
// them: the inputs, then the devices.
func (c *compiler) mounts(p *Plan) {
	c.layer = "dev"
	c.mkdir("/dev")
	for _, l := range [][2]string{
		{"/proc/self/fd", "/dev/fd"},
		{"fd/0", "/dev/stdin"},
		{"fd/1", "/dev/stdout"},
		{"fd/2", "/dev/stderr"},
		{"/scratch/shm", "/dev/shm"}, // in the scratch budget; Python's locks want it
	} {
		c.symlink(l[0], l[1])
	}
	fd := firstFD
	for _, m := range p.Mounts {
		if m.Link == "" {
			fd++
		}
	}
	attach := func(fd int, at string) {
		c.add("move_mount", num(int64(fd)), str(""), num(atCwd), str(at), num(moveMountEmptyPath))
	}
	for i, d := range devices {
		c.add("mknodat", num(atCwd), str("/dev/"+d), num(fileRegular|0o444), num(0))
		attach(fd+i, "/dev/"+d)
	}
	c.layer = "mount"
	made := map[string]bool{"/": true, "/tmp": true, "/etc": c.made("/etc")}
	var parents func(string)
	parents = func(dir string) {
		if !made[dir] {
			parents(path.Dir(dir))
			c.mkdir(dir)
			made[dir] = true
		}
	}
	parents(InDir)
	fd = firstFD
	for _, m := range p.Mounts {
		parents(path.Dir(m.Path))
		switch {
		case m.Link != "":
			c.symlink(m.Link, m.Path)
			continue
		case m.Tree != nil:
			parents(m.Path)
		default:
			c.add("mknodat", num(atCwd), str(m.Path), num(fileRegular|0o444), num(0))
		}
		attach(fd, m.Path)
		fd++
	}
	c.closeFrom(firstFD)
}

// made says whether a row makes the folder.
func (c *compiler) made(dir string) bool {
	return slices.ContainsFunc(c.rows, func(r Row) bool { return r.Call == "mkdirat" && r.Args[1].text == dir })
}

func (c *compiler) finishRoot() {
	c.layer = "root"
	c.add("mount_setattr", num(atCwd), str("/"), num(0), mountAttr(mountAttrReadonly|mountAttrNosuid|mountAttrNodev), num(32))
}

// network passes out the scratch folder, and the listeners that are the only
// way out of a namespace with nothing but a loopback.
func (c *compiler) network(p *Plan) {
	c.layer = "egress"
	pass := []byte{byte(c.open("openat", num(atCwd), str(WorkDir), num(openPath|openCloexec), num(0)))}
	if ports := p.ports(); len(ports) > 0 {
		fd := c.open("socket", num(afInet), num(sockDgram|sockCloexec), num(0))
		c.add("ioctl", num(int64(fd)), num(siocsifflags), loopbackUp())
		c.close(fd)
		for _, port := range ports {
			fd := c.open("socket", num(afInet), num(sockStream|sockNonblock|sockCloexec), num(0))
			c.add("bind", num(int64(fd)), loopback(port), num(16))
			c.add("listen", num(int64(fd)), num(128))
			pass = append(pass, byte(fd))
		}
	}
	c.add("sendmsg", num(passingFD), descriptors(pass), num(0))
	c.add("close_range", num(passingFD), num(1<<32-1), num(0))
	c.fd = passingFD
}

func (c *compiler) names() {
	c.layer = "uts"
	c.add("sethostname", str("eval"), num(4))
	c.add("setdomainname", str(""), num(0))
	c.layer = "env"
	c.add("chdir", str(WorkDir))
}

// coreLimit is 1, not 0: a core_pattern that is a pipe ignores 0 and would get
// the memory, which at first is the harness's.
const coreLimit = 1

// openFiles is how many descriptors a process may have.
const openFiles = 4096

// limitsOf gives the limits that a plan sets, by resource; the hard one and the
// soft one are equal.
func limitsOf(p *Plan) map[int]int64 {
	l := p.Policy.Limits
	limits := map[int]int64{
		rlimitCore:       coreLimit,
		rlimitFsize:      l.Scratch,
		rlimitNofile:     openFiles,
		rlimitNproc:      l.Processes + 1, // and PID 1
		rlimitStack:      8 << 20,
		rlimitMemlock:    8 << 20,
		rlimitSigpending: 1024,
		rlimitMsgqueue:   800 << 10,
		rlimitNice:       0,
		rlimitRtprio:     0,
	}
	if p.Facts.Cgroup == "none" {
		// DATA and not AS: what V8 and Go reserve without using it doesn't count.
		limits[rlimitData] = l.Memory
	} else {
		// The kernel looks at this limit first. At the same number it would hide
		// that the cgroup's was hit, which alone is counted and so a fact.
		limits[rlimitNproc]++
	}
	for resource, n := range limits {
		limits[resource] = p.Facts.ceiling(resource, n)
	}
	return limits
}

func (c *compiler) limits(p *Plan) {
	c.layer = "limits"
	limits := limitsOf(p)
	for _, resource := range slices.Sorted(maps.Keys(limits)) {
		if resource != rlimitCore { // set first of all
			c.add("prlimit64", num(0), num(int64(resource)), rlimit(limits[resource]), num(0))
		}
	}
}

func (c *compiler) capabilities() {
	c.layer = "caps"
	for n := range int64(capLast + 1) {
		c.add("prctl", num(prCapbsetDrop), num(n), num(0), num(0), num(0))
	}
	c.add("capset", blob([]byte{0x22, 0x05, 0x08, 0x20, 0, 0, 0, 0}), blob(make([]byte, 24))) // _LINUX_CAPABILITY_VERSION_3
	c.add("prctl", num(prCapAmbient), num(prAmbientClearAll), num(0), num(0), num(0))
	c.add("prctl", num(prSetNoNewPrivs), num(1), num(0), num(0), num(0))
}
