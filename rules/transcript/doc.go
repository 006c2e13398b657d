// Package transcript reads recorded transcripts of agent CLIs into one shape, the `rep` of the language:
// a reply, a stream of events, and normalised usage.
//
//	bytes ─ lines ─ JSON check ─ decoder of the format ─┬─ Event, Event, … (each; Traps.See)
//	        64 MiB   depth 1,000                         └─ Summary (reply, usage, reasons)
//
// and writes, with an Encoder, the one format that is ours: `eval`.
//
// Vocabulary: a codec is a format and its version (`codex@1`); an event is something that happened in the rep (a
// message, a command, a tool call, an error); a reason says why a rep is degraded; a trap is a reason that only the
// commands can show (it read the treatment, or another rep, from disk).
//
// Invariants:
//   - One pass, in memory bounded by one line, the reply and the calls that are still open; a transcript may be of any length.
//   - Bad content is never an error and never a panic, it is a Reason; an error is a failed read, or what `each` returned.
//   - Equal bytes give equal events and summaries. No clock, no environment, no file system.
//   - Text is bytes: nothing is replaced by U+FFFD, so two different replies never become equal.
//   - Usage has one meaning in all formats (see Usage); a number that a format does not tell is nil, never 0.
//
// It does not decide what is infrastructure (a degraded rep may be none at all; the gateway's log knows), does not
// drop the prompt that some formats echo as a user message, and does not read files: callers pass a reader.
//
// The fields that are read of each format, with the table of usages, are in docs/formats.md.
package transcript
