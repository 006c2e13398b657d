package main

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/evalbuild/eval/workspace/engine"
	"github.com/evalbuild/eval/workspace/graph"
)

func TestNewCoverage(t *testing.T) {
	d := &denominator{
		Items:    []string{"alike", "differs", "excluded", "ineligible", "lower", "nothing", "open"},
		Excluded: map[string]string{"excluded": "why"}, M: 6,
	}
	c := newCoverage(d, []measurement{
		{label: "1", items: []string{"alike"}, conclusion: "equivalent", eligible: true},
		{label: "2", items: []string{"differs"}, conclusion: "undetermined", eligible: true},
		{label: "3", items: []string{"differs", "elsewhere"}, conclusion: "increased", eligible: true},
		{label: "4", items: []string{"differs"}, conclusion: "increased"},
		{label: "5", items: []string{"excluded"}, conclusion: "increased", eligible: true},
		{label: "6", items: []string{"ineligible", "open"}, conclusion: "decreased"},
		{label: "7", items: []string{"lower"}, conclusion: "decreased", eligible: true},
		{label: "8", items: []string{"open"}, conclusion: "undetermined", eligible: true},
		{label: "9", items: []string{"elsewhere"}, conclusion: "increased", eligible: true},
		{label: "10"},
	})
	if got, want := [3]int{c.measured, c.concluded, c.none}, [3]int{4, 3, 2}; got != want {
		t.Errorf("measured, concluded, none: %v, want %v", got, want)
	}
	got := map[string][]string{}
	for item, list := range c.of {
		for _, m := range list {
			got[item] = append(got[item], m.label)
		}
	}
	want := map[string][]string{"alike": {"1"}, "differs": {"2", "3", "4"}, "excluded": {"5"}, "ineligible": {"6"}, "lower": {"7"}, "open": {"6", "8"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestDrawers(t *testing.T) {
	action := func(name string, s *graph.Sample) engine.StaleAction {
		return engine.StaleAction{Action: &graph.Action{Owner: graph.Label{Name: name}, Sample: s}}
	}
	got := drawers([]engine.StaleAction{
		action("scored", nil), action("drawn", nil), action("drawn", &graph.Sample{Stream: "control", Index: 1}), action("drawn", nil),
	})
	if diff := cmp.Diff(map[graph.Label]bool{{Name: "drawn"}: true}, got); diff != "" {
		t.Error(diff)
	}
}
