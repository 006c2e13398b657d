package draws

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// gitArgs and gitEnv keep git from running anything of the user's or of the
// repository's, from waiting, and from the network. Only plumbing is run: it
// has no pager, no signature checks, no text filters.
var gitArgs = []string{
	"--no-pager", "--literal-pathspecs",
	"-c", "core.fsmonitor=false",
	"-c", "core.hooksPath=/dev/null",
	"-c", "core.commitGraph=false", // a stale one may hide commits
}

func gitEnv() []string {
	return []string{
		"PATH=" + os.Getenv("PATH"), // git finds its own parts by it
		"HOME=/dev/null",
		"LC_ALL=C",
		"GIT_CONFIG_GLOBAL=/dev/null",
		"GIT_CONFIG_SYSTEM=/dev/null",
		"GIT_CONFIG_NOSYSTEM=1",
		"GIT_ATTR_NOSYSTEM=1",
		"GIT_TERMINAL_PROMPT=0",
		"GIT_OPTIONAL_LOCKS=0",
		"GIT_NO_REPLACE_OBJECTS=1", // a replaced commit is another history
		"GIT_GRAFT_FILE=/dev/null", // so is a grafted one
		"GIT_ALLOW_PROTOCOL=none",  // a partial clone fetches when it lacks a blob,
		"GIT_NO_LAZY_FETCH=1",      // by ssh or a helper that the repository names
		"GIT_TRACE2=0", "GIT_TRACE=0",
	}
}

// A repository is one git working tree, asked in one of its folders.
type repository struct {
	ctx     context.Context
	program string
	dir     string
}

// git runs a command to its end.
func (r repository) git(stdin []byte, args ...string) ([]byte, error) {
	var out bytes.Buffer
	err := r.stream(stdin, func(b io.Reader) error {
		_, err := out.ReadFrom(b)
		return err
	}, args...)
	return out.Bytes(), err
}

// stream runs a command and has its output read.
func (r repository) stream(stdin []byte, read func(io.Reader) error, args ...string) error {
	ctx, cancel := context.WithCancel(r.ctx)
	defer cancel()
	name := args[slices.IndexFunc(args, func(a string) bool { return !strings.HasPrefix(a, "-") })]
	cmd := exec.CommandContext(ctx, r.program, append(append([]string{}, gitArgs...), args...)...)
	cmd.Dir, cmd.Env, cmd.Stdin = r.dir, gitEnv(), bytes.NewReader(stdin)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return fmt.Errorf("git %s: %w", name, err)
	}
	rerr := read(out)
	if rerr != nil {
		cancel() // it may wait for its reader
	}
	err = cmd.Wait()
	switch first, _, _ := strings.Cut(strings.TrimSpace(stderr.String()), "\n"); {
	case r.ctx.Err() != nil:
		err = r.ctx.Err()
	case rerr != nil:
		err = rerr
	case err != nil && first != "":
		err = fmt.Errorf("%s (%w)", first, err)
	}
	if err != nil {
		return fmt.Errorf("git %s: %w", name, err)
	}
	return nil
}

// A version is a content that the file once had, and the oldest commit, as
// git lists them, that has it.
type version struct{ commit, blob string }

// versions gives every content that the file ever had in a commit reachable
// from HEAD. Without --full-history git drops side branches that a merge did
// away with. A commit that isn't listed has the content of one of its parents.
func (r repository) versions(name string) (commits int, all []version, err error) {
	list, err := r.git(nil, "rev-list", "--full-history", "--reverse", "--topo-order", "HEAD", "--", name)
	if err != nil {
		return 0, nil, err
	}
	ids := strings.Fields(string(list))
	var ask bytes.Buffer
	for _, id := range ids {
		fmt.Fprintf(&ask, "%s:%s\n", id, name)
	}
	out, err := r.git(ask.Bytes(), "cat-file", "--batch-check=%(objecttype) %(objectname)")
	if err != nil {
		return 0, nil, err
	}
	lines := strings.Split(strings.TrimSuffix(string(out), "\n"), "\n")
	seen := map[string]bool{}
	for i, id := range ids {
		if i >= len(lines) {
			return 0, nil, errors.New("git cat-file: it ended early")
		}
		if blob, ok := strings.CutPrefix(lines[i], "blob "); ok && !seen[blob] {
			seen[blob] = true
			all = append(all, version{id, blob})
		}
	}
	return len(ids), all, nil
}

// named gives every path below the folder, as seen from it, of a file of this
// name that a commit reachable from HEAD adds, changes or removes.
func (r repository) named(name string) ([]string, error) {
	const globs = "--no-literal-pathspecs"
	where := ":(glob)**/" + name
	commits, err := r.git(nil, globs, "rev-list", "--full-history", "HEAD", "--", where)
	if err != nil {
		return nil, err
	}
	out, err := r.git(commits, globs, "diff-tree", "--stdin", "-r", "-m", "--root", "--no-commit-id", "--no-renames", "--name-only", "--relative", "-z", "--", where)
	if err != nil {
		return nil, err
	}
	paths := strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00")
	slices.Sort(paths)
	if paths = slices.Compact(paths); paths[0] == "" {
		paths = paths[1:]
	}
	return paths, nil
}

// contents hands each version's bytes to use.
func (r repository) contents(all []version, use func(version, []byte)) error {
	var ask strings.Builder
	for _, v := range all {
		ask.WriteString(v.blob + "\n")
	}
	return r.stream([]byte(ask.String()), func(out io.Reader) error {
		b := bufio.NewReader(out)
		for _, v := range all {
			header, err := b.ReadString('\n')
			if err != nil {
				return err
			}
			parts := strings.Fields(header)
			if len(parts) != 3 || parts[1] != "blob" {
				return fmt.Errorf("blob %s: %s", v.blob, strings.TrimSpace(header))
			}
			size, err := strconv.ParseInt(parts[2], 10, 64)
			if err != nil {
				return err
			}
			data, err := io.ReadAll(io.LimitReader(b, size))
			if err != nil {
				return err
			}
			if _, err := b.Discard(1); err != nil || int64(len(data)) != size {
				return errors.Join(io.ErrUnexpectedEOF, err)
			}
			use(v, data)
		}
		return nil
	}, "cat-file", "--batch")
}

// place gives the folder to ask git in, the deepest of path's that exists down
// from root, and path as git has it below that folder.
func place(root, path string) (dir, name string) {
	if !filepath.IsAbs(path) {
		path = filepath.Join(root, path)
	}
	for dir = filepath.Dir(path); dir != root && dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
		if info, err := os.Stat(dir); err == nil && info.IsDir() {
			break
		}
	}
	name, err := filepath.Rel(dir, path)
	if err != nil {
		name = filepath.Base(path)
	}
	return dir, filepath.ToSlash(name)
}
