package transcript

import (
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const treatment = `# Plan first

Before you touch a file, write the numbered plan that you mean to follow, one line a step, and keep to it.
Short line.
================================================================================
Say at the end which steps you left out, and why; a plan that was not followed is worse than none at all.
`

// did is a command that ended with exit code 0 and printed something.
func did(text string) Event { return ran(text, "some bytes\n", 0) }

func ran(text, output string, exit int) Event {
	e := Event{Kind: KindCommand, Text: text, Output: output, Exit: &exit, Status: StatusCompleted}
	if exit != 0 {
		e.Status = StatusFailed
	}
	return e
}

func codes(events ...Event) string {
	traps := NewTraps(TrapInput{TreatmentPath: "treatments/plan-first.md", Treatment: []byte(treatment)})
	for _, e := range events {
		traps.See(e)
	}
	seen := map[string]bool{}
	var out []string
	for _, r := range traps.Reasons() {
		if !seen[r.Code] {
			seen[r.Code] = true
			out = append(out, r.Code)
		}
	}
	return strings.Join(out, " ")
}

// TestCommandNames: pairs of commands that printed something; the first of each read a trapped file, the second did not.
func TestCommandNames(t *testing.T) {
	for _, pair := range [][2]string{
		{`cat SKILL.md`, `cat README.md`},
		{`cat /work/skills/x/SKILL.md`, `cat /work/skills/x/SKILL.md/`},
		{`cat notes/plan-first.md`, `cat notes/plan-last.md`},
		{`bash -lc "cat SKILL.md"`, `bash -lc "echo SKILL.md"`},
		{`/bin/sh -lc 'head -n 5 SKILL.md'`, `/bin/sh -lc 'ls -la SKILL.md'`},
		{`cat skills/*/SKILL.*`, `ls skills/*/SKILL.*`},
		{`cat skills/*/*`, `cat src/*`},
		{`cat docs/*.md`, `cat docs/*.txt`},
		{`cat S?ILL.[m]d`, `cat "S?ILL.md"`},
		{`cat {README,SKILL}.md`, `cat '{README,SKILL}.md'`},
		{`f=SKILL.md; cat $f`, `f=SKILL.md; cat '$f'`},
		{`f=SKILL; cat "${f}.md"`, `f=SKILL; echo "${f}.md"`},
		{`cat ${f:-SKILL.md}`, `f=a; cat ${f:-SKILL.md}`},
		{`D=skills/x && cat $D/SKILL.md`, `D=SKILL.md && cat other/$E`},
		{`cat "$D/SKILL.md"`, `cat "$D/README.md"`},
		{`cp SKILL.md x; cat x`, `cp SKILL.md x; cat y`},
		{`mv SKILL.md /tmp/x && cat /tmp/x`, `mv README.md /tmp/x && cat /tmp/x`},
		{`ln -s skills/x/SKILL.md l; cat l`, `ln -s SKILL.md l; ls l`},
		{`cat SKILL.md > x; cat x`, `cat SKILL.md > x; echo hi > x; cat x`},
		{`tee x < SKILL.md > /dev/null; cat x`, `tee SKILL.md < x`},
		{`cp SKILL.md x; cp x y; cat y`, `cp SKILL.md x; rm x; ls`},
		{`cat < SKILL.md`, `cat > SKILL.md`},
		{`echo "$(cat SKILL.md)"`, `echo "$(ls SKILL.md)"`},
		{"echo `cat SKILL.md`", "echo `wc -l SKILL.md`"},
		{`echo "$(<SKILL.md)"`, `echo "<SKILL.md"`},
		{`x=$(cat SKILL.md); printf '%s' "$x"`, `x=$(cat SKILL.md); echo done`},
		{`sed -n 1,5p SKILL.md`, `sed -i s/a/b/ SKILL.md`},
		{`sed -n 1,5p a SKILL.md`, `sed -n '/SKILL.md/p' README.md`},
		{`awk '{print}' SKILL.md`, `awk '/SKILL.md' README.md`},
		{`cat SKILL.md | head -20 | sort`, `cat SKILL.md | wc -l`},
		{`cat SKILL.md 2>/dev/null`, `cat SKILL.md >/dev/null`},
		{`cat SKILL.md >&2`, `cat SKILL.md &>/dev/null; ls`},
		{`cd skills/x && cat SKILL.md`, `cd skills/x && touch SKILL.md && ls`},
		{`(cd skills; cat SKILL.md)`, `(cd skills; git add SKILL.md)`},
		{`for f in skills/*/SKILL.md; do cat "$f"; done`, `for f in skills/*/SKILL.md; do echo "$f"; done`},
		{`for d in a b; do cat "$d/SKILL.md"; done`, `for d in a b; do cat "$d/README.md"; done`},
		{`find . -name SKILL.md -exec cat {} \;`, `find . -name SKILL.md`},
		{`find . -name 'SKILL*' | xargs cat`, `find . -name 'SKILL*' | xargs ls`},
		{`find . -iname skill.md -print0 | xargs -0 head`, `find . ! -name SKILL.md -exec cat {} +`},
		{`find . -name '*.md' | while read -r f; do cat "$f"; done`, `find . -name '*.md' | while read -r f; do echo "$f"; done`},
		{`find skills -name '*.md' -exec sh -c 'cat "$1"' _ {} \;`, `find skills -name '*.md' -exec sh -c 'echo "$1"' _ {} \;`},
		{`ls skills/*/SKILL.md | head -1 | xargs -I{} cat {}`, `ls skills/*/SKILL.md | head -1`},
		{`while IFS= read -r l; do echo "$l"; done < SKILL.md`, `while read -r l; do wc "$l"; done < list`},
		{`python -c "print(open('SKILL.md').read())"`, `python -c "print('SKILL.md')"`},
		{`python3 -c 'import pathlib; print(pathlib.Path("skills/x/SKILL.md").read_text())'`, `python3 -c 'open("SKILL.md", "w").write("hi"); print(1)'`},
		{"python3 - <<'EOF'\nimport glob\nfor f in glob.glob('skills/*/SKILL.md'):\n  print(open(f).read())\nEOF", "cat > SKILL.md <<'EOF'\nprint(open('SKILL.md').read())\nEOF\nls"},
		{`node -e "console.log(require('fs').readFileSync('SKILL.md','utf8'))"`, `node -e "require('fs').existsSync('SKILL.md'); console.log(fs.readdirSync('.'))"`},
		{`perl -ne 'print' SKILL.md`, `perl -pi -e 's/a/b/' SKILL.md`},
		{`grep -n plan SKILL.md`, `grep -n SKILL.md README.md`},
		{`grep -h plan *.md SKILL.md`, `grep -l plan SKILL.md`},
		{`cat README.md | cat - SKILL.md`, `cat README.md | grep -c SKILL.md`},
		{`test -f SKILL.md && cat SKILL.md`, `test -f SKILL.md && ls && pwd`},
		{`if [ -f SKILL.md ]; then cat SKILL.md; fi`, `if [ -f SKILL.md ]; then ls; fi`},
		{`case x in a) ls;; *) cat SKILL.md;; esac`, `case SKILL.md in a) ls;; *) pwd;; esac`},
		{`diff SKILL.md README.md`, `diff -q SKILL.md README.md; cmp SKILL.md x`},
		{`cat <(cat SKILL.md)`, `cat <(ls SKILL.md)`},
		{`sudo -u bob timeout 5 env A=1 cat SKILL.md`, `sudo -u bob timeout 5 stat SKILL.md`},
		{`git show HEAD:skills/x/SKILL.md`, `git log -- SKILL.md`},
		{`git --no-pager diff SKILL.md`, `git commit -m "add SKILL.md" SKILL.md`},
		{`base64 SKILL.md`, `sha256sum SKILL.md`},
		{`dd if=SKILL.md`, `dd if=README.md of=SKILL.md`},
		{`cat SK""ILL.md`, `cat 'SK""ILL.md'`},
		{`cat SK\ILL.md # x`, `ls # cat SKILL.md`},
		{`cat $'SKILL\x2emd'`, `cat $'SKILL\\x2emd'`},
		{`eval "cat SKILL.md"`, `eval "ls SKILL.md"`},
		{`echo 'cat SKILL.md' | sh`, `echo 'cat SKILL.md' | cat`},
		{"cat \\\n  SKILL.md", "ls \\\n  SKILL.md"},
		{"ls\ncat SKILL.md", "ls\nrm SKILL.md"},
		{`show() { cat SKILL.md; }; show`, `show() { ls SKILL.md; }; show`},
		{`cat <<< "$(cat SKILL.md)"`, `cat <<< SKILL.md`},
		{"cat <<EOF\n$(cat SKILL.md)\nEOF", "cat <<'EOF'\n$(cat SKILL.md)\nEOF"},
		{`xargs -a list cat SKILL.md`, `curl -s https://example.com/SKILL.md`},
		{`curl -s file:///work/SKILL.md`, `curl -s -o SKILL.md https://example.com/x`},
	} {
		if got := codes(did(pair[0])); got != SourceRead {
			t.Errorf("read %q: %q", pair[0], got)
		}
		if got := codes(did(pair[1])); got != "" {
			t.Errorf("no read %q: %q", pair[1], got)
		}
	}
}

func TestSiblings(t *testing.T) {
	for _, pair := range [][2]string{
		{`cat control-1.jsonl`, `cat control-one.jsonl`},
		{`cat ../treatment-12.md`, `cat ../treatment-12.go`},
		{`head reps/control-3/reply.txt`, `head reps/3/reply.txt`},
		{`cat eval-out/x/score.json`, `ls eval-out/x/`},
		{`tail captures/2026/a.jsonl`, `mkdir captures && ls captures`},
		{`cat control-*.jsonl`, `cat *.jsonl`},
		{`cat reps/*/reply.txt`, `cat src/*/reply.txt`},
		{`for i in 1 2; do cat treatment-$i.json; done`, `for i in 1 2; do echo treatment-$i.json; done`},
	} {
		if got := codes(did(pair[0])); got != SiblingRead {
			t.Errorf("read %q: %q", pair[0], got)
		}
		if got := codes(did(pair[1])); got != "" {
			t.Errorf("no read %q: %q", pair[1], got)
		}
	}
}

// TestWhatHappened: the same words, another course of events.
func TestWhatHappened(t *testing.T) {
	line := strings.Split(treatment, "\n")[2]
	for _, c := range []struct {
		name string
		want string
		seen []Event
	}{
		{"in progress", "", []Event{{Kind: KindCommand, Text: "cat SKILL.md", Output: "x", Status: StatusInProgress}}},
		{"failed", "", []Event{ran("cat SKILL.md", "cat: SKILL.md: No such file or directory\n", 1)}},
		{"refused by the CLI", "", []Event{{Kind: KindCommand, Text: "cat SKILL.md", Output: "denied", Status: StatusFailed}}},
		{"printed nothing", "", []Event{ran("cat SKILL.md", "", 0)}},
		{"only its end failed", SourceRead, []Event{ran("cat SKILL.md; ls nope", "# Skill\nls: nope: No such file or directory\n", 2)}},
		{"only its beginning failed", "", []Event{ran("cat SKILL.md; ls", "cat: SKILL.md: No such file or directory\na\nb\n", 0)}},
		{"one of two", SourceRead, []Event{ran("cat a/SKILL.md b/SKILL.md; ls", "cat: a/SKILL.md: No such file or directory\n# b\n", 0)}},
		{"or else", "", []Event{ran("cat SKILL.md 2>/dev/null || echo 'no skill'", "no skill\n", 0)}},
		{"or else, read", SourceRead, []Event{ran("cat SKILL.md 2>/dev/null || echo 'no skill'", "# Skill\n", 0)}},
		{"search found nothing", "", []Event{ran("grep -n plan SKILL.md || echo none", "none\n", 0)}},
		{"search in others", "", []Event{ran("grep -rn plan .", "./README.md:3:a plan in SKILL.md: no\n", 0)}},
		{"search in it", SourceRead, []Event{ran("grep -rn plan .", "./README.md:3:a plan\n./skills/x/SKILL.md:7:plan\n", 0)}},
		{"rg", SourceRead, []Event{ran("rg plan | head", "skills/x/SKILL.md:plan\n", 0)}},
		{"rg names", "", []Event{ran("rg -l plan", "skills/x/SKILL.md\n", 0)}},
		{"git grep", SourceRead, []Event{ran("git grep plan", "plan-first.md:plan\n", 0)}},
		{"search of several", "", []Event{ran("grep plan README.md SKILL.md", "README.md:plan\n", 0)}},
		{"search of a sibling", SiblingRead, []Event{ran("grep -r plan .", "captures/a/control-1.jsonl:{}\n", 0)}},
		{"copied before", SourceRead, []Event{ran("cp skills/x/SKILL.md /tmp/a.txt", "", 0), did("cat /tmp/a.txt")}},
		{"copied, relative", SourceRead, []Event{ran("cp skills/x/SKILL.md a.txt", "", 0), did("cat /work/a.txt")}},
		{"copy failed", "", []Event{ran("cp SKILL.md a.txt", "", 1), did("cat a.txt")}},
		{"copy in progress", "", []Event{{Kind: KindCommand, Text: "cp SKILL.md a.txt", Status: StatusInProgress}, did("cat a.txt")}},
		{"copy overwritten", "", []Event{ran("cp SKILL.md a.txt", "", 0), ran("echo hi > a.txt", "", 0), did("cat a.txt")}},
		{"prints the bytes", SourceRead, []Event{ran("mystery", "x"+line+"\n", 0)}},
		{"prints them and fails", SourceRead, []Event{ran("mystery", line, 1)}},
		{"less than a mark", "", []Event{ran("mystery", line[:79], 0)}},
		{"not from the line's beginning", "", []Event{ran("mystery", line[20:]+"x", 0)}},
		{"a ruler", "", []Event{ran("mystery", strings.Repeat("=", 200), 0)}},
		{"said it itself", "", []Event{ran("echo '"+line+"'", line, 0)}},
	} {
		if got := codes(c.seen...); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

func TestTools(t *testing.T) {
	long, _ := json.Marshal(map[string]any{"content": []any{map[string]string{"type": "text", "text": treatment}}})
	for i, c := range []struct {
		name, arguments, result, status, want string
	}{
		{"Read", `{"file_path":"/work/skills/x/SKILL.md"}`, `"1→# x"`, StatusCompleted, SourceRead},
		{"Read", `{"file_path":"/work/README.md"}`, `"1→# x"`, StatusCompleted, ""},
		{"Read", `{"file_path":"/work/SKILL.md"}`, `"File does not exist."`, StatusFailed, ""},
		{"Read", `{"file_path":"/work/SKILL.md"}`, ``, StatusInProgress, ""},
		{"Read", `{"file_path":"/work/SKILL.md"}`, `""`, StatusCompleted, ""},
		{"Write", `{"file_path":"/work/SKILL.md","content":"x"}`, `"written"`, StatusCompleted, ""},
		{"read_file", `{"absolute_path":"/work/plan-first.md"}`, `"text"`, StatusCompleted, SourceRead},
		{"read_file", `{"file_path":"SKILL.md"}`, `""`, StatusCompleted, SourceRead}, // gemini shows nothing of what was read
		{"read_file", `{"file_path":"SKILL.md"}`, `""`, StatusFailed, ""},
		{"read_many_files", `{"include":["docs/*.txt","skills/*/SKILL.*"]}`, `"text"`, StatusCompleted, SourceRead},
		{"read", `{"filePath":"/work/reps/control-1/reply.txt"}`, `"text"`, StatusCompleted, SiblingRead},
		{"read", `{"path":"eval-out/a"}`, `{"content":[{"type":"text","text":"x"}]}`, StatusCompleted, SiblingRead},
		{"mcp__fs__read_file", `{"path":"SKILL.md"}`, `{"content":[{"type":"text","text":"x"}]}`, StatusCompleted, SourceRead},
		{"Grep", `{"pattern":"x"}`, `"skills/x/SKILL.md"`, StatusCompleted, ""},
		{"Grep", `{"pattern":"x","output_mode":"content"}`, `"skills/x/SKILL.md:3:x"`, StatusCompleted, SourceRead},
		{"Grep", `{"pattern":"x","output_mode":"content","path":"SKILL.md"}`, `"3:x"`, StatusCompleted, SourceRead},
		{"Grep", `{"pattern":"x","output_mode":"content","path":"SKILL.md"}`, `"No matches found"`, StatusCompleted, ""},
		{"grep", `{"pattern":"x"}`, `"Found 1 matches\n/work/SKILL.md:\n  Line 3: x"`, StatusCompleted, SourceRead},
		{"anything", `{}`, string(long), StatusCompleted, SourceRead},
		{"Write", string(long), string(long), StatusCompleted, ""},
		{"read", `not JSON`, `not JSON`, StatusCompleted, ""},
	} {
		e := Event{Kind: KindTool, Name: c.name, Arguments: json.RawMessage(c.arguments), Result: json.RawMessage(c.result), Status: c.status}
		if got := codes(e); got != c.want {
			t.Errorf("%d %s %s: %q, want %q", i, c.name, c.arguments, got, c.want)
		}
	}
}

func TestReasons(t *testing.T) {
	traps := NewTraps(TrapInput{})
	for range 3 {
		traps.See(did("cat skills/x/SKILL.md"))
	}
	traps.See(did("cat control-1.json"))
	traps.See(did("cat anything.md"))
	want := []Reason{
		{SourceRead, "skills/x/SKILL.md: cat skills/x/SKILL.md"},
		{SiblingRead, "control-1.json: cat control-1.json"},
	}
	if diff := cmp.Diff(want, traps.Reasons()); diff != "" {
		t.Error(diff)
	}
	for i := range 1000 {
		traps.See(ran(fmt.Sprintf("cp SKILL.md f%d; cat d%d/SKILL.md", i, i), "x", 0))
	}
	if len(traps.Reasons()) != maxTraps || len(traps.copies) > maxCopies {
		t.Errorf("%d reasons, %d copies", len(traps.Reasons()), len(traps.copies))
	}
	short := NewTraps(TrapInput{Treatment: []byte("\nAnswer in one short word.\n")})
	short.See(ran("x", "> Answer in one short word.", 0))
	if len(short.Reasons()) != 1 {
		t.Error("a treatment shorter than a mark is looked for as a whole")
	}
}

// TestHostile: commands that would grow when they are expanded cost a bounded amount of memory.
func TestHostile(t *testing.T) {
	many := strings.Repeat("x ", 1000)
	for _, command := range []string{
		"x=" + strings.Repeat("a", 100<<10) + "; " + strings.Repeat("cat $x$x a$x $x; ", 2000),
		"x=a; " + strings.Repeat("x=$x$x; ", 2000) + `eval "$x"`,
		"echo " + many + "| xargs sh -c '" + strings.Repeat("{}", 50_000) + "'",
		"for a in " + many + "; do for b in " + many + `; do cat "$a$b/SKILL.md"; done; done`,
		strings.Repeat("cp SKILL.md f1; cat f* d/SKILL.md; ", 5000),
		`x='eval "$x"; eval "$x"'; eval "$x"`,
		strings.Repeat("$(", 50_000), strings.Repeat("(", 200_000), strings.Repeat("<<a\n", 50_000), strings.Repeat("${", 100_000),
		strings.Repeat("`", 200_000), strings.Repeat("case x in a) ", 20_000), strings.Repeat("f() ", 60_000),
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		codes(ran(command, "foo\n", 0))
		runtime.ReadMemStats(&after)
		if grown := after.TotalAlloc - before.TotalAlloc; grown > 512<<20 {
			t.Errorf("%.40q allocates %d MiB", command, grown>>20)
		}
	}
}

// FuzzTraps: no command makes the shell panic or run away.
func FuzzTraps(f *testing.F) {
	for _, s := range []string{
		"cat SKILL.md", "bash -lc \"for f in a b; do cat $f; done\"", "cat <<EOF\n$(cat x)\nEOF", "case x in a) b;; esac",
		"f() { f; }; f", "x=$x$x; eval \"$x$x\"", "((((", "{{{{{", "`$(`", "cat ${a:-${b:-c}}", "a{b,c}{d,e}", "xargs sh -c '{}{}' {}",
		"find -exec", "[[ a", "$((", "if then else fi", "2>", "<<", "<(", "'", "\"$(", "$'\\x", "sh -c", "git -C", "timeout", "perl -", "python -c",
	} {
		f.Add(s, "out: x\n")
	}
	f.Fuzz(func(t *testing.T, command, output string) {
		run := func() []Reason {
			traps := NewTraps(TrapInput{TreatmentPath: "a/b.md", Treatment: []byte(treatment)})
			traps.See(ran(command, output, 0))
			traps.See(ran(command, output, 1))
			return traps.Reasons()
		}
		if diff := cmp.Diff(run(), run()); diff != "" {
			t.Fatal(diff)
		}
	})
}
