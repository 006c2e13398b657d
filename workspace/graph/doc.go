// Package graph holds what a build is made of, as plain data: labels, files,
// actions and their keys. It decides nothing and runs nothing.
//
//	Label    names a target or a file: //pkg:name, @repo//pkg:name
//	Pattern  selects targets: //..., //pkg/..., //pkg:all, -//pkg:x
//	File     a source below a root, or one output of an action
//	Action   what runs on which inputs; pure data but for its live function
//	Key      the digest of an encoded action: equal keys, equal results
//	Slot     the place that an action fills (label, first output); the last
//	         action of a slot is kept so that a miss can be explained
//
// Invariants. A Key depends on an Action and the digests of its inputs and on
// nothing else; a test says of each field of Action whether it is in the key,
// or why not (fieldClasses), and fails on a field that it doesn't know. The
// same walk over an action writes the key and its readable explanation, so the
// two can't drift apart.
package graph
