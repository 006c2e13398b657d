// Package workspace is what is being built, as it lies on disk: the root, the
// module, the packages, the files and their digests.
//
//	root        the folder that holds MODULE.star
//	module      what MODULE.star declares: a name, dependencies, the digest
//	repository  the root, named "", or a dependency, by its declared name; the
//	            module's own name means "" too
//	package     a folder that holds BUILD.star, by its slash path below the root
//	            of its repository; "" is the root
//	source      a file below the root of a repository, by its slash path
//	nested      a folder below a root with a MODULE.star of its own: another
//	            workspace, which nothing here enters
//
// The way of a source to its digest:
//
//	Digest("", "p/q.md")
//	   |
//	   v
//	fstatat --- all facts as recorded, and aged ---> the recorded digest
//	   |
//	   v
//	open below the root, fstat, hash, fstat ---> recorded if aged; Save writes it
//
// Invariants.
//
// Sources are read only below the root of their repository: a path with ".."
// and a symbolic link that leads out are errors, also when the folder is
// changed while it is read (os.Root). Opening never blocks on a fifo.
//
// Packages, HasPackage and Glob agree on what a folder is: folders that are
// symbolic links are not entered (so there are no cycles), nor are nested
// workspaces and the root's eval-out; Packages enters no dot folder.
//
// A digest is of bytes whose stat facts were equal before and after hashing.
// A recorded one stands in for hashing only if a change since could not have
// left the facts as they were; see aged. Losing the stat cache costs time only.
//
// A Workspace serves one command: folder listings are remembered for its
// lifetime, file contents and stat facts are not. All methods are safe for
// concurrent use, except Close.
//
// Errors read "operation object: cause". Those that know what to do have a
// method Hint() string, for errors.As. All are the user's to mend, except those
// of Save. The cause of a missing file is fs.ErrNotExist.
//
// What it does not do: it evaluates no BUILD.star, resolves no label, watches
// nothing, and follows no dependency of a dependency.
package workspace
