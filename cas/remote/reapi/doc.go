// Package reapi speaks the Remote Execution API v2 with one cache server: the
// content-addressable storage and the action cache, nothing of execution.
//
// Words: a blob is named by a cas.Digest of the server's digest function, which
// Client.Server tells; a key is the digest of an Action; a result is the wire
// form of an ActionResult, which this package doesn't look into; an instance is
// the name of one cache of several on a server.
//
//	Result, PutResult      one key            action cache
//	Missing                many digests  \
//	ReadBatch, WriteBatch  small blobs    }   content-addressable storage
//	Open, Write            one blob      /    ByteStream, resumed where it was cut
//
// What holds:
//   - The server is not trusted to be right. What comes is bounded, but it is not
//     hashed here: whoever stores it does that.
//   - A call ends. If the server does not answer it takes about Options.Timeout;
//     a stream may take longer only while it makes progress.
//   - Memory is bounded, however large a blob is: some chunks and the windows of
//     flow control of a stream.
//   - Every error is an *Error with a Kind, but for those of the caller's own
//     reader. No header's value is in any error.
//
// It does not remember what a server has, nor choose what to send; it neither
// logs nor gives up on a server (see package remote).
package reapi
