package starlark

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// ledgerCards are scorecards of all shapes that a ledger meets, by target.
var ledgerCards = []struct{ name, card string }{
	{"whole", `{"behavior":"asks first","conclusion":"increased","strength":"significant","verdict":"BEHAVIORAL",
		"arms":{"control":{"present":2,"usable":12,"drawn":12},"treatment":{"present":9,"usable":11,"drawn":12}},
		"p_value":0.003329,"p_status":"valid","e_value":null,"looks":1,"withdrawn":[],"prior_draws":[],
		"eligibility":{"eligible":true,"reasons":[]}}`},
	{"looked", `{"behavior":"asks first","conclusion":"undetermined","strength":"fragile","verdict":"REGRESSIVE",
		"arms":{"control":{"present":2,"usable":12,"drawn":14,"used":12},"treatment":{"present":0,"usable":0,"drawn":12,"used":12}},
		"p_value":null,"p_status":"invalid-after-looks","e_value":24.5,"looks":3,"withdrawn":[{"epoch":1},{"epoch":2}],"prior_draws":[{}],
		"eligibility":{"eligible":false,"reasons":["fragile","withdrawn"]}}`},
	{"tiny", `{"conclusion":"decreased","p_value":0,"prior_draws":null,"eligibility":{"eligible":false,"reasons":[]}}`},
	{"bare", `{}`},
	{"hostile", `{"behavior":"a|b \\| c ` + "`d` ``" + `\n\n# e\r\n\u001b[31m<b>\u202e*f* _g_ [h](i) \\\ud83d\ude00 &amp; ~j~ $k$\udcff","conclusion":"x\ty","verdict":" | ",
		"eligibility":{"eligible":false,"reasons":["discriminator: |\n|"]}}`},
	{"pi|pe", `{"conclusion":"a\\|b"}`},
	{"tick`s", `{}`},
	{"tick`s``", `{"conclusion":"unmeasured"}`},
}

// ledgerOf builds a ledger over the cards, named in the order given, beside a
// LEDGER.md unless that is "".
func ledgerOf(t *testing.T, backwards bool, current string) (text string, scorecard map[string]any) {
	t.Helper()
	files := map[string]string{
		"p/r.star": `
def _card(ctx):
    out = ctx.actions.declare_file("scorecard.json")
    ctx.actions.write(out, ctx.attr.card)
    return ScorecardInfo(file = out)

card = rule(_card, {"card": attr.string()})
`,
	}
	addRules(files)
	build := "load('@eval//rules:coverage.star', 'ledger')\nload(':r.star', 'card')\n"
	var labels []string
	for _, c := range ledgerCards {
		build += "card(name = " + quoted(c.name) + ", card = " + quoted(c.card) + ")\n"
		if backwards {
			labels = append([]string{quoted(":" + c.name)}, labels...)
		} else {
			labels = append(labels, quoted(":"+c.name))
		}
	}
	files["p/BUILD.star"] = build + "ledger(name = 'l', probes = [" + strings.Join(labels, ", ") + "], title = 'What *we* | know')\n"
	if current != "" {
		files["p/LEDGER.md"] = current
	}
	b, targets := mustAnalyze(t, files)
	out, err := b.content(output(targets["//p:l"], "LEDGER.md"))
	if err != nil {
		t.Fatal(err)
	}
	card, err := b.content(output(targets["//p:l"], "scorecard.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(card, &scorecard); err != nil {
		t.Fatal(err)
	}
	return string(out), scorecard
}

// quoted is s as a Starlark literal.
func quoted(s string) string { return string(appendString(nil, s)) }

// TestLedgerGolden holds the Markdown: what scorecards say stays in its cell.
func TestLedgerGolden(t *testing.T) {
	const golden = "testdata/ledger.md"
	text, _ := ledgerOf(t, false, "")
	if *update {
		if err := os.WriteFile(golden, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), text); diff != "" {
		t.Errorf("%s (-want +got):\n%s", golden, diff)
	}
	if again, _ := ledgerOf(t, true, "old"); again != text {
		t.Error("the order of probes, or what the file was, changes the text")
	}
	rows := 0
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "|") {
			continue
		}
		rows++
		// An escaped pipe ends no cell, whatever stands before its backslash.
		if n := strings.Count(line, "|") - strings.Count(line, `\|`); n != 12 {
			t.Errorf("%d cells and not 11: %s", n-1, line)
		}
	}
	if rows != len(ledgerCards)+2 {
		t.Errorf("%d lines of a table for %d rows", rows, len(ledgerCards))
	}
}

// TestLedgerStale: only the very bytes are current.
func TestLedgerStale(t *testing.T) {
	text, _ := ledgerOf(t, false, "")
	for _, c := range []struct {
		what, current, conclusion, hint string
	}{
		{"absent", "", "stale", "LEDGER.md does not exist; `ev ledger //p:l` writes it"},
		{"equal", text, "current", ""},
		{"a line more", text + "\n", "stale", "LEDGER.md is not what the scorecards say; `ev ledger //p:l` writes it"},
		{"not UTF-8", "\xff", "stale", "LEDGER.md is not what the scorecards say; `ev ledger //p:l` writes it"},
	} {
		_, card := ledgerOf(t, false, c.current)
		hint, _ := card["hint"].(string)
		if card["conclusion"] != c.conclusion || card["expect_met"] != (c.conclusion == "current") || card["expect"] != "current" || hint != c.hint {
			t.Errorf("%s: %v", c.what, card)
		}
		if card["schema"] != "eval.ledger/1" || card["kind"] != "ledger" || card["file"] != "LEDGER.md" || card["target"] != "//p:l" {
			t.Errorf("%s: %v", c.what, card)
		}
	}
}
