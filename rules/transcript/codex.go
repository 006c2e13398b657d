package transcript

import "strconv"

// codex reads `codex exec --json` (0.171).
type codex struct {
	*scan
	begun bool
	done  bool // the last turn is completed
}

func newCodex(s *scan) decoder { return &codex{scan: s} }

func (c *codex) line(v value) {
	first := !c.begun
	c.begun = true
	switch v.get("type").text() {
	case "agentops.probe-input.v1":
		if first {
			c.probeInput(v)
		}
	case "thread.started":
		c.thread(v.get("thread_id").text())
	case "turn.started":
		c.done = false
	case "turn.completed":
		c.done = true
		c.usage(v.get("usage"))
	case "turn.failed":
		c.fail("turn.failed", v.get("error", "message").text())
	case "error":
		c.problem(v.get("message").text())
	case "item.started":
		c.item(v.get("item"), false)
	case "item.completed":
		c.item(v.get("item"), true)
	}
}

func (c *codex) end() {
	if !c.done {
		c.fail("no turn.completed", "")
	}
}

// probeInput takes arm and index from the leading event that recorders of older captures wrote before codex's own.
func (c *codex) probeInput(v value) {
	if arm := v.get("arm").text(); arm == "control" || arm == "treatment" {
		c.sum.Arm = arm
	}
	rep := v.get("rep")
	digits := string(rep)
	if rep.is('"') {
		digits = rep.text()
	}
	if n, err := strconv.Atoi(digits); err == nil && n > 0 {
		c.sum.Index = n
	}
}

// usage is that of the thread so far, so the last one counts.
func (c *codex) usage(u value) {
	cached, written := u.get("cached_input_tokens").count(), u.get("cache_write_input_tokens").count()
	c.sum.Usage = Usage{
		Input:       minus(minus(u.get("input_tokens").count(), cached), written),
		CachedInput: cached,
		CacheWrite:  written,
		Output:      u.get("output_tokens").count(),
		Reasoning:   u.get("reasoning_output_tokens").count(),
	}
}

func (c *codex) item(item value, ended bool) {
	id := item.get("id").text()
	var e Event
	switch item.get("type").text() {
	case "agent_message":
		if ended {
			c.message(RoleAssistant, item.get("text").text())
		}
		return
	case "error":
		if ended {
			c.problem(item.get("message").text())
		}
		return
	case "command_execution":
		e = Event{Kind: KindCommand, Text: item.get("command").text()}
	case "mcp_tool_call":
		e.Name = "mcp__" + item.get("server").text() + "__" + item.get("tool").text()
		e.Arguments = item.get("arguments").raw()
	case "file_change":
		e.Name, e.Arguments = "file_change", item.get("changes").raw()
	case "web_search":
		e.Name, e.Arguments = "web_search", item.get("query").raw()
	default: // reasoning, todo_list, and what comes
		return
	}
	if e.Kind == "" {
		e.Kind = KindTool
	}
	if !ended {
		c.begin(id, e)
		return
	}
	c.finish(id)
	if e.Kind == KindCommand {
		e.Output = item.get("aggregated_output").text()
		e.Exit = item.get("exit_code").exit()
	} else if result := item.get("result"); result.some() {
		e.Result = result.raw()
	} else if problem := item.get("error"); problem.some() {
		e.Result = problem.raw()
	}
	status := item.get("status")
	c.ended(e, status.some() && status.text() != "completed")
}
