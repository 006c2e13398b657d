// Package escape holds no program: it is the suite of attempts to get out of a
// seal, or to see more than was declared, or to outlive it.
//
//	rows ──one action each──▶ BUILD.star ──ev build──▶ what came of it inside
//	  │                                                        │ as the row says
//	  └──the same attempt, by the test itself──▶ and outside ──┘ it succeeds
//
// Vocabulary. An item is one of the 80 of the catalogue of escapes and leaks
// that this seal was designed against. A row is one attempt of an item: what is
// tried, by a native program (attempt), a shell or Python; what must come of it
// inside; and the control. A control is the same attempt made outside of any
// seal, which must succeed for root, for an ordinary user, or for both: the row
// says for whom. Without it a row could pass because its attempt was misspelt. A
// row that can have none says why, and is counted.
//
// All of it runs twice where the caller is root: as root, and as uid 65534.
// EVAL_STRICT turns what is skipped, because something is missing here, into a
// failure.
//
// No attempt does harm where it succeeds; see the package comment of attempt for
// the rules that make it so. Whoever adds a row keeps them.
package escape
