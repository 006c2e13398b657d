// Package clitest has tests only: real agent command lines run under the seal.
//
//	codex, gemini ──http──▶ 127.0.0.1:8080 inside ──forward──▶ model, in the test
//	      └───────CONNECT──▶ 127.0.0.1:3128 inside ──▶ refused and logged
//
// The CLIs are those that `make deps` installs with npm, pinned by tools/npm,
// and run as anyone runs them: only their model is scripted. A fake in their
// place would show that the seal lets through what we thought of; these show
// that it lets through what such programs do.
//
// Vocabulary. The model is a server that speaks what a CLI's provider speaks
// and gives turns in a fixed order. A turn says something, or has a shell
// command run by the CLI's own tool; what the command printed is in the next
// request. An attempt is something that the command tries, and that must fail
// inside; as a control it succeeds outside.
//
// Without the CLIs or a seal the tests skip and say what is missing; with
// EVAL_STRICT set they fail.
package clitest
