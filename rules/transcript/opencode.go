package transcript

// opencode reads `opencode run --format json` (1.18).
type opencode struct {
	*scan
	stop string // reason of the last step_finish, "" once another step begins
}

func newOpencode(s *scan) decoder { return &opencode{scan: s} }

func (o *opencode) line(v value) {
	o.thread(v.get("sessionID").text())
	part := v.get("part")
	switch v.get("type").text() {
	case "step_start":
		o.stop = ""
	case "step_finish":
		o.stop = part.get("reason").text()
		t := part.get("tokens")
		thought := t.get("reasoning").count()
		o.sum.Usage.add(Usage{
			Input:       t.get("input").count(),
			CachedInput: t.get("cache", "read").count(),
			CacheWrite:  t.get("cache", "write").count(),
			Output:      plus(t.get("output").count(), thought),
			Reasoning:   thought,
		})
	case "text":
		o.message(RoleAssistant, part.get("text").text())
	case "tool_use":
		o.tool(part)
	case "error":
		message := v.get("error", "data", "message").text()
		if message == "" {
			message = v.get("error", "name").text()
		}
		o.problem(message)
		o.fail("error", message)
	}
}

// tool is one call in one of its states; the samples have the last one only.
func (o *opencode) tool(part value) {
	id, state := part.get("callID").text(), part.get("state")
	e := Event{Kind: KindTool, Name: part.get("tool").text()}
	if e.Name == "bash" {
		e = Event{Kind: KindCommand, Text: state.get("input", "command").text()}
	} else {
		e.Arguments = state.get("input").raw()
	}
	status := state.get("status").text()
	if status == "pending" || status == "running" {
		o.finish(id)
		o.begin(id, e)
		return
	}
	o.finish(id)
	result := state.get("output")
	if !result.some() {
		result = state.get("error")
	}
	if e.Kind == KindCommand {
		e.Exit = state.get("metadata", "exit").exit()
		if e.Output = result.text(); e.Output == "(no output)" {
			e.Output = ""
		}
	} else {
		e.Result = result.raw()
	}
	o.ended(e, status != "completed")
}

func (o *opencode) end() {
	if o.stop != "stop" {
		o.fail("no step_finish with reason stop", o.stop)
	}
}
