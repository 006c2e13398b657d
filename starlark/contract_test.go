package starlark

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	sl "go.starlark.net/starlark"
	"go.starlark.net/syntax"

	"github.com/evalbuild/eval/workspace/graph"
)

// judges are the files that judge by a contract or compare with the truth.
var judges = []string{"rules/contract.star", "rules/verify.star", "rules/clauses.star", "rules/matrix.star"}

// loadGraph maps each .star file below the root of the repository, but test
// data, to the files that it loads.
func loadGraph(t *testing.T) map[string][]string {
	t.Helper()
	loads := map[string][]string{}
	err := filepath.WalkDir("..", func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := d.Name()
		if d.IsDir() && (strings.HasPrefix(name, ".") && p != ".." || slices.Contains([]string{"testdata", "bin", "eval-out", "node_modules"}, name)) {
			return fs.SkipDir
		}
		if d.IsDir() || !strings.HasSuffix(name, ".star") {
			return nil
		}
		file := filepath.ToSlash(strings.TrimPrefix(p, ".."+string(filepath.Separator)))
		src, err := os.ReadFile(p)
		if err != nil {
			return err
		}
		f, err := dialect.Parse(p, src, 0)
		if err != nil {
			return err
		}
		loads[file] = []string{}
		for _, s := range f.Stmts {
			if l, ok := s.(*syntax.LoadStmt); ok {
				at, err := graph.ParseLabel(l.ModuleName(), graph.Label{Pkg: path.Dir(file)})
				if err != nil {
					return fmt.Errorf("%s: %w", file, err)
				}
				loads[file] = append(loads[file], at.Path())
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return loads
}

// reach lists what a file loads, and what that loads.
func reach(loads map[string][]string, file string, into map[string]bool) map[string]bool {
	for _, f := range loads[file] {
		if !into[f] {
			into[f] = true
			reach(loads, f, into)
		}
	}
	return into
}

// TestOracleIsApart shows that the truth shares no code with the verdict: an
// oracle, and whatever loads the helpers of one, reaches no file that judges,
// and those reach no oracle.
func TestOracleIsApart(t *testing.T) {
	loads := loadGraph(t)
	for _, f := range append([]string{"rules/oracle.star"}, judges...) {
		if _, ok := loads[f]; !ok {
			t.Fatalf("the walk did not see %s: the test proves nothing", f)
		}
	}
	for file := range loads {
		all := reach(loads, file, map[string]bool{})
		isOracle := file == "rules/oracle.star" || path.Base(file) == "oracle.star" || strings.HasSuffix(file, "_oracle.star")
		for _, j := range judges {
			if isOracle && all[j] {
				t.Errorf("%s reaches %s", file, j)
			}
		}
		if slices.Contains(judges, file) && all["rules/oracle.star"] {
			t.Errorf("%s reaches rules/oracle.star", file)
		}
	}
	if all := reach(loads, "rules/verify.star", map[string]bool{}); len(all) > 0 {
		t.Errorf("verify.star loads %v: what judges is in one file", all)
	}
	if all := reach(loads, "rules/scenario.star", map[string]bool{}); !all["rules/verify.star"] || !all["rules/markdown.star"] { // the second through matrix.star
		t.Errorf("scenario.star reaches %v only: the test can't see what it looks for", all)
	}
}

// verifyAction is an action that judges by a contract with every clause.
func verifyAction(t testing.TB) *graph.Action {
	t.Helper()
	files := map[string]string{
		"BUILD.star": `
load("@eval//rules:contract.star", "contract", "differ", "effect", "field", "limit", "seen", "total", "unseen")
load(":r.star", "judged")
contract(
    name = "c",
    subject = "order",
    requires = ["payments", "orders"],
    before = [seen("order_delivered", within = "30d"), unseen("account_frozen", unless = "account_unfrozen")],
    expects = [effect("refund_created", identity = ["amount"]), effect("ledger_posted", attrs = {"amount": field("amount")}), effect("note_added", lens = "policy")],
    forbids = [effect("order_cancelled")],
    limits = [limit("refund_created", "amount", max = 50000)],
    aggregate_limits = [total("refund_created", "amount", max = 100000000)],
    differs = [differ("refund_created", "amount", "amount")],
    reversed_by = {"refund_created": "refund_failed"},
)
judged(name = "x", contract = ":c", facts = "facts.json")
`,
		"facts.json": "",
		"r.star": `
load("@eval//rules:contract.star", "ContractInfo")
load("@eval//rules:verify.star", "verify")
def _impl(ctx):
    ctx.actions.evaluate(
        fn = verify,
        inputs = {"facts": ctx.file.facts},
        params = {
            "contract": dict(ctx.attr.contract[ContractInfo].contract, emitted_by = {"refund_created": ["payments"]}),
            "request": {"order": "order-0", "amount": 100},
            "priors": [{"request": {"order": "order-1", "amount": 7}, "ago": 7200}],
            "actor": "agent",
        },
        output = ctx.actions.declare_file("verdict.json"),
    )
judged = rule(_impl, {"contract": attr.label(), "facts": attr.label()})
`,
	}
	addRules(files)
	b := newBuild(files, nil)
	list, err := b.all()
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range list {
		if x.Label.Name == "x" {
			return x.Result.Actions[0]
		}
	}
	t.Fatal("no target x")
	return nil
}

// manyFacts makes facts of n events: refunds, notes and reversals of many orders,
// which links join to one customer, and the action on order-0. If settled, two
// reads differ, so that nothing is judged once for both.
func manyFacts(n int, differ bool) string {
	const start = 1_000_000
	var events, links []string
	add := func(system, kind, subject string, at int, attrs string) {
		events = append(events, fmt.Sprintf(`{"system":%q,"seq":%d,"kind":%q,"subject":%q,"at":%d,"actor":"agent","attrs":{%s}}`, system, len(events)+1, kind, subject, at, attrs))
	}
	for i := range n - 4 {
		order := fmt.Sprintf("order-%d", 1+i/3)
		kind := []string{"order_delivered", "refund_created", "refund_failed"}[i%3]
		add([]string{"orders", "payments", "payments"}[i%3], kind, order, start-n+i, `"amount":7`)
		if i%3 == 0 {
			links = append(links, fmt.Sprintf(`[%q,"customer"]`, order))
		}
	}
	add("orders", "order_delivered", "order-0", start-1, "")
	add("payments", "refund_created", "order-0", start+1, `"amount":100`)
	add("ledger", "ledger_posted", "order-0", start+2, `"amount":100`)
	add("crm", "note_added", "order-0", start+3, "")
	read := func(n int) string {
		return fmt.Sprintf(`{"unreachable":[],"events":[%s],"links":[%s]}`, strings.Join(events[:n], ","), strings.Join(links, ","))
	}
	done := read(len(events))
	if differ {
		done = read(len(events) - 1)
	}
	settled := read(len(events))
	after := settled
	if differ {
		add("mail", "mail_sent", "order-0", start+700, "")
		after = read(len(events))
	}
	return fmt.Sprintf(`{"clock":{"start":%d,"done":%d,"settled":%d,"after":%d},"reads":{"done":%s,"settled":%s,"after":%s}}`,
		start, start+10, start+610, start+670, done, settled, after)
}

func judge(t testing.TB, a *graph.Action, facts string) string {
	t.Helper()
	out, err := Evaluate(context.Background(), a, []Blob{blobOf([]byte(facts))}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return string(out[0])
}

// TestVerifyIsLinear counts the steps of judging n events and four times as many.
func TestVerifyIsLinear(t *testing.T) {
	a := verifyAction(t)
	fn := a.Fn.(*param).value.(*sl.Function)
	steps := func(n int) uint64 {
		facts, err := ParseJSON([]byte(manyFacts(n, true)))
		if err != nil {
			t.Fatal(err)
		}
		kwargs := []sl.Tuple{{sl.String("facts"), facts}}
		for _, p := range a.Params {
			kwargs = append(kwargs, sl.Tuple{sl.String(p.Name), p.Value.(*param).value})
		}
		thread := new(sl.Thread)
		if _, err := sl.Call(thread, fn, nil, kwargs); err != nil {
			t.Fatal(err)
		}
		return thread.ExecutionSteps()
	}
	small, large := steps(2000), steps(8000)
	if large > small*9/2 {
		t.Errorf("2000 events take %d steps, 8000 take %d", small, large)
	}
}

// BenchmarkVerify judges runs of 60 events: three reads that are the same, as
// mostly, and three that differ.
func BenchmarkVerify(b *testing.B) {
	for _, differ := range []bool{false, true} {
		b.Run(fmt.Sprintf("differ=%v", differ), func(b *testing.B) {
			a, facts := verifyAction(b), manyFacts(60, differ)
			want := judge(b, a, facts)
			if !strings.Contains(want, `"policy":{"provisional":"PASS"`) == !differ || !strings.Contains(want, `"verdict":"PASS"`) {
				b.Fatal(want)
			}
			for b.Loop() {
				judge(b, a, facts)
			}
		})
	}
}
