//go:build linux

package clitest

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// generate is Gemini's streamGenerateContent as a stream of server-sent events.
var generate = protocol{
	asks: func(r *http.Request) bool {
		return r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, ":streamGenerateContent")
	},
	answer: func(n int, t turn) []string {
		part := map[string]any{"text": t.say}
		if t.run != "" {
			part = map[string]any{"functionCall": map[string]any{"name": "run_shell_command", "args": map[string]any{"command": t.run}}}
		}
		return []string{encode(map[string]any{
			"candidates": []any{map[string]any{
				"index": 0, "finishReason": "STOP", "content": map[string]any{"role": "model", "parts": []any{part}},
			}},
			"usageMetadata": map[string]any{"promptTokenCount": 10, "candidatesTokenCount": 5, "totalTokenCount": 15},
		})}
	},
	result: func(body []byte) string {
		var b struct {
			Contents []struct {
				Parts []struct {
					FunctionResponse struct{ Response struct{ Output string } }
				}
			}
		}
		json.Unmarshal(body, &b)
		out := ""
		for _, c := range b.Contents {
			for _, p := range c.Parts {
				out = cmp.Or(p.FunctionResponse.Response.Output, out)
			}
		}
		return out
	},
}

// geminiSettings say how it signs in. With a base URL in the environment and no
// settings it chooses "gateway", and then refuses what it chose (exit 41).
const geminiSettings = `{
	"security": {"auth": {"selectedType": "gemini-api-key"}},
	"privacy": {"usageStatisticsEnabled": %t}
}`

func gemini(t testing.TB) cli {
	bundle := installed(t, "@google/gemini-cli")
	return cli{
		protocol: generate,
		endpoint: "POST /v1beta/models/gemini-3.1-pro-preview:streamGenerateContent?alt=sse",
		said:     geminiSaid,
		strays:   []string{"play.googleapis.com"}, // usage statistics
		programs: []string{node(t)},
		data:     []string{bundle},
		wrapper: `mkdir "$HOME/.gemini" && cp /in/settings.json "$HOME/.gemini/" && exec ` + node(t) + " " + bundle + `/bundle/gemini.js` +
			` --output-format stream-json --model gemini-3.1-pro-preview --approval-mode yolo --skip-trust`,
		config: func(quiet bool) map[string]string {
			return map[string]string{"/in/settings.json": fmt.Sprintf(geminiSettings, !quiet)}
		},
		env: []string{
			"GEMINI_API_KEY=dummy",
			"GEMINI_CLI_NO_RELAUNCH=true", // otherwise it starts itself again, for a larger heap
			"GOOGLE_GEMINI_BASE_URL=http://127.0.0.1:8080",
		},
	}
}

// geminiSaid reads the events of gemini --output-format stream-json.
func geminiSaid(stdout []byte) (said string, done bool) {
	for line := range bytes.Lines(stdout) {
		var e struct{ Type, Role, Content, Status string }
		json.Unmarshal(line, &e)
		switch {
		case e.Type == "message" && e.Role == "assistant":
			said += e.Content
		case e.Type == "result":
			done = e.Status == "success"
		}
	}
	return said, done
}

func TestGemini(t *testing.T) { sessions(t, gemini(t)) }
