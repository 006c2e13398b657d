// Package mcp lets an agent use a world through the Model Context Protocol.
//
//	agent CLI ── POST /mcp ── handler ── SDK ── tool ── World.Do ── chaos, log, clock
//	                │                             │
//	                └── connection cut <── lost ──┘
//
// Every operation that an agent may see is a tool of the same name as in GET
// /tools, and report is one more. A tool call is a call of the world like one
// over plain HTTP: the same failures hit it, the same log has it. Arguments that
// the tool's schema refuses never reach the world; the agent is told and can try
// again.
//
// What a failure looks like: a status of 400 or more is a result marked as an
// error, with status and body. A lost reply is a lost reply: the HTTP connection
// is closed without an answer, as it would be without this protocol.
//
// The transport is streamable HTTP without sessions, a JSON reply for each POST:
// no state is kept between requests, so nothing differs if a client connects
// twice or after a cut. One request is one message; a batch is refused.
package mcp
