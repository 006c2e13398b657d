package main

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/zeebo/blake3"

	"github.com/evalbuild/eval/cas"
	"github.com/evalbuild/eval/cas/remote"
	"github.com/evalbuild/eval/sandbox"
	"github.com/evalbuild/eval/starlark"
	"github.com/evalbuild/eval/workspace"
	"github.com/evalbuild/eval/workspace/draws"
	"github.com/evalbuild/eval/workspace/engine"
	"github.com/evalbuild/eval/workspace/graph"
	"github.com/evalbuild/eval/workspace/hosttools"
	"github.com/evalbuild/eval/workspace/toolslock"
)

// A session is what every verb that loads targets needs: the workspace it was
// called in, the store, the loaded targets.
type session struct {
	*settings
	ws     *workspace.Workspace
	root   string
	cwd    string // slash path below root
	store  *cas.Store
	state  string // folder of this workspace's state in the cache root
	loader *starlark.Loader
	files  engine.Sources // what actions read
	tools  tools
	// sandbox runs processes; nil until an engine is made.
	sandbox *sandbox.Sandbox
	run     *draws.Run             // nil until something is drawn
	remote  *remote.Cache          // nil: none is named
	locks   map[string]*draws.Lock // see readLock
}

// withSession opens the workspace for a verb and closes it after.
func withSession(ctx context.Context, s *settings, f func(context.Context, *session) error) error {
	ses, err := open(s)
	if err != nil {
		return err
	}
	defer ses.close()
	return f(ctx, ses)
}

// open finds the workspace and opens the store.
func open(s *settings) (*session, error) {
	cwd, err := os.Getwd()
	if err != nil {
		return nil, failf(exitInfra, "%v", err)
	}
	root, err := workspace.Find(cwd)
	if err != nil {
		err = userError(err)
		if e := new(exitError); errors.Is(err, fs.ErrNotExist) && errors.As(err, &e) {
			return nil, e.hint("or let `ev new probe NAME` make this folder a workspace with a probe in it")
		}
		return nil, err
	}
	cache, data, err := storeRoots(s)
	if err != nil {
		return nil, err
	}
	id := blake3.Sum256([]byte(root))
	state := filepath.Join(cache, "workspaces", hex.EncodeToString(id[:8]))
	touchState(state, time.Now())
	ws, err := workspace.Open(root, workspace.Options{
		StatCache: filepath.Join(state, "stat"), Version: version, Now: time.Now,
	})
	if err != nil {
		return nil, userError(err)
	}
	store, err := cas.Open(cas.Options{Cache: cache, Data: data, Func: ws.Module().Digest})
	if err != nil {
		return nil, failf(exitInfra, "%v", err).hint("--store=DIR keeps results elsewhere")
	}
	rel, err := filepath.Rel(root, cwd)
	if err != nil || rel == "." {
		rel = ""
	}
	ses := &session{settings: s, ws: ws, root: root, cwd: filepath.ToSlash(rel), store: store, state: state, files: sources(files{ws})}
	ses.loader = ses.newLoader(files{ws})
	if err := ses.openRemote(); err != nil {
		ws.Close()
		return nil, err
	}
	ses.tools = tools{hosttools.New(hosttools.Options{Func: store.Func(), Cache: filepath.Join(state, "tools"), Now: time.Now})}
	return ses, nil
}

func (s *session) newLoader(f starlark.Files) *starlark.Loader {
	return starlark.New(starlark.Options{
		Files: f, Module: s.ws.Module().Name, Config: s.set,
		Print:    func(msg string) { fmt.Fprintln(os.Stderr, safe(msg)) },
		Unsealed: s.values["seal"] == "none",
	})
}

// storeRoots are the folders of pure results and of captures.
func storeRoots(s *settings) (cache, data string, err error) {
	if dir := s.values["store"]; dir != "" {
		abs, err := filepath.Abs(dir)
		return abs, abs, err
	}
	home, herr := os.UserHomeDir()
	root := func(env, below string) string {
		if dir := os.Getenv(env); filepath.IsAbs(dir) {
			return filepath.Join(dir, "eval")
		}
		if herr != nil {
			return ""
		}
		return filepath.Join(home, below, "eval")
	}
	cache, data = root("XDG_CACHE_HOME", ".cache"), root("XDG_DATA_HOME", ".local/share")
	if cache == "" || data == "" {
		return "", "", usageErrorf("find the store: %v", herr).hint("set HOME, or give --store=DIR")
	}
	return cache, data, nil
}

// close keeps what was learnt about source files.
func (s *session) close() {
	if err := s.ws.Save(); err != nil {
		fmt.Fprintf(os.Stderr, "eval: warning: %v\n", err)
	}
	if err := s.tools.Save(); err != nil {
		fmt.Fprintf(os.Stderr, "eval: warning: %v\n", err)
	}
	if s.sandbox != nil {
		s.sandbox.Close()
	}
	if s.remote != nil {
		s.remote.Close()
	}
	if s.run != nil {
		if err := s.run.Close(); err != nil {
			fmt.Fprintf(os.Stderr, "eval: warning: %v\n", err)
		}
	}
	s.ws.Close()
}

// tools finds what programs need of this machine, for the engine.
type tools struct{ *hosttools.Resolver }

func (tools) Merge(lists ...[]graph.Mount) ([]graph.Mount, error) { return hosttools.Merge(lists...) }

// newRunner makes what runs processes.
func (s *session) newRunner() engine.Runner {
	if s.sandbox == nil {
		s.sandbox = sandbox.New(sandbox.Options{
			Put: func(r io.Reader) (cas.Digest, error) { return s.store.PutReader(cas.Pure, r) },
		})
	}
	return s.sandbox
}

// targets loads and analyses what the arguments select; without arguments,
// what is below the current folder.
func (s *session) targets(ctx context.Context, args []string) ([]*starlark.Target, error) {
	list, err := s.selectTargets(ctx, args)
	if err != nil {
		return nil, err
	}
	if err := s.loader.Analyze(ctx, list); err != nil {
		return nil, userError(err)
	}
	return list, nil
}

func (s *session) selectTargets(ctx context.Context, args []string) ([]*starlark.Target, error) {
	var patterns []graph.Pattern
	for _, a := range args {
		p, err := graph.ParsePattern(a, s.cwd)
		if err != nil {
			return nil, usageErrorf("%v", err)
		}
		patterns = append(patterns, p)
	}
	if len(patterns) == 0 {
		return nil, usageErrorf("no target is named").hint("//... means all of the workspace, //pkg/... all below a folder")
	}
	list, empty, err := s.loader.Select(ctx, patterns, s.ws.Packages)
	if err != nil {
		return nil, userError(err)
	}
	s.warnUnusedSettings()
	for _, p := range empty {
		if len(list) == 0 {
			break // said below
		}
		fmt.Fprintf(os.Stderr, "eval: warning: pattern %s matches no target\n", p)
	}
	if len(list) == 0 {
		return nil, failf(exitEmpty, "no targets matched %s", strings.Join(args, " "))
	}
	return list, nil
}

// one selects exactly one target.
func (s *session) one(ctx context.Context, arg string) (*starlark.Target, error) {
	list, err := s.targets(ctx, []string{arg})
	if err != nil {
		return nil, err
	}
	if len(list) != 1 {
		return nil, usageErrorf("%s selects %d targets; one is meant", arg, len(list))
	}
	return list[0], nil
}

func (s *session) warnUnusedSettings() {
	used := s.loader.ConfigUsed()
	var names []string
	for name := range used {
		names = append(names, name)
	}
	for name := range s.set {
		if _, ok := used[name]; !ok {
			fmt.Fprintf(os.Stderr, "eval: warning: --set %s: no file that was loaded asks for it%s\n", safe(name), graph.DidYouMean(name, names))
		}
	}
}

// engine makes the engine with this session's parts.
func (s *session) engine(o engine.Options) *engine.Engine {
	o.Store, o.Sources = s.store, s.files
	o.State, o.Out = filepath.Join(s.state, "slots"), filepath.Join(s.root, "eval-out")
	o.Jobs, o.KeepGoing, o.Now = s.int("jobs"), s.bool("keep_going") || o.KeepGoing, time.Now
	o.Runner, o.Tools, o.CheckDeterminism = s.newRunner(), s.tools, s.bool("check_determinism")
	o.Own = func(name string) (graph.Mount, error) { return findOwn(s.tools, name) }
	o.Locks = toolslock.NewSet(s.store.Func(), s.packageFolder)
	o.VerifySeal = sandbox.VerifyRecord
	o.DrawLock, o.Run, o.Watch = s.drawLock, s.runs(), watch()
	if s.remote != nil {
		o.Remote, o.Upload, o.Download = engineRemote{s.remote}, s.uploads(), s.downloads()
	}
	return engine.New(o)
}
