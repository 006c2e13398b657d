package main

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/evalbuild/eval/workspace"
	"github.com/evalbuild/eval/workspace/draws"
)

// newFiles is the package that `ev new probe` makes, and MODULE.star and
// gitignore for a folder that is no workspace yet. NAME stands for the name.
//
//go:embed all:template
var newFiles embed.FS

var newName = regexp.MustCompile(`^[a-z][a-z0-9_]*$`)

func newCommand() *cli.Command {
	return verb("new", "make a package that works at once: new probe NAME", "probe NAME", nil, func(_ *cli.Context, s *settings) error {
		if len(s.args) != 2 || s.args[0] != "probe" {
			return usageErrorf("new wants: new probe NAME")
		}
		name := s.args[1]
		if !newName.MatchString(name) {
			return usageErrorf("new probe %q: a name is lower-case letters, digits and _, and begins with a letter", name)
		}
		return makeNew(name)
	})
}

func makeNew(name string) error {
	cwd, err := os.Getwd()
	if err != nil {
		return failf(exitInfra, "%v", err)
	}
	root, err := workspace.Find(cwd)
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			return userError(err)
		}
		root = cwd
		if err := writeTemplate("template/workspace", root, name); err != nil {
			return err
		}
		fmt.Fprintln(stdout, "MODULE.star: this folder is now a workspace")
	}
	dir := filepath.Join(cwd, name)
	if _, err := os.Lstat(dir); err == nil {
		return usageErrorf("new probe %s: %s exists already; nothing was changed", name, name)
	}
	if err := writeTemplate("template/probe", dir, name); err != nil {
		return err
	}
	rel, err := filepath.Rel(root, dir)
	if err != nil {
		return failf(exitInfra, "%v", err)
	}
	if err := addAttributes(root); err != nil {
		return err
	}
	pkg := filepath.ToSlash(rel)
	fmt.Fprintf(stdout, "%s: a probe of %s; pin the program, then draw and score its reps with\n  ev lock //%s\n  ev build --draws=allow //%s\n", name, name+"/agent.sh", pkg, pkg)
	return nil
}

// addAttributes makes git merge the locks of draws by lines, also where there
// are attributes already.
func addAttributes(root string) error {
	path := filepath.Join(root, ".gitattributes")
	data, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return failf(exitInfra, "new: %v", err)
	}
	for line := range strings.Lines(string(data)) {
		if strings.HasPrefix(strings.TrimSpace(line), draws.Name+" ") {
			return nil // whatever it says: it is the user's
		}
	}
	if len(data) > 0 && !strings.HasSuffix(string(data), "\n") {
		data = append(data, '\n')
	}
	if err := os.WriteFile(path, append(data, draws.Attributes+"\n"...), 0o644); err != nil {
		return failf(exitInfra, "new: %v", err)
	}
	return nil
}

// writeTemplate copies an embedded folder; it never replaces a file.
func writeTemplate(from, to, name string) error {
	return fs.WalkDir(newFiles, from, func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := newFiles.ReadFile(p)
		if err != nil {
			return err
		}
		rel := strings.TrimPrefix(p, from+"/")
		if base := path.Base(rel); strings.HasPrefix(base, "dot-") {
			rel = path.Join(path.Dir(rel), "."+strings.TrimPrefix(base, "dot-"))
		}
		dst := filepath.Join(to, filepath.FromSlash(strings.TrimSuffix(rel, ".tmpl")))
		if err := os.MkdirAll(filepath.Dir(dst), 0o755); err != nil {
			return failf(exitInfra, "new: %v", err)
		}
		mode := fs.FileMode(0o644)
		if path.Ext(rel) == ".sh" { // an embedded file has no mode of its own
			mode = 0o755
		}
		f, err := os.OpenFile(dst, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
		if errors.Is(err, fs.ErrExist) {
			return nil // a .gitignore of the user's, say
		}
		if err != nil {
			return failf(exitInfra, "new: %v", err)
		}
		_, err = f.WriteString(strings.ReplaceAll(string(data), "NAME", name))
		if cerr := f.Close(); err == nil {
			err = cerr
		}
		if err != nil {
			return failf(exitInfra, "new: write %s: %v", dst, err)
		}
		return nil
	})
}
