package mcp

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/evalbuild/eval/rules/world/wire"
)

// World is what tools act on.
type World interface {
	// Do makes one call of an operation, "POST /payments/refunds". The arguments
	// are path variables, query (GET) and fields of the body, as encoding/json
	// reads them with UseNumber; an empty key is none. What has begun is carried
	// out even if its caller goes away. The body is anything that
	// has a JSON form. Delivered false: the agent must see no reply.
	Do(operation string, args map[string]any, key string) (status int, body any, delivered bool)
	// Report is what the agent claims; the last one counts.
	Report(success bool, message string)
}

// exchangeHeader ties a tool call to the HTTP request that it came in. The SDK
// hands a request's header to its tools, and nothing else of it. What a client
// sends under that name is overwritten.
const exchangeHeader = "Eval-Exchange"

// New makes the handler of /mcp. The SDK's server is made at the first request:
// it takes a third of the start of a world, and most agents don't come this way.
func New(operations []Operation, world World) (http.Handler, error) {
	names := map[string]string{reportTool.Name: "the report"}
	var tools []*tool
	for _, op := range operations {
		tool, err := newTool(op)
		if err != nil {
			return nil, fmt.Errorf("tool %s: %w", op.Name, err)
		}
		if other, ok := names[op.Name]; ok {
			return nil, fmt.Errorf("tool %s: the name is taken by %s", op.Name, other)
		}
		names[op.Name] = op.Pattern
		tools = append(tools, tool)
	}
	h := &handler{open: map[string]*exchange{}}
	h.sdk = sync.OnceValue(func() http.Handler { return h.serve(tools, world) })
	return h, nil
}

// serve makes the SDK's handler.
func (h *handler) serve(tools []*tool, world World) http.Handler {
	server := sdk.NewServer(&sdk.Implementation{Name: "eval-world", Version: "1"}, &sdk.ServerOptions{
		Capabilities: &sdk.ServerCapabilities{Tools: &sdk.ToolCapabilities{}}, // the list never changes
		PageSize:     len(tools) + 1,
	})
	for _, t := range tools {
		server.AddTool(&sdk.Tool{Name: t.Name, Description: t.Doc, InputSchema: t.schema()}, h.operation(t, world))
	}
	reporter := &tool{Operation: reportTool, required: []string{"success"}}
	server.AddTool(&sdk.Tool{Name: reportTool.Name, Description: reportTool.Doc, InputSchema: reporter.schema()}, report(reporter, world))
	return sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return server }, &sdk.StreamableHTTPOptions{
		Stateless:    true,
		JSONResponse: true, // with an event stream, headers would be out before a reply can be lost
	})
}

type handler struct {
	sdk func() http.Handler

	mu   sync.Mutex
	last int
	open map[string]*exchange // by the value of exchangeHeader
}

// An exchange is one HTTP request in progress.
type exchange struct{ lost atomic.Bool }

func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(io.LimitReader(r.Body, wire.MaxBody+1))
	switch {
	case err != nil: // the request never came whole
		wire.Cut(w)
		return
	case len(body) > wire.MaxBody:
		wire.Refusal(http.StatusRequestEntityTooLarge, fmt.Sprintf("the body has more than %d bytes", wire.MaxBody)).Send(w)
		return
	case bytes.HasPrefix(bytes.TrimLeft(body, " \t\r\n"), []byte("[")):
		// The protocol has dropped them; and of one reply a part can't be lost.
		wire.Refusal(http.StatusBadRequest, "a batch is no request: one call for each").Send(w)
		return
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	var message struct{ Method string }
	if json.Unmarshal(body, &message) == nil && message.Method == "tools/call" {
		// A call that came whole is made, even if its caller has gone.
		r = r.WithContext(context.WithoutCancel(r.Context()))
	}
	x := new(exchange)
	h.mu.Lock()
	h.last++
	id := strconv.Itoa(h.last)
	h.open[id] = x
	h.mu.Unlock()
	defer func() {
		h.mu.Lock()
		delete(h.open, id)
		h.mu.Unlock()
	}()
	r.Header.Set(exchangeHeader, id)
	h.sdk().ServeHTTP(&guarded{w, x}, r)
	if x.lost.Load() {
		panic(http.ErrAbortHandler) // net/http closes the connection, and says nothing
	}
}

// lose marks the exchange that a tool call belongs to.
func (h *handler) lose(req *sdk.CallToolRequest) error {
	if req.Extra != nil {
		h.mu.Lock()
		x := h.open[req.Extra.Header.Get(exchangeHeader)]
		h.mu.Unlock()
		if x != nil {
			x.lost.Store(true)
			return nil
		}
	}
	return fmt.Errorf("the call came over no HTTP request") // and a lost reply would be answered
}

// guarded drops what is written once the reply is lost. The SDK writes from
// another goroutine, which must not panic.
type guarded struct {
	http.ResponseWriter
	x *exchange
}

func (g *guarded) Write(b []byte) (int, error) {
	if g.x.lost.Load() {
		return len(b), nil
	}
	return g.ResponseWriter.Write(b)
}

func (g *guarded) WriteHeader(status int) {
	if !g.x.lost.Load() {
		g.ResponseWriter.WriteHeader(status)
	}
}

func (h *handler) operation(t *tool, world World) sdk.ToolHandler {
	return func(_ context.Context, req *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		args, err := t.read(req.Params.Arguments)
		if err != nil {
			return failed(err.Error()), nil
		}
		key, _ := args[keyArgument].(string) // read has checked the type
		delete(args, keyArgument)
		status, body, delivered := world.Do(t.Pattern, args, key)
		if !delivered {
			return new(sdk.CallToolResult), h.lose(req)
		}
		if status >= 400 {
			text, err := encode(struct {
				Status int `json:"status"`
				Body   any `json:"body"`
			}{status, body})
			return failed(text), err
		}
		text, err := encode(body)
		return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: text}}}, err
	}
}

func report(t *tool, world World) sdk.ToolHandler {
	return func(_ context.Context, req *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		args, err := t.read(req.Params.Arguments)
		if err != nil {
			return failed(err.Error()), nil
		}
		message, _ := args["message"].(string)
		world.Report(args["success"].(bool), message)
		return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: "noted"}}}, nil
	}
}

func failed(text string) *sdk.CallToolResult {
	return &sdk.CallToolResult{IsError: true, Content: []sdk.Content{&sdk.TextContent{Text: text}}}
}

// encode writes JSON as it is, with < and & unescaped: a model reads it.
func encode(v any) (string, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return "", fmt.Errorf("encode reply: %w", err)
	}
	return string(bytes.TrimSuffix(b.Bytes(), []byte("\n"))), nil
}
