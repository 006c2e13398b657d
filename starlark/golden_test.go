package starlark

import (
	"flag"
	"maps"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"

	sl "go.starlark.net/starlark"

	"github.com/evalbuild/eval/rules/transcript"
)

var update = flag.Bool("update", false, "write the outputs of new builtins, calls and versions into testdata/builtins.golden, and testdata/ledger.md")

const goldenFile = "testdata/builtins.golden"

// builtinCalls holds calls of every builtin that can be in a key, by its name
// without the version. An output that changes while the version stays would
// leave stale scores standing. Figures that are not rounded by themselves are
// rounded here: their last bit is the processor's.
var builtinCalls = map[string][]string{
	"abs":       {"abs(-3)", "abs(-2.5)", "abs('x')"},
	"any":       {"any([0, '', 3])", "any([])"},
	"all":       {"all([1, 2])", "all([1, 0])", "all([])"},
	"bool":      {"[bool(x) for x in [0, 1, '', 'a', [], [0], None, 0.0]]", "bool(depset())", "bool(depset(transitive = [depset()]))"},
	"bytes":     {"bytes('aé')", "bytes([0, 255])", "bytes(raw)", "bytes([256])"},
	"chr":       {"chr(233)", "chr(0x1f600)", "chr(-1)"},
	"dict":      {"dict([('a', 1)], b = 2)", "dict({'b': 1}, a = 2).keys()", "dict(1)"},
	"dir":       {"dir('')", "dir([])", "dir({})", "dir(struct(b = 1, a = 2))", "dir(depset())", "dir(b'')", "dir(set())", "dir(PRESENT)", "dir(re)", "dir(json)", "dir(stats)", "dir(math)"},
	"enumerate": {"enumerate(['a', 'b'])", "enumerate(['a'], 5)"},
	"fail":      {"fail('a', 1)", "fail('a', 'b', sep = '-')"},
	"float":     {"float('1.5')", "float(3)", "float('inf') > 1e308", "float('x')", "float(True)", "str(float('nan'))"},
	"getattr":   {"getattr('a', 'upper')()", "getattr('a', 'x', 7)", "getattr('a', 'x')"},
	"hasattr":   {"hasattr('a', 'upper')", "hasattr('a', 'x')"},
	"hash":      {"hash('')", "hash('abc')", "hash(b'abc')", "hash('é')", "hash(raw)", "hash(1)"},
	"int":       {"int('12')", "int(-2.9)", "int('ff', 16)", "int('0b101', 0)", "int('1_0')", "int(1e30)", "int('x')"},
	"len":       {"len('aé')", "len(raw)", "len([1, 2])", "len({1: 2})", "len(range(5))", "len(rep.events)", "len(1)"},
	"list":      {"list()", "list((1, 2))", "list({'a': 1})", "list('ab')", "list('aé'.elems())"},
	"max":       {"max(1, 3, 2)", "max([1, 3], key = lambda x: -x)", "max([])", "max('a', 'b')", "max(1, 1.0)"},
	"min":       {"min(3, 1, 2)", "min(['b', 'a'])", "min(1, 'a')"},
	"ord":       {"ord('é')", "ord(raw)", "ord(b'a')", "ord('ab')"},
	"print":     {"print('x')"},
	"range":     {"list(range(3))", "list(range(5, 0, -2))", "range(1, 4)", "range(0, 1, 0)", "str(range(0, 10, 3))"},
	"repr":      {"repr('a\"é\\n' + raw)", "repr([1, (2,), {}, None, 1.0, b'x'])", "repr(len)", "repr('a'.upper)", "repr(1e21)", "repr(1e-7)"},
	"reversed":  {"reversed([1, 2])", "reversed('ab'.elems())"},
	"set":       {"set([3, 1, 3])", "set([1]) | set([2])", "set([1, 2]) & set([2])", "str(set([2, 1]))", "set([[]])"},
	"sorted":    {"sorted([3, 1, 2])", "sorted(['b', 'A', 'é', 'a'])", "sorted([1, 2], reverse = True)", "sorted(['bb', 'a', 'cc'], key = len)", "sorted([1, 'a'])", "sorted([1, 1.0, True])"},
	"str":       {"str('é')", "str(1.0)", "str(1e100)", "str(-0.0)", "str(1 << 100)", "str([1, 'a', None, True])", "str({'b': 1, 'a': 2})", "str(struct(b = 1, a = 'x'))", "str(b'\\xff')", "str(raw)", "str([raw])", "str(lambda: 1)", "str(PRESENT)", "str(degraded('x'))", "str(depset([1]))"},
	"tuple":     {"tuple()", "tuple([1, 2])"},
	"type":      {"[type(x) for x in [None, True, 1, 1.0, '', b'', [], (), {}, set(), range(1), len, lambda: 1, struct(), PRESENT, depset(), ''.elems(), rep, rep.events, sample(stream = 's', index = 1)]]"},
	"zip":       {"zip([1, 2], ['a', 'b', 'c'])", "zip()"},

	"math.acos": {"stats.round(math.acos(0.5))"}, "math.acosh": {"stats.round(math.acosh(2))"},
	"math.asin": {"stats.round(math.asin(0.5))"}, "math.asinh": {"stats.round(math.asinh(2))"},
	"math.atan": {"stats.round(math.atan(2))"}, "math.atan2": {"stats.round(math.atan2(1, -1))"},
	"math.atanh": {"stats.round(math.atanh(0.5))"}, "math.ceil": {"math.ceil(1.2)", "math.ceil(-1.2)", "math.ceil(float('inf'))"},
	"math.copysign": {"math.copysign(3, -0.0)"}, "math.cos": {"stats.round(math.cos(1))"}, "math.cosh": {"stats.round(math.cosh(1))"},
	"math.degrees": {"stats.round(math.degrees(1))"}, "math.exp": {"stats.round(math.exp(1))"}, "math.fabs": {"math.fabs(-2)"},
	"math.floor": {"math.floor(1.8)", "math.floor(-1.2)"}, "math.gamma": {"stats.round(math.gamma(5.5))"},
	"math.hypot": {"math.hypot(3, 4)"}, "math.log": {"stats.round(math.log(10))", "math.log(8, 2)", "math.log(0)"},
	"math.mod": {"math.mod(5, 3)", "math.mod(-5, 3)"}, "math.pow": {"math.pow(2, 10)", "stats.round(math.pow(2, 0.5))"},
	"math.radians": {"stats.round(math.radians(180))"}, "math.remainder": {"math.remainder(5, 3)"},
	"math.round": {"math.round(2.5)", "math.round(-0.5)"}, "math.sin": {"stats.round(math.sin(1))"},
	"math.sinh": {"stats.round(math.sinh(1))"}, "math.sqrt": {"math.sqrt(2)", "str(math.sqrt(-1))"},
	"math.tan": {"stats.round(math.tan(1))"}, "math.tanh": {"stats.round(math.tanh(1))"},

	"degraded": {"degraded('why').reason", "degraded('why').kind", "degraded('')", "degraded('a') == degraded('a')", "[PRESENT.kind, PRESENT.reason, ABSENT.kind]", "PRESENT < ABSENT"},
	"struct":   {"struct(b = 1, a = [2])", "struct(a = 1) == struct(a = 1)", "struct(a = 1) + struct(b = 2)", "struct(1)"},
	"depset":   {"depset([3, 1, 3], transitive = [depset([2, 1])]).to_list()", "depset([[]])", "depset(transitive = [1])", "depset([1]) == depset([1])"},
	"sample":   {"str(sample(stream = 's', index = 1))", "sample(index = 1)"},

	"json.encode": {"json.encode({'b': [1, 1.0, -0.0, 1e21, None, True], 'a': 'é\\n\\x7f' + raw})", "json.encode(struct(x = (1,)))", "json.encode(set([2, 1]))", "json.encode(len)", "json.encode({1: 2})", "json.encode(rep.events)"},
	"json.decode": {"json.decode('{\"b\": [1, 1.5, null], \"a\": true}')", "json.decode('\"\\\\udc80\"')", "json.decode('1.0')", "type(json.decode('1.0'))", "json.decode('{\"b\": 1, \"a\": 2}').keys()", "str(json.decode('-0.0'))", "json.decode(raw)", "json.decode('{')", "json.decode('{', None)", "json.decode('{', default = 7)", "json.decode('{\"a\":1,\"a\":2}')"},

	"re.search":  {"re.search('b(c)?(d)?', 'abc')", "re.search('x', 'abc')", "re.search('(?i)B', 'abc')", "re.search('(', 'abc')", "re.search('.', raw)", "re.search('^b', 'a\\nb')", "re.search('(?m)^b', 'a\\nb')"},
	"re.match":   {"re.match('a(b)', 'abc')", "re.match('b', 'abc')", "re.match('b|a', 'ab')", "re.match('', '')"},
	"re.findall": {"re.findall('[a-z]', 'a1b2')", "re.findall('([a-z])([0-9])?', 'a1b')", "re.findall('a(.)', 'abac')", "re.findall('x', 'a')", "re.findall('', 'ab')"},
	"re.sub":     {"re.sub('(a)(b)?', '<$1$2>', 'abac')", "re.sub('a', '$$', 'a')", "re.sub('x*', '-', 'abc')", "re.sub('a', 'b', 'x')"},
	"re.split":   {"re.split(',', 'a,b,,c')", "re.split(',', 'a,b,c', 2)", "re.split('x', '')", "re.split('', 'ab')"},
	"re.escape":  {"re.escape('a.b*c[d]')"},

	"stats.wilson":            {"stats.wilson(3, 12)", "stats.wilson(0, 5)", "stats.wilson(5, 5, 0.9)", "stats.wilson(3, 2)", "stats.wilson(0, 0)"},
	"stats.clopper_pearson":   {"stats.clopper_pearson(3, 12)", "stats.clopper_pearson(0, 5)", "stats.clopper_pearson(5, 5, confidence = 0.9)", "stats.clopper_pearson(-1, 2)"},
	"stats.fisher":            {"stats.round(stats.fisher(1, 11, 9, 3))", "stats.round(stats.fisher(0, 6, 6, 0))", "stats.fisher(6, 0, 0, 6) == stats.fisher(0, 6, 6, 0)", "stats.fisher(3, 3, 3, 3)", "stats.fisher(0, 0, 1, 1)", "stats.fisher(-1, 1, 1, 1)"},
	"stats.boschloo":          {"stats.round(stats.boschloo(1, 5, 5, 1))", "stats.round(stats.boschloo(0, 6, 6, 0))", "stats.boschloo(-1, 1, 1, 1)"},
	"stats.newcombe":          {"stats.newcombe(9, 12, 1, 12)", "stats.newcombe(0, 5, 5, 5, 0.9)", "stats.newcombe(1, 0, 1, 1)"},
	"stats.holm":              {"stats.holm([0.04, 0.01, 0.03])", "stats.holm([])", "stats.holm([1, 1])", "stats.holm(['a'])"},
	"stats.e_value":           {"stats.e_value(9, 10)", "stats.e_value(0, 0)", "stats.e_value(3, 2)"},
	"stats.needs_n":           {"stats.needs_n(0.25, 0.75)", "stats.needs_n(0.5, 0.51)", "stats.needs_n(0.1, 0.9, 0.9, 0.01)"},
	"stats.smallest_fisher_p": {"stats.smallest_fisher_p(3)", "stats.smallest_fisher_p(6)"},
	"stats.significant":       {"stats.significant(0.05, 0.05)", "stats.significant(0.049, 0.05)", "stats.significant(1, 0.05)"},
	"stats.round":             {"stats.round(0.12345678)", "stats.round(-0.0000001)", "stats.round(3)"},
	"stats.mean":              {"stats.mean([1, 2, 4])", "stats.mean([])"},
	"stats.median":            {"stats.median([3, 1, 2])", "stats.median([4, 1, 2, 3])", "stats.median([])"},
	"stats.stddev":            {"stats.stddev([1, 2, 3, 4])", "stats.stddev([1])"},

	"stats.needs_equivalent": {"stats.needs_equivalent(0.5, 0.2)", "stats.needs_equivalent(0, 0.2)", "stats.needs_equivalent(0.5, 0.1, 0.9, 0.01)", "stats.needs_equivalent(0.5, 0)", "stats.needs_equivalent('x', 0.2)"},

	"native.facts":       {"native.facts(rep, '', '')", "native.facts(rep, 'SECRET words of the treatment', 'skills/t.md')", "native.facts(text, '', '')", "native.facts(1, '', '')"},
	"native.is_outcome":  {"[native.is_outcome(x) for x in [PRESENT, degraded('x'), 'PRESENT', None, struct(kind = 'PRESENT')]]"},
	"native.is_instance": {"[native.is_instance(x, DefaultInfo) for x in [DefaultInfo(), DefaultInfo, None, struct()]]", "native.is_instance(DefaultInfo(), ScorecardInfo)"},
	"native.codec":       {"[native.codec(f) for f in ['text', 'codex', 'claude', 'gemini', 'pi', 'opencode', 'qwen', 'eval']]", "native.codec('codx')"},
	"native.fingerprint": {"native.fingerprint(lambda: 1)", "native.fingerprint(len)"}, // see TestNative
	"native.reported":    {`native.reported('{"usd":0.25,"input":3,"output":1.5,"reasoning":-1,"x":1}')`, "native.reported('no JSON')", `native.reported('{"usd":-1}')`, "native.reported('[]')", `native.reported('{"usd":null,"input":null}')`, `native.reported('{"usd":1e308,"USD":7}')`},
	"native.digest":      {"native.digest('')", "native.digest('é' + raw)"},

	// They fail inside of actions, which is what they do there.
	"rule": {"rule(implementation = lambda ctx: None)"}, "provider": {"provider()"}, "glob": {"glob([])"}, "config.string": {"config.string('x')"},
}

const goldenLog = `{"type":"thread.started","thread_id":"t"}
{"type":"item.completed","item":{"id":"0","type":"command_execution","command":"cat skills/t.md","aggregated_output":"SECRET words of the treatment","exit_code":0,"status":"completed"}}
{"type":"item.completed","item":{"id":"1","type":"agent_message","text":"done"}}
{"type":"turn.completed","usage":{"input_tokens":10,"cached_input_tokens":4,"output_tokens":3}}
`

// goldenOutput calls a builtin as an action would.
func goldenOutput(t *testing.T, expr string) string {
	t.Helper()
	codex, _ := transcript.Lookup("codex")
	text, _ := transcript.Lookup("text")
	env := maps.Clone(base())
	env["native"], env["glob"] = native, globBuiltin
	env["raw"] = sl.String("\xff") // which no literal gives
	env["rep"], env["text"] = newRep(codex, blobOf([]byte(goldenLog))), newRep(text, blobOf([]byte("plain")))
	v, err := sl.EvalOptions(dialect, &sl.Thread{Print: func(*sl.Thread, string) {}}, "golden.star", expr, env)
	if err != nil {
		return "error: " + strings.ReplaceAll(err.Error(), "\n", " ")
	}
	b, err := AppendJSON(nil, v)
	if err != nil {
		return v.Type() + " " + string(appendString(nil, v.String()))
	}
	return string(b)
}

type goldenKey struct{ id, expr string }

func readGolden(t *testing.T) map[goldenKey]string {
	t.Helper()
	data, err := os.ReadFile(goldenFile)
	if err != nil && !*update {
		t.Fatal(err)
	}
	out := map[goldenKey]string{}
	for line := range strings.Lines(string(data)) {
		f := strings.SplitN(strings.TrimSuffix(line, "\n"), "\t", 3)
		if len(f) != 3 {
			t.Fatalf("%s: %q", goldenFile, line)
		}
		out[goldenKey{f[0], f[1]}] = f[2]
	}
	return out
}

func TestBuiltinGolden(t *testing.T) {
	base()
	old, now := readGolden(t), map[goldenKey]string{}
	named := map[string]bool{}
	for _, id := range builtinIDs {
		id = strings.TrimSuffix(id, "/"+runtime.GOARCH) // see exactMath
		name, _, _ := strings.Cut(id, "@")
		named[name] = true
		calls := builtinCalls[name]
		if len(calls) == 0 {
			t.Errorf("%s has no call in builtinCalls", id)
		}
		short := name[strings.LastIndexByte(name, '.')+1:]
		for _, expr := range calls {
			if !strings.Contains(expr, short) && !strings.Contains(expr, "PRESENT") {
				t.Errorf("%s: %s does not call it", id, expr)
			}
			k := goldenKey{id, expr}
			now[k] = goldenOutput(t, expr)
			if was, ok := old[k]; ok && was != now[k] {
				t.Errorf("%s changed: %s\n was %s\n now %s\nraise its version in the same commit (-update writes new versions only)", id, expr, was, now[k])
				now[k] = was
			} else if !ok && !*update {
				t.Errorf("%s: %s is not in %s: run go test ./starlark -run TestBuiltinGolden -update", id, expr, goldenFile)
			}
		}
	}
	for name := range builtinCalls {
		if !named[name] {
			t.Errorf("builtinCalls has %s, which is registered nowhere", name)
		}
	}
	for k := range old {
		if _, ok := now[k]; !ok && !*update {
			t.Errorf("%s %s is in %s and is no call: -update takes it out", k.id, k.expr, goldenFile)
		}
	}
	if !*update {
		return
	}
	lines := make([]string, 0, len(now))
	for k, v := range now {
		lines = append(lines, k.id+"\t"+k.expr+"\t"+v+"\n")
	}
	slices.Sort(lines)
	if err := os.WriteFile(goldenFile, []byte(strings.Join(lines, "")), 0o644); err != nil {
		t.Fatal(err)
	}
}
