package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/evalbuild/eval/cas"
	"github.com/evalbuild/eval/cas/remote"
	"github.com/evalbuild/eval/cas/remote/reapi"
)

// What is measured in this program is measured in a process of its own: so its
// peak memory is known, and what it held adds nothing to that of later ones.
type childTask struct {
	Do             string // copies, send or fetch
	Store, Address string
	Keys           []childKey
}

type childKey struct {
	Key    cas.Digest
	Output string // the name of the one output
}

type childResult struct {
	Took time.Duration
	Peak int64 // MB
}

func (b *bench) child(t childTask) childResult {
	self, err := os.Executable()
	check(err)
	in, err := json.Marshal(t)
	check(err)
	cmd := exec.Command(self, "child")
	cmd.Stdin, cmd.Stderr = strings.NewReader(string(in)), os.Stderr
	out, err := cmd.Output()
	check(err)
	var r childResult
	check(json.Unmarshal(out, &r))
	return r
}

func runChild() {
	var t childTask
	check(json.NewDecoder(os.Stdin).Decode(&t))
	r := childResult{Took: map[string]func(childTask) time.Duration{"copies": copies, "send": send, "fetch": fetch}[t.Do](t)}
	r.Peak = peakMemory()
	check(json.NewEncoder(os.Stdout).Encode(r))
}

// peakMemory is that of this process in MB, 0 where /proc doesn't say.
func peakMemory() int64 {
	status, _ := os.ReadFile("/proc/self/status")
	for line := range strings.Lines(string(status)) {
		var kB int64
		if n, _ := fmt.Sscanf(line, "VmHWM: %d kB", &kB); n == 1 {
			return kB / 1024
		}
	}
	return 0
}

// open opens the store and the cache on the server. A warning of that ends the
// program: it would be of a server in good health.
func (t childTask) open() (*cas.Store, *remote.Cache, func()) {
	store, err := cas.Open(cas.Options{Cache: t.Store, Data: t.Store})
	check(err)
	client, err := reapi.New(reapi.Options{Address: t.Address})
	check(err)
	cache := remote.New(remote.Options{Client: client, Store: store, Warn: func(msg string) { check(errors.New(msg)) }})
	return store, cache, func() {
		cache.Close()
		check(client.Close())
	}
}
