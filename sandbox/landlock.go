package sandbox

import "encoding/binary"

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
