package draws

import "maps"

// layers is a map of which many versions live: a version has what is new in a
// small map of its own and shares the rest with those before it. A run appends
// thousands of times, and cloning whole maps each time made that quadratic.
type layers[K comparable, V any] struct{ old, new map[K]V }

// maxNew is how large the map of a version's own gets, before the two become
// one that is shared.
const maxNew = 256

func (l layers[K, V]) get(k K) (V, bool) {
	v, ok := l.new[k]
	if !ok {
		v, ok = l.old[k]
	}
	return v, ok
}

// set changes this version; a version that shares its map must be extended first.
func (l *layers[K, V]) set(k K, v V) {
	if l.new == nil {
		l.new = map[K]V{}
	}
	l.new[k] = v
}

// extended gives a version that can be changed and leaves this one as it is.
func (l layers[K, V]) extended() layers[K, V] {
	if len(l.new) <= maxNew {
		return layers[K, V]{l.old, maps.Clone(l.new)}
	}
	all := make(map[K]V, len(l.old)+2*len(l.new))
	maps.Copy(all, l.old)
	maps.Copy(all, l.new)
	return layers[K, V]{old: all}
}
