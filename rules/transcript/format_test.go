package transcript

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Lines that no sample has, written by hand after the samples' shapes.

func joined(objects ...string) string { return strings.Join(objects, "\n") + "\n" }

// brief forms of events, for tables.
func sketch(events []Event) []string {
	var out []string
	for _, e := range events {
		exit := "-"
		if e.Exit != nil {
			exit = fmt.Sprint(*e.Exit)
		}
		switch e.Kind {
		case KindMessage:
			out = append(out, fmt.Sprintf("%s: %q", e.Role, e.Text))
		case KindCommand:
			out = append(out, fmt.Sprintf("$ %q %s %s %q", e.Text, exit, e.Status, e.Output))
		case KindTool:
			out = append(out, fmt.Sprintf("%s(%s) %s %s", e.Name, e.Arguments, e.Status, e.Result))
		case KindError:
			out = append(out, fmt.Sprintf("error %q", e.Message))
		}
	}
	return out
}

const (
	claudeResult = `{"type":"result","subtype":"success","is_error":false,"session_id":"s","result":"end"}`
	qwenReport   = `{"type":"user","message":{"content":[{"type":"tool_result","tool_use_id":"a","is_error":%v,"content":%q}]}}`
	qwenCall     = `{"type":"assistant","message":{"content":[{"type":"tool_use","id":"a","name":"run_shell_command","input":{"command":"x\nOutput: y"}}]}}`
)

func TestFormats(t *testing.T) {
	for _, c := range []struct {
		name, format, content string
		reply                 string
		events                []string
		failure               string // "" for none, else a part of the producer-failed detail
	}{
		{
			"codex tools", "codex", joined(
				`{"type":"item.completed","item":{"id":"1","type":"mcp_tool_call","server":"fs","tool":"list","arguments":{"p":1},"result":{"content":[]},"error":null,"status":"completed"}}`,
				`{"type":"item.completed","item":{"id":"2","type":"mcp_tool_call","server":"fs","tool":"list","arguments":{},"result":null,"error":{"message":"no"},"status":"failed"}}`,
				`{"type":"item.completed","item":{"id":"3","type":"file_change","changes":[{"path":"a","kind":"add"}],"status":"completed"}}`,
				`{"type":"item.started","item":{"id":"4","type":"command_execution","command":"sleep 9","exit_code":null,"status":"in_progress"}}`,
				`{"type":"item.completed","item":{"id":"5","type":"reasoning","text":"hm"}}`,
				`{"type":"item.completed","item":{"id":"6","type":"command_execution","command":"rm","aggregated_output":"","exit_code":null,"status":"declined"}}`,
				`{"type":"never.seen","item":7}`) + completed,
			"",
			[]string{
				`mcp__fs__list({"p":1}) completed {"content":[]}`, `mcp__fs__list({}) failed {"message":"no"}`,
				`file_change([{"path":"a","kind":"add"}]) completed `, `$ "rm" - failed ""`, `$ "sleep 9" - in_progress ""`,
			},
			"",
		},
		{"codex without an end", "codex", started + agent(`"a"`), "a", []string{`assistant: "a"`}, "no turn.completed"},
		{"codex, second turn open", "codex", started + completed + `{"type":"turn.started"}`, "", nil, "no turn.completed"},
		{
			"claude commands and tools", "claude", joined(
				`{"type":"assistant","message":{"content":[{"type":"thinking","thinking":"hm"},{"type":"text","text":"a"},{"type":"text","text":"b"},{"type":"tool_use","id":"1","name":"Bash","input":{"command":"false"}},{"type":"tool_use","id":"2","name":"Read","input":{"file_path":"f"}}]}}`,
				`{"type":"user","message":{"content":[{"type":"tool_result","tool_use_id":"2","content":[{"type":"text","text":"1→x"}]}]}}`,
				`{"type":"user","message":{"content":[{"type":"tool_result","tool_use_id":"1","is_error":true,"content":"Exit code 3\nout"}]},"tool_use_result":"Error: Exit code 3"}`,
				`{"type":"user","message":{"content":[{"type":"tool_result","tool_use_id":"9","content":"lost"}]}}`,
				`{"type":"assistant","parent_tool_use_id":"t","message":{"content":[{"type":"text","text":"subagent"}]}}`,
				`{"type":"user","message":{"content":"more"}}`,
				claudeResult),
			"ab",
			[]string{
				`assistant: "ab"`, `Read({"file_path":"f"}) completed [{"type":"text","text":"1→x"}]`, `$ "false" 3 failed "out"`,
				`() completed "lost"`, `user: "more"`,
			},
			"",
		},
		{
			"claude streams", "claude", joined(
				`{"type":"assistant","message":{"content":[{"type":"tool_use","id":"1","name":"Bash","input":{"command":"x"}}]}}`,
				`{"type":"user","message":{"content":[{"type":"tool_result","tool_use_id":"1","content":"shown"}]},"tool_use_result":{"stdout":"out","stderr":"err"}}`,
				claudeResult),
			"end",
			[]string{`$ "x" - completed "out\nerr"`},
			"",
		},
		{
			"claude's own error at the end", "claude", joined(
				`{"type":"assistant","message":{"content":[{"type":"text","text":"a"}]}}`,
				`{"type":"assistant","message":{"model":"<synthetic>","content":[{"type":"text","text":"API Error: 500"}]},"is_api_error_message":true}`,
				claudeResult),
			"a",
			[]string{`assistant: "a"`, `error "API Error: 500"`},
			"not the model's: API Error: 500",
		},
		{
			"claude out of turns", "claude", `{"type":"result","subtype":"error_max_turns","is_error":false}`, "",
			[]string{`error "error_max_turns"`},
			"result is an error: error_max_turns",
		},
		{
			"qwen's report", "qwen", joined(qwenCall,
				fmt.Sprintf(qwenReport, false, "Command: x\nOutput: y\nDirectory: (root)\nOutput: a\nExit Code: 9\nb\nError: e\nExit Code: 2\nSignal: (none)"), claudeResult),
			"end",
			[]string{`$ "x\nOutput: y" 2 failed "a\nExit Code: 9\nb\ne"`},
			"",
		},
		{"qwen's other text", "qwen", joined(qwenCall, fmt.Sprintf(qwenReport, true, "refused"), claudeResult), "end", []string{`$ "x\nOutput: y" - failed "refused"`}, ""},
		{
			"gemini deltas", "gemini", joined(
				`{"type":"message","role":"assistant","content":"a","delta":true}`, `{"type":"message","role":"assistant","content":"b","delta":true}`,
				`{"type":"tool_use","tool_name":"read_file","tool_id":"1","parameters":{"file_path":"f"}}`,
				`{"type":"message","role":"assistant","content":"c","delta":true}`,
				`{"type":"tool_result","tool_id":"1","status":"error","error":{"type":"x","message":"none"}}`,
				`{"type":"error","severity":"warning","message":"w"}`,
				`{"type":"message","role":"assistant","content":"d"}`, `{"type":"result","status":"success"}`),
			"d",
			[]string{
				`assistant: "ab"`, `assistant: "c"`, `read_file({"file_path":"f"}) failed {"type":"x","message":"none"}`, `error "w"`, `assistant: "d"`,
			},
			"",
		},
		{"gemini, a document on one line", "gemini", `{"response":"a","stats":{}}`, "a", []string{`assistant: "a"`}, ""},
		{"gemini, a document without a reply", "gemini", "{\n\"error\":{\"message\":\"no\"}\n}\n", "", []string{`error "no"`}, "error: no"},
		{
			"pi", "pi", joined(
				`{"type":"session","id":"s"}`, `{"type":"agent_start"}`,
				`{"type":"tool_execution_start","toolCallId":"1","toolName":"bash","args":{"command":"x"}}`,
				`{"type":"tool_execution_start","toolCallId":"2","toolName":"read","args":{"path":"f"}}`,
				`{"type":"tool_execution_end","toolCallId":"1","result":{"content":[{"type":"text","text":"out\n\nCommand exited with code 3"}]},"isError":true}`,
				`{"type":"message_update","message":{"role":"assistant","content":[{"type":"text","text":"no"}]}}`,
				`{"type":"message_end","message":{"role":"assistant","content":[{"type":"text","text":"a"},{"type":"toolCall"},{"type":"text","text":"b"}],"stopReason":"stop"}}`,
				`{"type":"agent_end"}`),
			"ab",
			[]string{`$ "x" 3 failed "out"`, `assistant: "ab"`, `read({"path":"f"}) in_progress `},
			"",
		},
		{"pi without an end", "pi", `{"type":"message_end","message":{"role":"assistant","content":[],"stopReason":"stop"}}`, "", nil, "no agent_end"},
		{
			"opencode", "opencode", joined(
				`{"type":"tool_use","part":{"tool":"bash","callID":"1","state":{"status":"running","input":{"command":"x"}}}}`,
				`{"type":"tool_use","part":{"tool":"bash","callID":"1","state":{"status":"completed","input":{"command":"x"},"output":"o","metadata":{"exit":1}}}}`,
				`{"type":"tool_use","part":{"tool":"read","callID":"2","state":{"status":"error","input":{"filePath":"f"},"error":"none"}}}`,
				`{"type":"step_finish","part":{"reason":"stop"}}`, `{"type":"step_start","part":{}}`),
			"",
			[]string{`$ "x" 1 failed "o"`, `read({"filePath":"f"}) failed "none"`},
			"no step_finish with reason stop",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			sum, events := mustScan(t, c.format, c.content)
			if sum.Reply != c.reply {
				t.Errorf("reply %q, want %q", sum.Reply, c.reply)
			}
			if diff := cmp.Diff(c.events, sketch(events)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			failure := ""
			for _, r := range sum.Degraded {
				failure += r.Code + " " + r.Detail
			}
			if (failure != "") != (c.failure != "") || failure != "" && (!strings.HasPrefix(failure, ProducerFailed) || !strings.Contains(failure, c.failure)) {
				t.Errorf("%q, want %q", failure, c.failure)
			}
		})
	}
}

func TestProbeInput(t *testing.T) {
	for event, want := range map[string]Summary{
		`{"type":"agentops.probe-input.v1","arm":"control","rep":3}`:      {Arm: "control", Index: 3},
		`{"rep":"12","arm":"treatment","type":"agentops.probe-input.v1"}`: {Arm: "treatment", Index: 12},
		`{"type":"agentops.probe-input.v1","arm":"other","rep":-1}`:       {},
		`{"type":"agentops.probe-input.v1","arm":7,"rep":null}`:           {},
	} {
		sum, events := mustScan(t, "codex", "\n"+event+"\n"+started+completed)
		if sum.Arm != want.Arm || sum.Index != want.Index || len(events) != 0 || len(sum.Degraded) != 0 {
			t.Errorf("%s: %+v", event, sum)
		}
		sum, _ = mustScan(t, "codex", started+event+"\n"+completed)
		if sum.Arm != "" || sum.Index != 0 {
			t.Errorf("not leading: %+v", sum)
		}
	}
}

func TestUsage(t *testing.T) {
	for numbers, want := range map[string]string{
		`{"input_tokens":10,"cached_input_tokens":4,"cache_write_input_tokens":5}`: `{"Input":1,"CachedInput":4,"CacheWrite":5,"Output":null,"Reasoning":null}`,
		`{"input_tokens":10,"cached_input_tokens":11}`:                             `{"Input":null,"CachedInput":11,"CacheWrite":null,"Output":null,"Reasoning":null}`,
		`{"input_tokens":1e3,"output_tokens":1.5,"cached_input_tokens":-1}`:        `{"Input":1000,"CachedInput":null,"CacheWrite":null,"Output":null,"Reasoning":null}`,
		`{"input_tokens":99999999999999999999,"output_tokens":"7"}`:                `{"Input":null,"CachedInput":null,"CacheWrite":null,"Output":null,"Reasoning":null}`,
		`7`: `{"Input":null,"CachedInput":null,"CacheWrite":null,"Output":null,"Reasoning":null}`,
	} {
		sum, _ := mustScan(t, "codex", started+`{"type":"turn.completed","usage":{"input_tokens":5}}`+"\n"+`{"type":"turn.completed","usage":`+numbers+"}\n")
		got, err := json.Marshal(sum.Usage)
		if err != nil || string(got) != want {
			t.Errorf("%s: %s", numbers, got)
		}
	}
}
