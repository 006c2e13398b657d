package transcript

import "strings"

// gemini reads `gemini --output-format stream-json`, and the one document of `--output-format json` (0.61).
type gemini struct {
	*scan
	delta   *strings.Builder // the assistant message that is being streamed, nil when none is
	tooLong bool
	ok      bool // the last result is a success
}

func newGemini(s *scan) decoder { return &gemini{scan: s} }

func (g *gemini) line(v value) {
	g.thread(v.get("session_id").text())
	kind := v.get("type").text()
	if kind == "message" && v.get("role").text() == RoleAssistant && v.get("delta").isTrue() {
		g.stream(v.get("content").text())
		return
	}
	switch kind {
	case "message":
		g.flush()
		switch role := v.get("role").text(); role {
		case RoleUser, RoleAssistant:
			g.message(role, v.get("content").text())
		}
	case "tool_use":
		g.flush()
		e := Event{Kind: KindTool, Name: v.get("tool_name").text()}
		if e.Name == "run_shell_command" {
			e = Event{Kind: KindCommand, Text: v.get("parameters", "command").text()}
		} else {
			e.Arguments = v.get("parameters").raw()
		}
		g.begin(v.get("tool_id").text(), e)
	case "tool_result":
		g.flush()
		g.toolResult(v)
	case "error":
		g.flush()
		g.problem(v.get("message").text())
	case "result":
		g.flush()
		g.result(v)
	}
}

func (g *gemini) stream(part string) {
	if g.delta == nil {
		g.delta = new(strings.Builder)
	}
	switch {
	case g.tooLong:
	case g.delta.Len()+len(part) > MaxReply:
		g.tooLong = true
		g.delta.Reset()
		g.sum.Reply = ""
		g.bad("reply longer than %d bytes", MaxReply)
	default:
		g.delta.WriteString(part)
	}
}

// flush ends the message that is being streamed: anything but another delta does.
func (g *gemini) flush() {
	if g.delta != nil && !g.tooLong {
		g.message(RoleAssistant, g.delta.String())
	}
	g.delta, g.tooLong = nil, false
}

func (g *gemini) toolResult(v value) {
	e := g.finish(v.get("tool_id").text())
	result := v.get("output")
	if problem := v.get("error"); !result.some() && problem.some() {
		result = problem
	}
	if e.Kind == KindCommand {
		e.Output = result.text()
		if result.isObject() {
			e.Output = result.get("message").text()
		}
	} else {
		e.Result = result.raw()
	}
	g.ended(e, v.get("status").text() != "success")
}

func (g *gemini) result(v value) {
	g.ok = v.get("status").text() == "success"
	if !g.ok {
		message := v.get("error", "message").text()
		if message != "" {
			g.problem(message)
		}
		g.fail("result is no success", message)
	}
	stats := v.get("stats")
	cached := stats.get("cached").count()
	g.sum.Usage = Usage{
		Input:       minus(stats.get("input_tokens").count(), cached),
		CachedInput: cached,
		Output:      stats.get("output_tokens").count(),
	}
}

// document is the whole of json mode: a reply and the statistics of each model, but no events.
func (g *gemini) document(v value) {
	g.thread(v.get("session_id").text())
	if response := v.get("response"); response.is('"') {
		g.ok = true
		g.message(RoleAssistant, response.text())
	}
	if problem := v.get("error"); problem.some() {
		message := problem.get("message").text()
		g.problem(message)
		g.fail("error", message)
	}
	v.get("stats", "models").members(func(_ string, model value) {
		t := model.get("tokens")
		cached, thoughts := t.get("cached").count(), t.get("thoughts").count()
		g.sum.Usage.add(Usage{
			Input:       minus(t.get("prompt").count(), cached),
			CachedInput: cached,
			Output:      plus(t.get("candidates").count(), thoughts),
			Reasoning:   thoughts,
		})
	})
}

func (g *gemini) end() {
	g.flush()
	if !g.ok {
		g.fail("no result", "")
	}
}
