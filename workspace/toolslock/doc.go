// Package toolslock reads and writes tools.lock: what tools are, pinned, so that
// a key doesn't depend on the machine where it is computed.
//
// # The file
//
// It lies beside the BUILD.star that declares the tools, and is committed. Each
// line is a JSON object with sorted keys and no spaces; lines are sorted by tool,
// platform and path, so that a diff shows what changed and merges rarely meet:
//
//	{"data":["/bin/cat"],"kind":"tool","path":"/bin/sh","platform":"linux x86-64","sum":"blake3:…/417","tool":"sh"}
//	{"kind":"link","path":"/bin","platform":"linux x86-64","target":"usr/bin","tool":"sh"}
//	{"digest":"blake3:…/125640","executable":true,"kind":"file","path":"/usr/bin/dash","platform":"linux x86-64","tool":"sh"}
//	{"digest":"blake3:…/79","kind":"folder","path":"/usr/share/x","platform":"linux x86-64","tool":"sh","tree":"blake3:…/902"}
//
// The kinds of lines:
//
//   - tool: the head, one for each tool and platform. path and data are the
//     declaration that was locked, without path if the program is a file of the
//     build; sum is the digest of the lines that follow. A tool that needs
//     nothing of the machine has its head alone.
//   - file, folder, link: one mount. The digest of a folder is that of its root,
//     as in keys; tree is that of the message which has the rest.
//
// # Invariants
//
//   - Lines may be in any order, and twice, as a union merge leaves them. Two
//     that say different things of one path, or heads that differ, are an error,
//     and so are lines that their head's sum doesn't fit: what two branches
//     locked doesn't become a third thing.
//   - A tool is locked as it was declared, or it is an error; it is never
//     looked for on the machine instead.
//   - Update replaces the file whole, under a lock of its folder. Who is killed
//     leaves the old file or the new one; of two at once both are kept.
//
// # What it doesn't do
//
// It neither finds tools nor keeps their bytes: workspace/hosttools and cas do.
package toolslock
