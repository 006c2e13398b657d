// Package cas names content, and keeps it: digests, the messages that a key is
// made of, trees, results, and the store on the disk.
//
// # Vocabulary
//
//   - blob: bytes. Its digest is a hash function, a hash and a size.
//   - directory: one level of a folder, as a message that names its files,
//     folders and symlinks with their digests. A tree is a directory and all
//     below it; finished subtrees are shared, not encoded again. A hollow tree
//     is known by its digests alone.
//   - command, action: what runs, and on which tree. The digest of the encoded
//     action is the key.
//   - result: what an action came to, kept under its key. It names blobs.
//   - pure: can be computed again. Capture: evidence, perhaps paid for.
//   - root: one of the two folders of a store. Pure things are in the cache
//     root, captures in the data root; one folder may be both.
//   - receipt: the note that a server was seen to have a result, and in what form.
//   - tombstone: what is left of a capture that a person deleted.
//   - stamp: the modification time that a blob's file has, made of its digest.
//
// # The way through
//
//	File, Symlink, Mount          Arguments, Env ...
//	        |                           |
//	        v                           v
//	   TreeBuilder -> Tree.Digest    Command -> digest
//	                     |              |
//	                     +---> Action <-+
//	                             |
//	                             v  Func.Sum(Encode()) = key
//	      Lock(key) ... Lookup(key) ... Put(blobs), PutResult(key) ... unlock
//	                             |
//	                             v
//	              Read, Open, Export of the blobs it names
//
// # Layout
//
//	<root>/cas/<func>/<2 hex>/<hex>       a blob as it is, mode 0444, stamped
//	<root>/cas/<func>/<2 hex>/<hex>.zst   the same, compressed; from 4096 bytes on
//	<root>/ac/<func>/<2 hex>/<hex>        a result with its class and checksum; its
//	                                      time is that of its last use, to the day
//	<root>/receipts/<16 hex>/<2 hex>/<hex>  a server's name, hashed, and a key: the
//	                                      result as it is there; the time is when
//	                                      that was last seen
//	<data root>/tombstones/<func>/<2 hex>/<hex>  why a capture was deleted
//	<root>/tmp/<unix second>-<random>     being written
//	<root>/quarantine/<func>-<hex>-<random>/<name>  was damaged, or in the way
//	<cache root>/plain/<func>/<2 hex>/<hex>[x]  a plain copy for sealed roots; x: 0555
//	<cache root>/locks                    a byte for each key that is locked
//
// # Invariants
//
//   - One message has one encoding, that of REAPI v2
//     (build.bazel.remote.execution.v2) with lists sorted. Directory, Command
//     and Action are only decoded from it. DecodeResult is looser, since servers
//     add to results, but never panics.
//   - A file gets its name when it is whole. A process killed at any instruction
//     leaves a temporary file, which counts for nothing.
//   - What is handed out is right: Read, Open and Export hash each byte. Lookup,
//     Has and Stage trust stamps instead; Stamp says what that can't notice.
//   - Lookup gives a result only if each blob that it names is there. For a pure
//     one that isn't whole it is a *MissError, for a capture an *IncompleteError.
//   - A recorded capture is replaced only after Delete. DeleteCapture leaves a
//     tombstone, under which nothing but that capture is recorded again. A
//     capture is on the disk, blobs first, when PutResult returns. After a power cut a pure result may be gone
//     or its blobs damaged, which is a miss once the damage is seen.
//   - A receipt is a note: what is damaged counts for none, but its key for
//     received, so that nothing is passed on as ours that may not be.
//   - Damaged files are moved to the quarantine. Collect deletes them there, by
//     age, where they can't be of a capture.
//   - Collect removes nothing that a capture needs, nor what a writer counts on
//     (see grace.go). Captures go one by one, by DeleteCapture.
//
// # What it doesn't do
//
// It doesn't collect garbage by itself, talk to servers, or keep users apart: a
// store belongs to one user, and whoever can write its folders can put in a
// wrong result under a right checksum. It needs a file system with rename, fcntl
// locks, change times and, to be fast, times in nanoseconds. On NFS, locks are as good as the
// server's. It never logs.
package cas
