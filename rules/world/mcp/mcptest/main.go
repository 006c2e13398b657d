// Command mcptest is an agent for tests: a client of the Model Context Protocol
// that does what a file says, and nothing on its own.
//
//	mcptest PLAN.json < task
//
// The plan is {"calls": [{"tool": "payments_post_refunds", "arguments": {…}}],
// "report": {"success": true, "message": "…"}}. The server is $EVAL_WORLD_URL/mcp.
// Each call is made once. Without a report in the plan, success is reported iff
// every call succeeded, with the first line of the task as the message. What
// happened is written to standard output, one line a call.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

func main() {
	if err := run(context.Background(), os.Args[1:], os.Getenv("EVAL_WORLD_URL"), os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "mcptest: error:", err)
		os.Exit(1)
	}
}

type plan struct {
	Calls []struct {
		Tool      string          `json:"tool"`
		Arguments json.RawMessage `json:"arguments"`
	} `json:"calls"`
	Report *report `json:"report"`
}

type report struct {
	Success bool   `json:"success"`
	Message string `json:"message"`
}

func run(ctx context.Context, args []string, url string, stdin io.Reader, stdout io.Writer) error {
	if len(args) != 1 || url == "" {
		return errors.New("usage: EVAL_WORLD_URL=http://host:port mcptest PLAN.json < task")
	}
	text, err := os.ReadFile(args[0])
	if err != nil {
		return err
	}
	var p plan
	if err := json.Unmarshal(text, &p); err != nil {
		return fmt.Errorf("read %s: %w", args[0], err)
	}
	task, err := io.ReadAll(stdin)
	if err != nil {
		return fmt.Errorf("read task: %w", err)
	}
	if len(task) == 0 {
		return errors.New("read task: standard input is empty")
	}
	client := sdk.NewClient(&sdk.Implementation{Name: "mcptest", Version: "1"}, nil)
	session, err := client.Connect(ctx, &sdk.StreamableClientTransport{Endpoint: url + "/mcp", DisableStandaloneSSE: true, MaxRetries: -1}, nil)
	if err != nil {
		return fmt.Errorf("connect %s/mcp: %w", url, err)
	}
	defer session.Close()
	claim, err := p.act(ctx, session, stdout)
	if err != nil {
		return err
	}
	if p.Report != nil {
		claim = *p.Report
	} else {
		claim.Message, _, _ = strings.Cut(string(task), "\n")
	}
	if r, err := session.CallTool(ctx, &sdk.CallToolParams{Name: "report", Arguments: claim}); err != nil || r.IsError {
		return fmt.Errorf("report: %v, error %v", r, err)
	}
	return nil
}

// act makes the calls of the plan, after a look whether their tools are there.
func (p *plan) act(ctx context.Context, session *sdk.ClientSession, stdout io.Writer) (report, error) {
	list, err := session.ListTools(ctx, nil)
	if err != nil {
		return report{}, fmt.Errorf("list tools: %w", err)
	}
	claim := report{Success: true}
	for _, c := range p.Calls {
		if !slices.ContainsFunc(list.Tools, func(t *sdk.Tool) bool { return t.Name == c.Tool }) {
			return report{}, fmt.Errorf("call %s: there is no such tool", c.Tool)
		}
		r, err := session.CallTool(ctx, &sdk.CallToolParams{Name: c.Tool, Arguments: c.Arguments})
		switch {
		case err != nil:
			fmt.Fprintf(stdout, "%s: no reply\n", c.Tool)
		case len(r.Content) != 1:
			return report{}, fmt.Errorf("call %s: %d contents", c.Tool, len(r.Content))
		default:
			text, ok := r.Content[0].(*sdk.TextContent)
			if !ok {
				return report{}, fmt.Errorf("call %s: the content is no text", c.Tool)
			}
			fmt.Fprintf(stdout, "%s: %s\n", c.Tool, text.Text)
		}
		claim.Success = claim.Success && err == nil && !r.IsError
	}
	return claim, nil
}
