package transcript

import (
	"strconv"
	"strings"
)

// pi reads `pi --mode json` (0.73).
type pi struct {
	*scan
	done   bool   // the last agent_start has its agent_end
	stop   string // stopReason of the last assistant message
	reason string // its errorMessage
}

func newPi(s *scan) decoder { return &pi{scan: s} }

// line does not look into a message_update: each repeats the message so far, which makes most of the bytes.
func (p *pi) line(v value) {
	switch v.get("type").text() {
	case "session":
		p.thread(v.get("id").text())
	case "agent_start":
		p.done = false
	case "agent_end":
		p.done = true
	case "message_end":
		p.messageEnd(v.get("message"))
	case "tool_execution_start":
		e := Event{Kind: KindTool, Name: v.get("toolName").text()}
		if e.Name == "bash" {
			e = Event{Kind: KindCommand, Text: v.get("args", "command").text()}
		} else {
			e.Arguments = v.get("args").raw()
		}
		p.begin(v.get("toolCallId").text(), e)
	case "tool_execution_end":
		e := p.finish(v.get("toolCallId").text())
		failed := v.get("isError").isTrue()
		if e.Kind == KindCommand {
			e.Output, e.Exit = piOutput(v.get("result", "content").blocks(), failed)
		} else {
			e.Result = v.get("result").raw()
		}
		p.ended(e, failed)
	}
}

func (p *pi) messageEnd(m value) {
	text := m.get("content").blocks()
	switch m.get("role").text() {
	case RoleUser:
		p.message(RoleUser, text)
	case RoleAssistant:
		u := m.get("usage")
		p.sum.Usage.add(Usage{
			Input:       u.get("input").count(),
			CachedInput: u.get("cacheRead").count(),
			CacheWrite:  u.get("cacheWrite").count(),
			Output:      u.get("output").count(),
		})
		p.stop, p.reason = m.get("stopReason").text(), m.get("errorMessage").text()
		if text != "" {
			p.message(RoleAssistant, text)
		}
		if p.reason != "" {
			p.problem(p.reason)
		}
	}
}

// piOutput takes apart what pi's bash tool gives to the model. Only a failed command tells its exit code.
func piOutput(text string, failed bool) (string, *int) {
	const note = "Command exited with code "
	if text == "(no output)" {
		return "", nil
	}
	at := strings.LastIndex(text, note)
	if !failed || at < 0 || at > 0 && text[at-1] != '\n' {
		return text, nil
	}
	code, err := strconv.Atoi(text[at+len(note):])
	if err != nil {
		return text, nil
	}
	return strings.TrimSuffix(text[:at], "\n\n"), &code
}

// end judges by the last assistant message: pi exits 0 when the model can't be reached.
func (p *pi) end() {
	switch {
	case p.stop == "":
		p.fail("no assistant message", "")
	case p.stop == "error" || p.stop == "aborted":
		p.fail("stopReason "+p.stop, p.reason)
	case !p.done:
		p.fail("no agent_end", "")
	}
}
