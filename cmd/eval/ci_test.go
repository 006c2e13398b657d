package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/urfave/cli/v2"

	"github.com/evalbuild/eval/cas/remote/remotetest"
)

// docs/ci.md is a recipe that people copy. Nobody runs it here, so what can be
// known of it without a runner is held: that its workflows have the shape that
// GitHub wants, that no secret is where a stranger gets at it, and that this
// very program takes every flag in it.

func ciPage(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../../docs/ci.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// fences gives the bodies of a page's blocks by what stands behind the fence.
func fences(page, info string) []string {
	var out []string
	for _, m := range regexp.MustCompile("(?ms)^```"+info+"[^\n]*\n(.*?)^```$").FindAllStringSubmatch(page, -1) {
		out = append(out, m[1])
	}
	return out
}

func TestCIWorkflows(t *testing.T) {
	var starts []string
	for _, text := range fences(ciPage(t), "yaml") {
		w := readWorkflow(text)
		for _, p := range w.problems {
			t.Error(p)
		}
		if w.calls == 0 {
			t.Errorf("a workflow that never calls ev:\n%s", text)
		}
		starts = append(starts, w.starts...)
	}
	if !slices.Contains(starts, "pull_request") || !slices.Contains(starts, "push") {
		t.Errorf("workflows for %q; pull_request and push are meant", starts)
	}
}

// serverFlags are those that the page's text names of bazel-remote.
var serverFlags = []string{"max_size", "tls_ca_file", "htpasswd_file", "allow_unauthenticated_reads"}

// TestCICommands checks what the page tells people to type.
func TestCICommands(t *testing.T) {
	page := ciPage(t)
	calls := 0
	for _, block := range fences(page, "console") {
		for _, line := range shellLines(block) {
			if command, ok := strings.CutPrefix(line, "$ "); ok && evWord.MatchString(command+" ") {
				calls++
				if err := evLine(command); err != nil {
					t.Errorf("%q: %v", command, err)
				}
			}
		}
	}
	for _, m := range regexp.MustCompile("`ev ([^`]*)`").FindAllStringSubmatch(page, -1) {
		if err := evLine("ev " + m[1]); err != nil {
			t.Errorf("`ev %s`: %v", m[1], err)
		}
	}
	for _, m := range regexp.MustCompile("`(?:EVAL_|--)([A-Za-z_]+)").FindAllStringSubmatch(page, -1) {
		if name := strings.ToLower(m[1]); findFlag(buildFlags, name) == nil && !slices.Contains(serverFlags, name) {
			t.Errorf("the text names a flag %s, which ev build doesn't have", name)
		}
	}
	if calls == 0 {
		t.Error("the page shows no command")
	}
}

// TestCISettings reads the page's .evalrc as a build does that stands beside it.
func TestCISettings(t *testing.T) {
	page := ciPage(t)
	blocks := fences(page, "text file=.evalrc")
	if len(blocks) == 0 {
		t.Fatal("the page has no .evalrc")
	}
	for _, m := range regexp.MustCompile("`(build(?::\\w+)? --[^`]*)`").FindAllStringSubmatch(page, -1) {
		blocks = append(blocks, m[1]+"\nbuild:ci --draws=forbid\n") // lines for ~/.evalrc, in the text
	}
	t.Setenv("HOME", t.TempDir())
	for _, text := range blocks {
		dir := t.TempDir()
		for name, data := range map[string]string{"MODULE.star": "module(name = \"x\")\n", ".evalrc": text} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(data), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		t.Chdir(dir)
		for _, config := range []string{"", "ci"} {
			s := settings{values: map[string]string{}, set: map[string]string{}}
			if err := s.takeRC("build", buildFlags, config); err != nil {
				t.Errorf("--config=%s: %v\n%s", config, err, text)
			} else if config == "ci" && s.values["draws"] != "forbid" {
				t.Errorf("CI may draw:\n%s", text)
			}
		}
		for _, verb := range []*cli.Command{planCommand(), verifyCommand(), showCommand()} {
			s := settings{values: map[string]string{}, set: map[string]string{}}
			if err := s.takeRC(verb.Name, verb.Flags, "ci"); err != nil {
				t.Errorf("ev %s: %v", verb.Name, err)
			}
		}
	}
}

// TestCIServer asks bazel-remote whether it has the flags that the page says.
func TestCIServer(t *testing.T) {
	exe, err := remotetest.BazelRemotePath()
	have, err2 := needed(err == nil, "bin/tools/bazel-remote (make deps)")
	if err2 != nil {
		t.Fatal(err2)
	}
	if !have {
		t.Skip(err)
	}
	help, err := exec.Command(exe, "--help").CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, help)
	}
	flags := slices.Clone(serverFlags)
	for _, block := range fences(ciPage(t), "console") {
		for _, line := range shellLines(block) {
			if strings.HasPrefix(line, "$ bazel-remote ") {
				for _, m := range regexp.MustCompile(`--(\w+)`).FindAllStringSubmatch(line, -1) {
					flags = append(flags, m[1])
				}
			}
		}
	}
	if len(flags) == len(serverFlags) {
		t.Error("the page starts no bazel-remote")
	}
	for _, f := range flags {
		if !regexp.MustCompile(`(?m)^ +--` + f + `( |$)`).Match(help) {
			t.Errorf("bazel-remote has no flag --%s", f)
		}
	}
}
