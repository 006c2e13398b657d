package sandbox

import (
	"encoding/binary"
	"maps"
	"slices"
)

// Landlock's access rights, from include/uapi/linux/landlock.h.
const (
	accessExecute   = 1 << 0
	accessWriteFile = 1 << 1
	accessReadFile  = 1 << 2
	accessReadDir   = 1 << 3
	accessRefer     = 1 << 13 // ABI 2: without it renames across folders fail
	accessTruncate  = 1 << 14 // ABI 3
	accessIoctlDev  = 1 << 15 // ABI 5
	accessABI1      = 1<<13 - 1

	netConnect = 1 << 1
	netAll     = 1<<0 | netConnect // ABI 4: bind, connect

	scopeAll = 1<<0 | 1<<1 // ABI 6: abstract sockets, signals
)

// landlockAccess gives the rights over files that an ABI knows: all are
// handled, and so denied where no rule grants them.
func landlockAccess(abi int) uint64 {
	access := uint64(accessABI1)
	if abi >= 2 {
		access |= accessRefer
	}
	if abi >= 3 {
		access |= accessTruncate
	}
	if abi >= 5 {
		access |= accessIoctlDev
	}
	return access
}

// landlockRuleset is the struct landlock_ruleset_attr, as long as the ABI knows it.
func landlockRuleset(abi int) []byte {
	b := binary.LittleEndian.AppendUint64(nil, landlockAccess(abi))
	if abi >= 4 {
		b = binary.LittleEndian.AppendUint64(b, netAll)
	}
	if abi >= 6 {
		b = binary.LittleEndian.AppendUint64(b, scopeAll)
	}
	return b
}

// landlockPath is the struct landlock_path_beneath_attr (packed).
func landlockPath(access uint64, fd int) []byte {
	b := binary.LittleEndian.AppendUint64(nil, access)
	return binary.LittleEndian.AppendUint32(b, uint32(fd))
}

// landlockPort is the struct landlock_net_port_attr.
func landlockPort(access, port uint64) []byte {
	b := binary.LittleEndian.AppendUint64(nil, access)
	return binary.LittleEndian.AppendUint64(b, port)
}

// landlock says once more, by another mechanism, what may be done with the
// files that are there, and which ports may be connected to.
func (c *compiler) landlock(p *Plan) {
	c.layer = "landlock"
	abi := p.Facts.Landlock
	attr := landlockRuleset(abi)
	rules := c.open("landlock_create_ruleset", blob(attr), num(int64(len(attr))), num(0))
	all := landlockAccess(abi)
	grant := func(at string, access uint64) {
		fd := c.open("openat", num(atCwd), str(at), num(openPath|openCloexec), num(0))
		c.add("landlock_add_rule", num(int64(rules)), num(landlockPathBeneath), blob(landlockPath(access&all, fd)), num(0))
		c.close(fd)
	}
	grant("/", accessReadDir) // ls /; but not /.seal
	grant("/proc", accessReadFile|accessReadDir)
	grant("/dev", accessReadFile|accessWriteFile|accessReadDir|accessIoctlDev)
	const makeDevices = 1<<6 | 1<<11
	grant("/scratch", all&^(makeDevices|accessIoctlDev))
	const use = accessExecute | accessReadFile
	tops := map[string]bool{}
	if c.made("/etc") {
		tops["/etc"] = true
	}
	for _, m := range p.Mounts {
		switch t := top(m.Path); {
		case t == "/tmp": // another way to the folder below /scratch
			tops[t] = true
		case t != m.Path:
			tops[t] = true
		case m.Link == "" && m.Tree != nil:
			tops[t] = true
		case m.Link == "":
			grant(m.Path, use) // a file: rights over folders would be refused
		}
	}
	tops[InDir] = true
	for _, t := range slices.Sorted(maps.Keys(tops)) {
		if t == "/tmp" {
			grant(t, all&^(makeDevices|accessIoctlDev))
		} else {
			grant(t, use|accessReadDir)
		}
	}
	if abi >= 4 {
		for _, port := range p.ports() {
			c.add("landlock_add_rule", num(int64(rules)), num(landlockNetPort), blob(landlockPort(netConnect, uint64(port))), num(0))
		}
	}
	c.add("landlock_restrict_self", num(int64(rules)), num(0))
	c.close(rules)
}
