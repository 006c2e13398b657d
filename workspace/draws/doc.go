// Package draws keeps draws.lock: which reps were drawn, what came of them,
// and how often somebody looked. It is the part of evidence that is under
// version control, so that nothing is paid for twice and nothing quietly goes.
//
// # Vocabulary
//
//   - identity: which rep, an ID: the rep key (the action's key with limits
//     blanked) and the sample {stream, index, epoch, redraw, block}. The label
//     is not in it: a renamed target finds its draws. It is kept for people and
//     for the history of a label.
//   - intent: a run is about to ask for a rep. It is open until the same run
//     draws, adopts or abandons that identity.
//   - draw: the rep was had; capture is the digest of what was kept of it.
//   - abandoned: the rep was asked for and not had. It may have cost money.
//   - adopted: a capture that a store or a remote had already; needs no intent.
//   - surplus: another capture of an identity that has one: two runs that didn't
//     know of each other drew it. From says whose it is: the run's own, which
//     found that the remote had got one meanwhile and adopted that, or the
//     remote's, which had got one when this run sent its own.
//   - look: a scoring of a block that differs from the label's last one of it.
//   - run: one process that draws, a random number with a lock file; see Run.
//
// # States of an identity
//
//	        intent            draw
//	None ----------> Intent ---------> Drawn
//	  |              ^    |
//	  |       intent |    | abandoned
//	  |              |    v
//	  |             Abandoned          adopted, from None, Abandoned
//	  +-----------------+------------> Adopted   or the run's own Intent
//
// # The file
//
// JSON lines beside BUILD.star, in any order and with each line counted once:
// git merges two branches by the union of their lines (Attributes). The order
// is that of seq, then of bytes, so that any order of the same lines means the
// same. seq grows by one a line in one file; two branches use the same numbers.
// If both drew one identity, the capture of the run that began first in that
// order counts (equal seqs: by the run's number), and the others are
// State.Rivals: so for all identities it is those of one branch. Readers take
// only what the writer would have written: keys sorted, no spaces, exactly the
// fields of the kind, at most MaxLine bytes, strings as encoding/json writes them
// without HTML escapes.
//
// # Invariants
//
//   - Lines are only added. Append and Recover hold an exclusive flock on the
//     file, read what others added, judge, and write all lines with one write(2)
//     and an fsync (of the folder too if the file was empty). If git replaced
//     the file meanwhile, the lines are judged and written again in the new one.
//   - An Append that fails has added nothing, unless the disk refuses even to
//     take the bytes back. One that is killed may have added a first part of its
//     lines, each whole.
//   - A torn tail (bytes after the last newline that begin like a line and are no
//     JSON, or only NULs, as after a power cut) is no line. Readers report it and
//     the next Append cuts it off, without a copy: its Append never returned, and
//     the capture is in the store, from where it is adopted. A prefix of an object
//     is never an object; so a last line that is JSON is whole, counts (editors
//     strip newlines), and gets its newline with the next Append. Any other tail
//     is an error like a bad line within the file.
//   - Recover abandons intents of runs that ended. A run lives while its lock
//     file is held: numbers of processes come back, locks don't.
//
// # What it doesn't do
//
// It decides neither what is drawn nor what a draw is worth, and doesn't look
// into stores. A program that writes the file without the flock (git checkout,
// an editor) while a run draws can lose lines; only CheckHistory sees that, and
// only for lines that were committed. Run locks are of one machine, unless the
// folder of runs is on a file system that shares flock. It never logs.
package draws
