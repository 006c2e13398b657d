package sandbox

import (
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"

	"github.com/zeebo/blake3"
)

// A Program is the seal as data: the namespaces of one clone, then a table of
// system calls, executed in order by the child. The last row executes PID 1.
type Program struct {
	Clone uint64 // CLONE_NEW* flags
	Rows  []Row
}

// A Row is one system call. Its operands are symbolic: what differs between
// two runs of one policy ($input/DIGEST, $uid_map, $argv) is named, not
// written out, so that equal policies have equal programs on every machine.
type Row struct {
	Layer string // as doctor and records name it
	Call  string
	Args  []Operand
	// FD is the descriptor that the call must return, -1 if it returns none.
	// All others are closed by an early row, so numbers are known beforehand.
	FD int
}

// An Operand is one argument of a row.
type Operand struct {
	bind  string // of a symbol: what its value is found by
	kind  operandKind
	value uint64
	text  string // of a symbol its name; of a string the string
	bytes []byte // of data, a filter, or the descriptors of a message
}

type operandKind uint8

const (
	number  operandKind = iota // as it is
	text                       // address of a NUL-terminated string
	data                       // address of bytes
	filter                     // address of a struct sock_fprog over bytes
	message                    // address of a struct msghdr that passes descriptors
	symbol                     // bound when linked
)

func num(n int64) Operand          { return Operand{kind: number, value: uint64(n)} }
func str(s string) Operand         { return Operand{kind: text, text: s} }
func blob(b []byte) Operand        { return Operand{kind: data, bytes: b} }
func sym(name string) Operand      { return named(name, name) }
func bpf(b []byte) Operand         { return Operand{kind: filter, bytes: b} }
func descriptors(f []byte) Operand { return Operand{kind: message, bytes: f} }

// named is a symbol whose name alone doesn't say which of several it is: two
// inputs may have one digest.
func named(name, bind string) Operand { return Operand{kind: symbol, text: name, bind: bind} }

// String writes the operand as it is hashed.
func (o Operand) String() string {
	switch o.kind {
	case number:
		if n := int64(o.value); n < 0 && n > -4096 {
			return strconv.FormatInt(n, 10)
		}
		return "0x" + strconv.FormatUint(o.value, 16)
	case text:
		return strconv.Quote(o.text)
	case data:
		return "data:" + hex.EncodeToString(o.bytes)
	case filter:
		sum := blake3.Sum256(o.bytes)
		return fmt.Sprintf("filter:%d:%s", len(o.bytes)/8, hex.EncodeToString(sum[:]))
	case message:
		return fmt.Sprintf("pass:%v", o.bytes)
	}
	return "$" + o.text
}

// String writes the row as one line.
func (r Row) String() string {
	var b strings.Builder
	b.WriteString(r.call())
	if r.FD >= 0 {
		fmt.Fprintf(&b, " = %d", r.FD)
	}
	return b.String()
}

func (r Row) call() string {
	args := make([]string, len(r.Args))
	for i, a := range r.Args {
		args[i] = a.String()
	}
	return r.Call + "(" + strings.Join(args, ", ") + ")"
}

// Text writes the program, a line a row: what its digest is made of and what
// `ev doctor --program` shows.
func (p Program) Text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "clone 0x%x\n", p.Clone)
	for _, r := range p.Rows {
		b.WriteString(r.Layer)
		b.WriteByte(' ')
		b.WriteString(r.String())
		b.WriteByte('\n')
	}
	return b.String()
}

// Digest is the BLAKE3 of Text in hexadecimal.
func (p Program) Digest() string {
	sum := blake3.Sum256([]byte(p.Text()))
	return hex.EncodeToString(sum[:])
}
