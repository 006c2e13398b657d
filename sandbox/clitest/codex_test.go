//go:build linux

package clitest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"runtime"
	"testing"
)

// responses is OpenAI's Responses API as a stream of server-sent events.
var responses = protocol{
	asks: func(r *http.Request) bool { return r.Method == http.MethodPost && r.URL.Path == "/v1/responses" },
	answer: func(n int, t turn) []string {
		item := map[string]any{
			"type": "message", "role": "assistant", "id": fmt.Sprintf("msg_%d", n),
			"content": []any{map[string]any{"type": "output_text", "text": t.say}},
		}
		if t.run != "" {
			args := encode(map[string]any{"cmd": t.run, "yield_time_ms": 20000})
			item = map[string]any{"type": "function_call", "name": "exec_command", "call_id": fmt.Sprintf("call_%d", n), "arguments": args}
		}
		id := fmt.Sprintf("resp_%d", n)
		return []string{
			encode(map[string]any{"type": "response.created", "response": map[string]any{"id": id}}),
			encode(map[string]any{"type": "response.output_item.done", "output_index": 0, "item": item}),
			encode(map[string]any{"type": "response.completed", "response": map[string]any{
				"id":    id,
				"usage": map[string]any{"input_tokens": 10, "output_tokens": 5, "total_tokens": 15},
			}}),
		}
	},
	result: func(body []byte) string {
		var b struct {
			Input []struct {
				Type   string
				Output json.RawMessage
			}
		}
		json.Unmarshal(body, &b)
		if n := len(b.Input); n > 0 && b.Input[n-1].Type == "function_call_output" {
			return text(b.Input[n-1].Output)
		}
		return ""
	},
}

// codexConfig names the forwarded port as a provider: codex 0.171 doesn't look
// at OPENAI_BASE_URL, and opens a WebSocket with the built-in one.
const codexConfig = `model = "gpt-5.5"
model_provider = "scripted"

[model_providers.scripted]
name = "scripted"
base_url = "http://127.0.0.1:8080/v1"
wire_api = "responses"
env_key = "SCRIPTED_KEY"
request_max_retries = 0
stream_max_retries = 0
`

// codexQuiet switches off what asks for other hosts. Where these can't be
// asked for at all, as in a seal without a proxy, analytics alone make codex
// wait for five seconds at its end.
const codexQuiet = `
[analytics]
enabled = false

[features]
apps = false
plugins = false
`

// codex is installed without its launcher: a static binary.
func codex(t testing.TB) cli {
	arch := map[string][2]string{"amd64": {"x64", "x86_64"}, "arm64": {"arm64", "aarch64"}}[runtime.GOARCH]
	bin := installed(t, "@openai/codex-linux-"+arch[0]+"/vendor/"+arch[1]+"-unknown-linux-musl/bin/codex")
	return cli{
		protocol: responses,
		endpoint: "POST /v1/responses",
		said:     codexSaid,
		// Plugins, their catalogue, and analytics at the end.
		strays:   []string{"ab.chatgpt.com", "api.github.com", "chatgpt.com", "github.com"},
		programs: []string{bin},
		// Its own sandbox can't be had in ours, and needn't be.
		wrapper: `mkdir "$HOME/.codex" && cp /in/config.toml "$HOME/.codex/" && exec ` + bin +
			` exec --json --skip-git-repo-check --dangerously-bypass-approvals-and-sandbox -`,
		env: []string{"SCRIPTED_KEY=dummy"},
		config: func(quiet bool) map[string]string {
			config := codexConfig
			if quiet {
				config += codexQuiet
			}
			return map[string]string{"/in/config.toml": config}
		},
	}
}

// codexSaid reads the events of codex exec --json.
func codexSaid(stdout []byte) (said string, done bool) {
	for line := range bytes.Lines(stdout) {
		var e struct {
			Type string
			Item struct{ Type, Text string }
		}
		json.Unmarshal(line, &e)
		switch {
		case e.Type == "item.completed" && e.Item.Type == "agent_message":
			said += e.Item.Text
		case e.Type == "turn.completed":
			done = true
		}
	}
	return said, done
}

// text is a tool's output: a string, or a list of parts.
func text(raw json.RawMessage) string {
	var s string
	if json.Unmarshal(raw, &s) == nil {
		return s
	}
	var parts []struct{ Text string }
	json.Unmarshal(raw, &parts)
	for _, p := range parts {
		s += p.Text
	}
	return s
}

func TestCodex(t *testing.T) { sessions(t, codex(t)) }
