// Package pid1 is the first process of a seal: a static program of a few
// hundred instructions that the harness executes inside all layers, and the
// words it exchanges with the harness.
//
//	harness                          PID 1                        target
//	   │  execveat(memfd, argv, env)   │
//	   ├──────────────────────────────▶│ prctl(PR_SET_DUMPABLE, 0)
//	   │◀──────── hello: probes ───────┤ tries what the seal forbids
//	   │  reads /proc, judges          │
//	   ├───────────── 'g' ────────────▶│ clone, execve ─────────────▶│
//	   │                               │ reaps                       │
//	   │                               │ grace, freeze, reap, kill   ╳
//	   │◀──────── end: status ─────────┤ exit_group(0)
//
// Vocabulary. An image is the ELF file of one architecture; the harness puts
// it into a memfd and executes it with argv[0] of its own choice, argv[1:] the
// target's argv (argv[1] is also the path) and the target's environment. A
// probe is a call that a seal refuses; its raw result is what the kernel
// returned (a negative errno, or a value). The grace is the time that what the
// target left behind has to end by itself; a survivor is what had to be killed.
//
// Invariants. The harness alone holds the write end of the death pipe
// ([DeathFD]): when it closes, PID 1 exits and the kernel kills everything in
// the namespace, at whatever stage. The target runs only after 'g'; it gets
// neither the pipe nor the socket, default signal dispositions and an empty
// mask. PID 1 is never dumpable while another process of the namespace exists,
// so none can write its memory or use its descriptors. No child, however many
// are born or die, delays the death pipe, and a target without children pays
// no grace. It uses no stack and no memory but its own zeroed segment.
//
// There is no C compiler and no assembler behind the images. A program of a
// dozen portable instructions (ir.go) is written once (program.go, probes.go);
// two back ends encode it, and elf.go wraps it. TestImages compares the result
// with the embedded files and writes them with -update.
//
// Not here: the seal itself, what a refused probe means for a record, time
// limits (the harness kills the namespace), outputs, limits on memory.
package pid1

//go:generate go test -run ^TestImages$ -update .
