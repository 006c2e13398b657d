// Package egress is the way out of a sealed process, and the log of what the
// process asked for.
//
//	          the rep's network namespace │ the harness
//	                                      │
//	process ──CONNECT host:443──▶ listener┼▶ list ▶ log ▶ resolve ▶ check ▶ dial ▶ 200 ▶ ClientHello ▶ copy
//	process ──plain TCP─────────▶ listener┼▶ log ▶ dial the declared target ▶ copy
//
// Vocabulary. A Server serves one rep. An Attempt is one connection that the
// rep asked for. The listeners were made inside the rep's namespace, which has
// nothing but loopback, and passed out: whatever comes through one of them is
// that rep's, and there is no other way out.
//
// The proxy speaks CONNECT and nothing else:
//
//   - Allowed are the exact host and port of the list; an empty list allows
//     nothing. Hosts are compared in canonical form: ASCII lower case, one dot
//     at the end dropped. Anything that isn't a plain host name is malformed;
//     an address, in any spelling, is refused.
//   - Plain HTTP is always refused: what it carries could be neither bound to a
//     host nor told from a fronted request. A local server takes a forward.
//   - A name is resolved once, as rooted name (no search domains). If any of its
//     addresses is not an ordinary public one, all are refused: an answer that
//     mixes both is misconfigured or an attack, and which one would be dialled
//     is chance. What was checked is dialled, never the name again.
//   - An attempt is in the log before its name is resolved and with its address
//     before that is dialled. When the log is full, every attempt is refused.
//   - Connecting sends nothing of the process's. The 200 follows the connect, so
//     that a client sees a true 502; then the process's first bytes must be one
//     whole TLS ClientHello whose SNI is the host of the CONNECT, before a byte
//     goes to either side.
//   - Encrypted ClientHello is refused, also if it is only GREASE, which by
//     design can't be told apart. Browsers send it; curl, OpenSSL, Go, Node and
//     Python don't unless told to.
//   - Headers other than those that frame a message are ignored, and neither
//     they nor user names, paths and queries are logged: they hold secrets.
//
// A forward is plain TCP to a target that the user declared, so no rule on
// addresses holds for it.
//
// Not seen: what is said inside an allowed TLS session, so also another Host
// than the SNI (domain fronting), a second ClientHello after a
// HelloRetryRequest, a server that relays. Not known: NAT64 prefixes that an
// operator chose for himself, and public addresses of this machine.
package egress
