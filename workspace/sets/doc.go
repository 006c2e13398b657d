// Package sets keeps published sets: a target's evidence as a folder of plain
// files from which its numbers can be computed again on any machine, without the
// store and without the producer.
//
// # Vocabulary
//
//   - set: the files, by slash paths below the set's folder, and a manifest that
//     lists each with its digest. A set is held in memory as a whole.
//   - name: <epoch>-<8 hex digits of the manifest's digest>, the folder's name.
//   - recorder: what the language and the engine asked of a workspace while the
//     target was loaded and computed. A view gives the same answers from a set.
//   - result: an action's result in the message's encoding; of a draw its digest
//     is the capture that draws.lock and the scorecard name.
//   - archive: a set as one file, a tar.
//
// # The files
//
//	manifest.json              what follows, by digest
//	.gitattributes             keeps git from touching line ends
//	scorecard.json history.json cost.json …   outputs of the target
//	transcripts/control-1.jsonl  replies/ usage/ egress/ seals/ exits/ facts/
//	outcomes/                  of each rep, named stream-index
//	outputs/                   all others
//	results/…                  results of draws and of other processes
//	blobs/<hex>                what a result names and no file above is
//	draws.jsonl                the lines of draws.lock that concern the target
//	tools.json                 what the tools were on the machine that drew
//	sources.json               what was asked of the workspace beside contents
//	sources/MODULE.star …      the sources: so that this is a workspace of its own
//	external/<module>/…        and those of other modules
//
// # Invariants
//
//   - One set has one encoding: the manifest is canonical JSON, and an archive
//     that isn't byte for byte what WriteArchive writes is refused.
//   - Nothing in a set says when, where or by whom it was made.
//   - Read takes regular files only, follows no link, and is bounded: see the
//     limits. What it gives is what the manifest says.
//   - Write makes the folder whole or not at all, and never over another one.
//
// # What it doesn't do
//
// It computes nothing: that files are what the manifest says doesn't mean that
// the numbers follow from the bytes. Whoever verifies makes the set again from
// its own sources and results, and compares (Compare).
package sets
