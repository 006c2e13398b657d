package transcript

import (
	"regexp"
	"strings"
	"sync"
)

// The patterns are compiled when code is first looked at: at the start of a
// program that reads no transcript they were a third of its time.
var (
	codeString = lazily(`'([^'\\\n]{1,400})'|"([^"\\\n]{1,400})"|` + "`([^`\\\\\n]{1,400})`")
	codeReads  = lazily(`(?i)open|read|load|slurp|file|cat |<>`)
	codeNot    = lazily(`(?i)(print|echo|puts|log|say|exists?|existsSync|is_?file|stat|remove|unlink|write\w*)\s*\(?\s*$`)
	codeWrites = lazily(`^\s*(,\s*(mode\s*=\s*)?['"][wax]|\)\s*\.write|\)\s*\.(exists|is_file|unlink|touch|stat))`)
)

func lazily(pattern string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(pattern) })
}

// language looks into code that is given on the command line or on the input: a string that names a trapped file in
// code that reads, but is not just printed, tested or written.
func (sh *shell) language(name string, args []field, in flow) flow {
	if name == "perl" && hasOption(args, "i", "") {
		return flow{} // edits in place
	}
	for i, f := range args {
		if f.text == "" || f.text[0] != '-' { // a program file and its arguments
			out := sh.show(name, args[i:], in)
			out.taints = join(out.taints, sh.code(in.text))
			return out
		}
		if isCodeOption(f.text) && i+1 < len(args) && !strings.HasPrefix(args[i+1].text, "-") {
			code := args[i+1]
			out := sh.show(name, args[i+2:], in)
			out.taints = join(join(out.taints, code.taints), sh.code(code.text))
			return out
		}
	}
	return flow{taints: join(in.taints, sh.code(in.text))}
}

// isCodeOption knows -c, -e, -p, -r, alone or at the end of a cluster as in `perl -ne`.
func isCodeOption(option string) bool {
	if strings.HasPrefix(option, "--") {
		return option == "--eval" || option == "--print"
	}
	return strings.ContainsRune("cepEr", rune(option[len(option)-1]))
}

func (sh *shell) code(code string) []taint {
	if !codeReads().MatchString(code) {
		return nil
	}
	var out []taint
	for _, at := range codeString().FindAllStringSubmatchIndex(code, 64) {
		for g := 2; g < len(at); g += 2 {
			if at[g] < 0 {
				continue
			}
			file := code[at[g]:at[g+1]]
			taints := sh.read([]field{{text: file, glob: hasGlob(file)}})
			if len(taints) > 0 && !codeNot().MatchString(code[:at[0]]) && !codeWrites().MatchString(code[at[1]:]) {
				out = join(out, taints)
			}
		}
	}
	return out
}
