package transcript

import (
	"strconv"
	"strings"
)

// blocks reads the stream-json of claude (2.1) and of qwen (0.24), which has claude's names and other meanings.
type blocks struct {
	*scan
	shell     string
	output    func(e *Event, result, line value, failed bool)
	usage     func(u value) Usage
	synthetic func(line, message value, text string) bool

	results   int
	failing   bool   // the last result is a failure
	cause     string // and why
	lastError string
	invented  bool // the last assistant message is not the model's
	replied   bool
}

func newClaude(s *scan) decoder {
	return &blocks{scan: s, shell: "Bash", output: claudeOutput, usage: claudeUsage, synthetic: claudeSynthetic}
}

func newQwen(s *scan) decoder {
	return &blocks{scan: s, shell: "run_shell_command", output: qwenOutput, usage: qwenUsage, synthetic: qwenSynthetic}
}

func (b *blocks) line(v value) {
	b.thread(v.get("session_id").text())
	sub := v.get("parent_tool_use_id").some() // within a call: the subagent's words are not the agent's
	switch v.get("type").text() {
	case "assistant":
		b.assistant(v, v.get("message"), sub)
	case "user":
		b.user(v, v.get("message", "content"), sub)
	case "result":
		b.result(v)
	case "system":
		if v.get("subtype").text() == "api_retry" {
			b.note(v.get("error").text())
		}
	}
}

func (b *blocks) note(problem string) {
	b.lastError = problem
	b.problem(problem)
}

func (b *blocks) assistant(line, m value, sub bool) {
	content := m.get("content")
	text := content.blocks()
	invented := b.synthetic(line, m, text)
	if !sub {
		b.invented = invented
	}
	switch {
	case invented:
		b.note(text)
	case text != "" && !sub:
		b.replied = true
		b.message(RoleAssistant, text)
	}
	content.elements(func(block value) {
		if block.get("type").text() != "tool_use" {
			return
		}
		e := Event{Kind: KindTool, Name: block.get("name").text()}
		if e.Name == b.shell {
			e = Event{Kind: KindCommand, Text: block.get("input", "command").text()}
		} else {
			e.Arguments = block.get("input").raw()
		}
		b.begin(block.get("id").text(), e)
	})
}

func (b *blocks) user(line, content value, sub bool) {
	if text := content.blocks(); text != "" && !sub {
		b.message(RoleUser, text)
	}
	content.elements(func(block value) {
		if block.get("type").text() != "tool_result" {
			return
		}
		e := b.finish(block.get("tool_use_id").text())
		result, failed := block.get("content"), block.get("is_error").isTrue()
		if e.Kind == KindCommand {
			b.output(&e, result, line, failed)
		} else {
			e.Result = result.raw()
		}
		b.ended(e, failed)
	})
}

func (b *blocks) result(v value) {
	b.results++
	b.sum.Usage = b.usage(v.get("usage"))
	subtype := v.get("subtype").text()
	b.failing = v.get("is_error").isTrue() || subtype != "success"
	text := v.get("result").text()
	if !b.failing {
		if !b.replied {
			b.sum.Reply = text
		}
		return
	}
	b.cause = v.get("error", "message").text()
	if b.cause == "" {
		b.cause = text
	}
	if b.cause == "" {
		b.cause = subtype
	}
	if b.cause != b.lastError {
		b.note(b.cause)
	}
}

func (b *blocks) end() {
	switch {
	case b.results == 0:
		b.fail("no result", b.lastError)
	case b.failing:
		b.fail("result is an error", b.cause)
	case b.invented:
		b.fail("the last message is not the model's", b.lastError)
	}
}

// blocks is the text of a message's content: a string, or the text blocks of a list, joined.
func (v value) blocks() string {
	if v.is('"') {
		return v.text()
	}
	var texts []string
	v.elements(func(block value) {
		if block.get("type").text() == "text" {
			texts = append(texts, block.get("text").text())
		}
	})
	return strings.Join(texts, "")
}

// claudeSynthetic finds what the CLI itself put in the model's mouth, as "API Error: 403 …".
func claudeSynthetic(line, m value, _ string) bool {
	return m.get("model").text() == "<synthetic>" || line.get("is_api_error_message").isTrue()
}

// claudeUsage is the one of `result`; that of a message is what was known when it began.
func claudeUsage(u value) Usage {
	return Usage{
		Input:       u.get("input_tokens").count(),
		CachedInput: u.get("cache_read_input_tokens").count(),
		CacheWrite:  u.get("cache_creation_input_tokens").count(),
		Output:      u.get("output_tokens").count(),
		Reasoning:   u.get("output_tokens_details", "thinking_tokens").count(),
	}
}

// claudeOutput prefers the streams beside the message to the text for the model, which has a placeholder when they
// are empty and begins with the exit code when the command failed.
func claudeOutput(e *Event, result, line value, failed bool) {
	streams, results := line.get("tool_use_result"), 0
	line.get("message", "content").elements(func(value) { results++ })
	if stdout := streams.get("stdout"); stdout.is('"') && !failed && results == 1 {
		e.Output = joinStreams(stdout.text(), streams.get("stderr").text())
		return
	}
	e.Output = result.blocks()
	if e.Output == "(Bash completed with no output)" {
		e.Output = ""
	}
	if rest, ok := strings.CutPrefix(e.Output, "Exit code "); ok && failed {
		digits, output, _ := strings.Cut(rest, "\n")
		if code, err := strconv.Atoi(digits); err == nil {
			e.Exit, e.Output = &code, output
		}
	}
}

func joinStreams(stdout, stderr string) string {
	if stdout != "" && stderr != "" && !strings.HasSuffix(stdout, "\n") {
		return stdout + "\n" + stderr
	}
	return stdout + stderr
}

// qwenSynthetic knows the CLI's own "[API Error: …]" from a model that says so by its tokens: there are none.
func qwenSynthetic(_, m value, text string) bool {
	spent := plus(m.get("usage", "input_tokens").count(), m.get("usage", "output_tokens").count())
	return strings.HasPrefix(text, "[API Error: ") && spent != nil && *spent == 0
}

func qwenUsage(u value) Usage {
	cached := u.get("cache_read_input_tokens").count()
	return Usage{
		Input:       minus(u.get("input_tokens").count(), cached),
		CachedInput: cached,
		Output:      u.get("output_tokens").count(),
	}
}

// qwenOutput takes apart the report that qwen gives to the model. What the command printed may look like a part of
// the report, so the head is matched whole and the tail from the end.
func qwenOutput(e *Event, result, _ value, _ bool) {
	report := result.blocks()
	e.Output = report
	rest, ok := strings.CutPrefix(report, "Command: "+e.Text+"\nDirectory: ")
	_, rest, found := strings.Cut(rest, "\nOutput: ")
	at := strings.LastIndex(rest, "\nExit Code: ")
	if !ok || !found || at < 0 {
		return
	}
	digits, _, _ := strings.Cut(rest[at+len("\nExit Code: "):], "\n")
	rest = rest[:at]
	at = strings.LastIndex(rest, "\nError: ")
	if at < 0 {
		return
	}
	if code, err := strconv.Atoi(digits); err == nil {
		e.Exit = &code
	}
	stdout, stderr := rest[:at], rest[at+len("\nError: "):]
	if stdout == "(empty)" {
		stdout = ""
	}
	if stderr == "(none)" {
		stderr = ""
	}
	e.Output = joinStreams(stdout, stderr)
}
