package transcript

import (
	"path"
	"strings"
)

const (
	maxCopies  = 256 // files that are known to hold a trap's content
	maxTraps   = 16  // reasons
	maxPath    = 1 << 10
	skillFile  = "SKILL.md"
	skillsDir  = "skills"
	maxSibling = 9 // indices that a glob is tried with
)

// TrapInput is the treatment of a probe. Path is empty when there is none (A/A).
type TrapInput struct {
	TreatmentPath string
	Treatment     []byte
}

// Traps watches the events of one rep, in their order, for reads of the treatment (`source-read`) or of another rep
// (`sibling-read`). It judges by what happened: a command must have ended, not have failed, and have printed
// something; then it follows words, variables, globs, pipes and copies from the files to the output. Where it cannot
// tell which of two commands printed, it says that the file was read. It is honest work against an agent that looks
// around, and no wall against one that hides: the seal is the wall.
//
// Its state is bounded: 256 copies, 16 reasons, and the marks of the treatment.
type Traps struct {
	base, dir string // of the treatment
	marks     *marks
	copies    []fileCopy
	reasons   []Reason
	seen      map[Reason]bool // by code and file
}

// fileCopy is a file that was made from trapped ones.
type fileCopy struct {
	path   string
	taints []taint
	step   int
}

// taint says that bytes came from a trapped file.
type taint struct {
	code, path string
	search     bool // only if a line of the output begins with such a path
	step       int  // the pipeline that read it
}

// NewTraps makes the traps of one rep.
func NewTraps(in TrapInput) *Traps {
	t := &Traps{marks: newMarks(in.Treatment), seen: map[Reason]bool{}}
	if in.TreatmentPath != "" {
		t.base = path.Base(in.TreatmentPath)
		t.dir = path.Base(path.Dir(in.TreatmentPath))
	}
	return t
}

// See takes the next event.
func (t *Traps) See(e Event) {
	if !e.Ended() {
		return
	}
	switch e.Kind {
	case KindCommand:
		t.command(e)
	case KindTool:
		t.tool(e)
	}
}

// Reasons are the reads so far, one for each file, in the order in which they were seen.
func (t *Traps) Reasons() []Reason { return t.reasons }

func (t *Traps) add(code, file, how string) {
	key := Reason{code, file}
	if len(t.reasons) >= maxTraps || t.seen[key] {
		return
	}
	t.seen[key] = true
	t.reasons = append(t.reasons, Reason{code, brief(file) + ": " + brief(how)})
}

// classify says which trap a path, or a glob, is in: "" for none.
func (t *Traps) classify(p string, glob bool) string {
	if strings.HasSuffix(p, "/") || strings.HasPrefix(p, "http://") || strings.HasPrefix(p, "https://") || len(p) > maxPath {
		return ""
	}
	p = path.Clean(strings.TrimPrefix(p, "file://"))
	dirs := strings.Split(p, "/")
	base := dirs[len(dirs)-1]
	dirs = dirs[:len(dirs)-1]
	switch {
	case t.isSource(base, dirs, glob):
		return SourceRead
	case isSibling(base, dirs, glob):
		return SiblingRead
	}
	return ""
}

func (t *Traps) isSource(base string, dirs []string, glob bool) bool {
	if base == skillFile || t.base != "" && base == t.base {
		return true
	}
	if !glob {
		return false
	}
	// A glob without a letter ("*") says nothing of the name; it counts in the folders where such files are.
	if strings.Trim(base, "*?[]!^-.") == "" {
		dir := ""
		if len(dirs) > 0 {
			dir = dirs[len(dirs)-1]
		}
		return hasDir(dirs, skillsDir) || t.base != "" && dir == t.dir && t.dir != "." && t.dir != "/"
	}
	return matches(base, skillFile) || t.base != "" && matches(base, t.base)
}

var (
	siblingBase = lazily(`^(control|treatment)-[0-9]+\.(jsonl|json|txt|md)$`)
	siblingDir  = lazily(`^(control|treatment)-[0-9]+$`)
)

func isSibling(base string, dirs []string, glob bool) bool {
	if siblingBase().MatchString(base) || hasDir(dirs, "eval-out") || hasDir(dirs, "captures") {
		return true
	}
	for i := 1; i < len(dirs); i++ {
		if dirs[i-1] == "reps" && (siblingDir().MatchString(dirs[i]) || glob && matchesArm(dirs[i], "")) {
			return true
		}
	}
	if !glob || strings.Trim(base, "*?[]!^-.") == "" {
		return false
	}
	for _, ext := range []string{".jsonl", ".json", ".txt", ".md"} {
		if strings.HasPrefix(base, "*.") {
			break // of every name: the extension alone is no sign of a rep
		}
		if matchesArm(base, ext) {
			return true
		}
	}
	return false
}

func matchesArm(glob, ext string) bool {
	for _, arm := range []string{"control-", "treatment-"} {
		for i := 1; i <= maxSibling; i++ {
			if matches(glob, arm+string(rune('0'+i))+ext) {
				return true
			}
		}
	}
	return false
}

func matches(glob, name string) bool {
	ok, err := path.Match(glob, name)
	return ok && err == nil
}

func hasDir(dirs []string, name string) bool {
	for _, d := range dirs {
		if d == name {
			return true
		}
	}
	return false
}

// taints are those of a file by its name, or by what was copied into it.
func (t *Traps) taints(p string, glob bool) []taint {
	if code := t.classify(p, glob); code != "" {
		return []taint{{code: code, path: p}}
	}
	if p == "" || len(p) > maxPath {
		return nil
	}
	for _, c := range t.copies {
		if samePath(c.path, p, glob) {
			return c.taints
		}
	}
	return nil
}

// samePath compares from the end, since the working directory is not known: "x" may be "/tmp/x".
func samePath(a, b string, glob bool) bool {
	x, y := strings.Split(path.Clean(a), "/"), strings.Split(path.Clean(b), "/")
	for i := 1; i <= min(len(x), len(y)); i++ {
		left, right := x[len(x)-i], y[len(y)-i]
		if left != right && (!glob || !matches(right, left) || strings.Trim(right, "*?") == "") {
			return left == "" || right == "" || left == ".." || right == ".."
		}
	}
	return true
}

// write records what a file holds now; without taints it holds something else.
func (t *Traps) write(file string, taints []taint, step int, keep bool) {
	file = path.Clean(file)
	if len(taints) == 0 {
		if !keep {
			t.remove(func(c fileCopy) bool { return c.path == file })
		}
		return
	}
	if len(file) > maxPath || len(t.copies) >= maxCopies || strings.HasPrefix(file, "/dev/") || t.classify(file, false) != "" {
		return
	}
	t.copies = append(t.copies, fileCopy{file, taints, step})
}

func (t *Traps) remove(gone func(fileCopy) bool) {
	kept := t.copies[:0]
	for _, c := range t.copies {
		if !gone(c) {
			kept = append(kept, c)
		}
	}
	t.copies = kept
}
