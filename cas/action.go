package cas

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// EnvVar is an environment variable of a Command.
type EnvVar struct{ Name, Value string }

// Property is a platform property of an Action.
type Property struct{ Name, Value string }

// Command says what runs, the message build.bazel.remote.execution.v2.Command.
type Command struct {
	Arguments        []string
	Env              []EnvVar // encoded sorted by name
	OutputPaths      []string // relative to WorkingDirectory, encoded sorted
	WorkingDirectory string   // relative to the input root; "" is the root
}

// Encode gives the canonical bytes. A variable or output that occurs twice, a
// variable name that is empty or contains '=', a path that is absolute or not
// clean, text that isn't UTF-8 or contains NUL are errors.
func (c Command) Encode() ([]byte, error) {
	c.Env = sortedBy(c.Env, func(a, b *EnvVar) int { return cmp.Compare(a.Name, b.Name) })
	c.OutputPaths = sortedBy(c.OutputPaths, func(a, b *string) int { return cmp.Compare(*a, *b) })
	if err := c.check(); err != nil {
		return nil, fmt.Errorf("encode command: %w", err)
	}
	var b []byte
	for _, arg := range c.Arguments {
		b = appendString(b, 1, arg)
	}
	for _, e := range c.Env {
		b = appendPair(b, 2, e.Name, e.Value)
	}
	b = appendText(b, 6, c.WorkingDirectory)
	for _, p := range c.OutputPaths {
		b = appendString(b, 7, p)
	}
	return b, nil
}

// check expects sorted lists.
func (c Command) check() error {
	for i, arg := range c.Arguments {
		if err := checkText(arg); err != nil {
			return fmt.Errorf("argument %d: %w", i, err)
		}
	}
	for i, e := range c.Env {
		err := cmp.Or(checkVarName(e.Name), checkText(e.Value))
		if err == nil && i > 0 && c.Env[i-1].Name == e.Name {
			err = errTwice
		}
		if err != nil {
			return fmt.Errorf("variable %q: %w", e.Name, err)
		}
	}
	for i, p := range c.OutputPaths {
		err := checkPath(p)
		if err == nil && i > 0 && c.OutputPaths[i-1] == p {
			err = errTwice
		}
		if err != nil {
			return fmt.Errorf("output %q: %w", p, err)
		}
	}
	if c.WorkingDirectory != "" {
		if err := checkPath(c.WorkingDirectory); err != nil {
			return fmt.Errorf("working directory %q: %w", c.WorkingDirectory, err)
		}
	}
	return nil
}

func checkVarName(name string) error {
	if name == "" {
		return errors.New("empty name")
	}
	if strings.Contains(name, "=") {
		return errors.New("name contains '='")
	}
	return checkText(name)
}

// DecodeCommand reads what Encode writes and nothing else.
func DecodeCommand(b []byte) (Command, error) {
	var c Command
	err := eachField(b, c.decodeField)
	if err == nil {
		err = canonical(b, c.Encode)
	}
	if err != nil {
		return Command{}, fmt.Errorf("decode command: %w", err)
	}
	return c, nil
}

func (c *Command) decodeField(f field) (err error) {
	var s string
	switch f.num {
	case 1:
		s, err = f.text()
		c.Arguments = append(c.Arguments, s)
	case 2:
		var e EnvVar
		e.Name, e.Value, err = f.pair()
		c.Env = append(c.Env, e)
	case 6:
		c.WorkingDirectory, err = f.text()
	case 7:
		s, err = f.text()
		c.OutputPaths = append(c.OutputPaths, s)
	default:
		err = errUnknown
	}
	return err
}

// Action is a Command on an input tree, the message
// build.bazel.remote.execution.v2.Action. The digest of its encoding is the key
// of its Result.
type Action struct {
	Command    Digest        // of the encoded Command
	InputRoot  Digest        // of the encoded root Directory
	Timeout    time.Duration // zero is left out
	DoNotCache bool
	Salt       []byte
	Platform   []Property // encoded sorted by name, then value
}

// Encode gives the canonical bytes. A missing digest, digests of two functions,
// a negative timeout and a property given twice are errors.
func (a Action) Encode() ([]byte, error) {
	a.Platform = sortedBy(a.Platform, func(a, b *Property) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Value, b.Value))
	})
	if err := a.check(); err != nil {
		return nil, fmt.Errorf("encode action: %w", err)
	}
	b := appendDigest(nil, 1, a.Command)
	b = appendDigest(b, 2, a.InputRoot)
	if a.Timeout != 0 {
		b = appendBytes(b, 6, encodeDuration(a.Timeout))
	}
	b = appendBool(b, 7, a.DoNotCache)
	if len(a.Salt) > 0 {
		b = appendBytes(b, 9, a.Salt)
	}
	if len(a.Platform) > 0 {
		var platform []byte
		for _, p := range a.Platform {
			platform = appendPair(platform, 1, p.Name, p.Value)
		}
		b = appendBytes(b, 10, platform)
	}
	return b, nil
}

// check expects a sorted platform.
func (a Action) check() error {
	var fn sameFunc
	if err := fn.add(a.Command); err != nil {
		return fmt.Errorf("command: %w", err)
	}
	if err := fn.add(a.InputRoot); err != nil {
		return fmt.Errorf("input root: %w", err)
	}
	if a.Timeout < 0 {
		return fmt.Errorf("timeout: %v is negative", a.Timeout)
	}
	for i, p := range a.Platform {
		err := cmp.Or(checkText(p.Name), checkText(p.Value))
		switch {
		case err != nil:
		case p.Name == "":
			err = errors.New("empty name")
		case i > 0 && a.Platform[i-1] == p:
			err = errTwice
		}
		if err != nil {
			return fmt.Errorf("property %q: %w", p.Name, err)
		}
	}
	return nil
}

// DecodeAction reads what Encode writes and nothing else. The digests get
// function fn, which isn't on the wire.
func DecodeAction(fn Func, b []byte) (Action, error) {
	var a Action
	err := checkFunc(fn)
	if err == nil {
		err = eachField(b, func(f field) error { return a.decodeField(fn, f) })
	}
	if err == nil {
		err = canonical(b, a.Encode)
	}
	if err != nil {
		return Action{}, fmt.Errorf("decode action: %w", err)
	}
	return a, nil
}

func (a *Action) decodeField(fn Func, f field) (err error) {
	var msg []byte
	switch f.num {
	case 1:
		a.Command, err = f.digest(fn)
	case 2:
		a.InputRoot, err = f.digest(fn)
	case 6:
		if msg, err = f.message(); err == nil {
			a.Timeout, err = decodeDuration(msg)
		}
	case 7:
		a.DoNotCache, err = f.boolean()
	case 9:
		msg, err = f.message()
		a.Salt = slices.Clone(msg)
	case 10:
		if msg, err = f.message(); err == nil {
			err = eachField(msg, a.decodeProperty)
		}
	default:
		err = errUnknown
	}
	return err
}

func (a *Action) decodeProperty(f field) error {
	if f.num != 1 {
		return errUnknown
	}
	name, value, err := f.pair()
	a.Platform = append(a.Platform, Property{Name: name, Value: value})
	return err
}

// encodeDuration writes google.protobuf.Duration{seconds = 1, nanos = 2}.
func encodeDuration(d time.Duration) []byte {
	b := appendVarint(nil, 1, int64(d/time.Second))
	return appendVarint(b, 2, int64(d%time.Second))
}

// decodeDuration may overflow on bytes that encodeDuration didn't write; the
// comparison with the canonical form then refuses them.
func decodeDuration(b []byte) (time.Duration, error) {
	var total time.Duration
	err := eachField(b, func(f field) error {
		v, err := f.varint()
		switch f.num {
		case 1:
			total += time.Duration(v) * time.Second
		case 2:
			total += time.Duration(v)
		default:
			err = errUnknown
		}
		return err
	})
	return total, err
}
