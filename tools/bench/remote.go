package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/evalbuild/eval/cas"
	"github.com/evalbuild/eval/cas/remote"
	"github.com/evalbuild/eval/cas/remote/remotetest"
)

// launch starts a bazel-remote of this machine, nil if there is none.
func launch(o remotetest.BazelRemoteOptions) *remotetest.BazelRemote {
	server, err := remotetest.LaunchBazelRemote(o)
	if errors.Is(err, remotetest.ErrNoBazelRemote) {
		fmt.Printf("\nleft out: %v\n", err)
		return nil
	}
	check(err)
	return server
}

// arrival measures how long so many small results take that a server at the end
// of a link has, for a clone that has nothing.
func (b *bench) arrival(targets, each int, roundTrip time.Duration) {
	server := launch(remotetest.BazelRemoteOptions{})
	if server == nil {
		return
	}
	defer server.Stop()
	far, err := newLink(server.Target(), roundTrip)
	check(err)
	defer far.close()

	root := filepath.Join(b.dir, fmt.Sprintf("arrival-%d", targets))
	generateActions(root, targets, each, 100)
	b.row("", 0, 1, nil, root, "lock", "//...")
	title := fmt.Sprintf("%d small results of %d targets", targets*each, targets)
	fmt.Printf("\n%-*s %9s %9s %8s\n", nameWidth, title, "seconds", "v no-op", "MB")
	made := filepath.Join(root, "made")
	keys := b.keys(root, targets)
	b.row("", 0, 1, nil, root, "build", "--store="+made, "//:t0")
	sent := b.child(childTask{Do: "copies", Store: made, Address: server.Address(), Keys: keys})
	b.print("sent, as copies of results that were made", sent.Took, 0, sent.Peak)

	// Nothing is removed between runs, only moved away: for a minute after files
	// are removed in bulk, some file systems are slow to make new ones.
	moved := 0
	out, store := filepath.Join(root, "eval-out"), ""
	away := func() {
		moved++
		if err := os.Rename(out, filepath.Join(b.dir, fmt.Sprintf("out-%d-%d", targets, moved))); err != nil && !errors.Is(err, fs.ErrNotExist) {
			check(err)
		}
	}
	build := func(name, address string, base time.Duration, n int, more ...string) {
		var times []time.Duration
		var peak int64
		for range n {
			away()
			store = filepath.Join(b.dir, fmt.Sprintf("store-%d-%d", targets, moved))
			args := append([]string{"build", "--store=" + store, "--remote_cache=grpc://" + address, "--remote_upload=never"}, more...)
			took, mb, text := b.measure(root, append(args, "//...")...)
			if !strings.Contains(text, fmt.Sprintf(" 0 ran, 0 cached, %d from the remote cache", targets*each)) {
				check(fmt.Errorf("not all came from the server:\n%s", text))
			}
			times, peak = append(times, took), max(peak, mb)
		}
		if name != "" {
			b.print(name, median(times), base, peak)
		}
	}
	build("", server.Target(), 0, 1)
	time.Sleep(2500 * time.Millisecond) // as above
	noop := b.row("no-op", 0, runs, nil, root, "build", "--store="+store, "//...")
	b.row("all in the store, eval-out gone", noop, 3, away, root, "build", "--store="+store, "//...")
	build("store empty, server on loopback", server.Target(), noop, 3)
	link := fmt.Sprintf("server %v away", roundTrip)
	build("store empty, "+link, far.addr(), noop, runs)
	build("store empty, "+link+", --remote_download=minimal", far.addr(), noop, 3, "--remote_download=minimal")
}

// copies fills a server with a result for each key without running so many
// actions, which would take minutes: of some the store has results, and one of
// those is sent under the key of each, with another output. It gives the time that
// the sending took.
func copies(t childTask) (took time.Duration) {
	store, cache, done := t.open()
	defer done()
	first := firstResult(store, t.Keys)
	for i, k := range t.Keys {
		line := fmt.Sprintf("%d was here\n", i)
		text := bytes.Repeat([]byte(line), 100/len(line)+1)[:100]
		d, err := store.Put(cas.Pure, text)
		check(err)
		r, f := first, first.Files[0]
		f.Path, f.Digest = k.Output, d
		if f.Contents != nil {
			f.Contents = text
		}
		r.Files = []cas.OutputFile{f}
		check(store.PutResult(cas.Pure, k.Key, r))
	}
	start := time.Now()
	for _, k := range t.Keys {
		r, err := store.Lookup(cas.Pure, k.Key)
		check(err)
		cache.Send(cas.Pure, k.Key, nil, nil, r, nil)
	}
	flush(cache, len(t.Keys))
	return time.Since(start)
}

// flush waits until n results are sent.
func flush(cache *remote.Cache, n int) {
	check(cache.Flush(context.Background()))
	if s := cache.Stats(); s.Sent != n {
		check(fmt.Errorf("%d results of %d were sent: %v", s.Sent, n, s.NotSent))
	}
}

// firstResult gives the one result that a store has of the keys.
func firstResult(store *cas.Store, keys []childKey) cas.Result {
	for _, k := range keys {
		r, err := store.Lookup(cas.Pure, k.Key)
		if err == nil {
			return r
		}
	}
	check(errors.New("no action has a result"))
	return cas.Result{}
}

// keys gives those of all actions of a workspace, each with the output's name.
func (b *bench) keys(root string, targets int) []childKey {
	var keys []childKey
	for t := range targets {
		cmd := exec.Command(b.exe, "actions", "--store="+filepath.Join(b.dir, "keys-store"), fmt.Sprintf("//:t%d", t))
		cmd.Dir = root
		cmd.Env = append(os.Environ(), "HOME="+b.dir)
		cmd.Stderr = os.Stderr
		out, err := cmd.Output()
		check(err)
		for line := range strings.Lines(string(out)) {
			switch f := strings.Fields(line); {
			case len(f) > 1 && f[0] == "key":
				d, err := cas.ParseDigest(f[1])
				check(err)
				keys = append(keys, childKey{Key: d})
			case len(f) > 1 && f[0] == "output":
				_, keys[len(keys)-1].Output, _ = strings.Cut(f[1], "/")
			}
		}
	}
	return keys
}

// generateActions writes a workspace of targets of so many actions under the seal
// each, with one output of about size bytes.
func generateActions(root string, targets, each, size int) {
	check(os.MkdirAll(root, 0o755))
	write := func(rel, text string, mode os.FileMode) {
		check(os.WriteFile(filepath.Join(root, rel), []byte(text), mode))
	}
	write("MODULE.star", "module(name = \"bench\")\n", 0o644)
	write("say.sh", fmt.Sprintf("#!/bin/sh\nyes \"$1 was here\" | head -c %d > \"$2\"\n", size), 0o755)
	write("say.star", `def _say(ctx):
    files = []
    for i in range(ctx.attr.count):
        f = ctx.actions.declare_file("said-%d.txt" % i)
        ctx.actions.run(executable = ctx.attr.tool, arguments = ["%s %d" % (ctx.label.name, i), f], outputs = [f])
        files.append(f)
    return DefaultInfo(files = files)

say = rule(
    implementation = _say,
    attrs = {"tool": attr.label(mandatory = True), "count": attr.int(mandatory = True)},
)
`, 0o644)
	write("BUILD.star", fmt.Sprintf(`load("@eval//rules:tool.star", "tool")
load(":say.star", "say")

tool(name = "sh", path = "say.sh", data = ["/usr/bin/yes", "/usr/bin/head"])

[say(name = "t%%d" %% i, tool = ":sh", count = %d) for i in range(%d)]
`, each, targets), 0o644)
}
