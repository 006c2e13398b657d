package world

import (
	"fmt"
	"strconv"
	"time"

	sl "go.starlark.net/starlark"

	"github.com/evalbuild/eval/starlark"
)

// emit appends an event. actor, if given, is the event's own and no attribute.
func (t *transaction) emit(_ *sl.Thread, b *sl.Builtin, args sl.Tuple, kwargs []sl.Tuple) (sl.Value, error) {
	if t.ended {
		return nil, fmt.Errorf("emit: the operation has ended")
	}
	texts := map[string]string{"actor": t.actor}
	if len(args) > 1 {
		return nil, fmt.Errorf("emit: the kind is meant, and attributes by name")
	}
	if len(args) == 1 {
		kwargs = append([]sl.Tuple{{sl.String("kind"), args[0]}}, kwargs...)
	}
	attrs := sl.NewDict(len(kwargs))
	for _, kv := range kwargs {
		name := string(kv[0].(sl.String))
		if name != "kind" && name != "subject" && name != "actor" && (name != "ago" || !t.seed) {
			if err := attrs.SetKey(kv[0], kv[1]); err != nil {
				return nil, err
			}
			continue
		}
		s, ok := sl.AsString(kv[1])
		if !ok || s == "" {
			return nil, fmt.Errorf("emit: %s is a string that isn't empty, not %s", name, kv[1])
		}
		if _, twice := texts[name]; twice && name != "actor" {
			return nil, fmt.Errorf("emit: %s is given twice", name)
		}
		texts[name] = s
	}
	for _, name := range []string{"kind", "subject"} {
		if texts[name] == "" {
			return nil, fmt.Errorf("emit: %s is missing", name)
		}
	}
	at := t.at
	if t.seed {
		// What a seed tells was there before: at the start itself it would count as
		// something that the agent's run did.
		ago, err := parseAgo(texts["ago"], tick)
		if err != nil {
			return nil, err
		}
		at -= ago
	}
	text, err := starlark.AppendJSON(nil, attrs)
	if err != nil {
		return nil, fmt.Errorf("emit %s: %w", texts["kind"], err)
	}
	t.wrote = true
	_, err = t.db.run(`INSERT INTO "#events" SELECT ?1, coalesce(max(seq), 0) + 1, ?2, ?3, ?4, ?5, ?6 FROM "#events" WHERE system = ?1`,
		t.db.system.Name, texts["kind"], texts["subject"], at, texts["actor"], string(text))
	if err != nil {
		return nil, err
	}
	return sl.None, t.took(texts["kind"], texts["subject"], texts["actor"], string(text))
}

var units = map[byte]time.Duration{'d': 24 * time.Hour, 'h': time.Hour, 'm': time.Minute, 's': time.Second}

// parseAgo reads a duration such as 2d, in seconds; dflt if there is none.
func parseAgo(s string, dflt int64) (int64, error) {
	if s == "" {
		return dflt, nil
	}
	n, err := strconv.ParseInt(s[:len(s)-1], 10, 32)
	unit := int64(units[s[len(s)-1]] / time.Second)
	if err != nil || unit == 0 || n < 1 || n > maxSpan/unit {
		return 0, fmt.Errorf(`emit: ago = %q: a duration such as "2d", "3h", "10m" or "5s" is meant, at least "1s"`, s)
	}
	return n * unit, nil
}
