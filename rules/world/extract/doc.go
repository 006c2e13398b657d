// Package extract is the connector of a world: it reads the systems' events over
// HTTP, as far as they can be reached, and writes down what a verifier may know.
//
//	            done        settled        after          instants, in this order
//	system a  ── read ────── read ───────── read ──┐
//	system b  ── read ────── read ───────── read ──┼─> facts.json: events, links
//	system c  ── cut ─────── 503 ────────── read ──┘   reach.json: who was down last
//
// Each read stands alone: what a system said at an earlier instant is not
// carried to a read at which it is down. A cut connection or a status of 400 and
// more means unreachable, which is a fact. Events that are malformed, or whose
// numbers don't rise, are a fault: they come from a broken server, and are never
// taken for a fact. The extractor sees no tables, and no plan of failures.
package extract
