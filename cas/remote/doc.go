// Package remote is the cache that a team shares: what one machine has paid for,
// the others have. The server is somebody else's, and speaks the Remote Execution
// API (package reapi); this package decides in what form results travel, what is
// believed, what is sent and when, and for how long a server is asked at all.
//
// # Vocabulary
//
//   - local: digests by the store's function. Native: a server that has it too.
//     Foreign: one that hasn't; each blob then has a double, its digest there.
//   - entry: an ActionResult under a key of the server.
//   - capture digest: that of the canonical cas.Result, by which a lock names one
//     of several captures of a key.
//   - stand-in: a REAPI Action that does nothing, whose digest is a key there for
//     what our own keys can't be.
//   - receipt: a note in the store of what the server was seen to have.
//   - surplus: a capture under whose key another one was first.
//   - trusted builder: a public key. An entry may be signed.
//
// # The way through
//
//	Find ---- receipt? ---- lookup ---- decode: sum, signature, doubles
//	  |                                    |
//	  v                                    v
//	Fetch: trees, blobs -> hashed -> store, result, receipt
//	Keep:  trees, FindMissing     ->               receipt
//
//	Send -> queue -> pack -> FindMissing -> blobs -> entries -> receipt
//	Flush waits for it
//
// # What is under a key
//
//	output_files, output_directories, output_symlinks, exit_code, stdout_digest,
//	stderr_digest            as for any client, in the server's digests
//	output_files[".eval-trees/PATH"]  foreign only: the local Tree message of a folder
//	execution_metadata.worker         "eval"
//	auxiliary_metadata["eval/result"] the canonical local result with small contents
//	                  ["eval/roots"]  the local root digest of each folder
//	                  ["eval/sum"]    hash of the statement: key, result and roots
//	                  ["eval/signature"]  public key and ed25519 signature of it
//
// A pure result is under its key. A capture is also under a stand-in of key and
// capture digest, where nothing ever replaces it.
//
// # Invariants
//
//   - Nothing that arrives counts before its bytes were hashed with the local
//     function: no server can bring a wrong blob into the store.
//   - A server that is down, slow, full, cut, restarted, lying or garbled is a
//     miss, at most one warning for each kind of trouble, and bounded time: the
//     first time-out, three failures in a row of one kind of call or five wrong
//     blobs end its use, and all calls on their way. Only Options.Required makes
//     an outage an error, and the first failure one.
//   - What was wrong or incomplete once isn't believed again by this process.
//   - The entry of a capture under its key isn't replaced: it is looked up before
//     it is written, after, and at Flush. No server can promise more; whoever
//     finds another capture there is told that his is surplus.
//   - What came from a server is never sent, so nobody signs what he hasn't made.
//   - Memory doesn't grow with blobs or queues.
//
// # What it doesn't do
//
// It doesn't decide which results are worth sharing, run actions, or log.
package remote
