package draws

import (
	"github.com/evalbuild/eval/workspace/graph"
)

// Part gives the lines that say something of a label or of the identities of its
// reps, as a file of their own: an Account of these reps from it is the one from
// the whole lock. Lines of the labels that the reps had before a rename are in it.
func (l *Lock) Part(label graph.Label, reps []ID) ([]byte, error) {
	v := l.view()
	labels := map[graph.Label]bool{label: true}
	for _, id := range reps {
		if s := v.state(id); s != nil {
			for _, h := range s.held {
				labels[h.Label] = true
			}
		}
	}
	var out []byte
	for _, x := range v.lines {
		if !labels[x.Label] {
			continue
		}
		b, err := encode(x)
		if err != nil {
			return nil, err
		}
		out = append(out, b...)
	}
	return out, nil
}
