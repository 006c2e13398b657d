package graph

import (
	"strings"
	"unicode/utf8"
)

// DidYouMean gives ` (did you mean "x"?)` for the candidate that is closest to
// s, or "" if none is close.
func DidYouMean(s string, candidates []string) string {
	if c := nearest(s, candidates); c != "" {
		return ` (did you mean "` + c + `"?)`
	}
	return ""
}

// nearest gives the candidate with the fewest edits to s, case apart; at most
// one edit for three characters, beyond which suggestions were noise. Ties go
// to the first.
func nearest(s string, candidates []string) string {
	best, limit := "", max(1, utf8.RuneCountInString(s)/3)
	low := []rune(strings.ToLower(s))
	for _, c := range candidates {
		if c == s || !utf8.ValidString(c) {
			continue
		}
		if d := edits(low, []rune(strings.ToLower(c)), limit); d <= limit {
			best, limit = c, d-1
		}
		if limit < 0 {
			break
		}
	}
	return best
}

// edits is the Levenshtein distance of a and b where a swap of neighbours
// counts one; more than limit is told as limit+1.
func edits(a, b []rune, limit int) int {
	if abs(len(a)-len(b)) > limit {
		return limit + 1
	}
	// Three rows of the table: before the last, last, this.
	rows := make([]int, 3*(len(b)+1))
	older, last, row := rows[:len(b)+1], rows[len(b)+1:2*(len(b)+1)], rows[2*(len(b)+1):]
	for j := range last {
		last[j] = j
	}
	for i := range a {
		row[0] = i + 1
		for j := range b {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			row[j+1] = min(last[j]+cost, last[j+1]+1, row[j]+1)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], older[j-1]+1)
			}
		}
		older, last, row = last, row, older
	}
	return min(last[len(b)], limit+1)
}

func abs(n int) int {
	if n < 0 {
		return -n
	}
	return n
}
