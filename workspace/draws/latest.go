package draws

import (
	"slices"

	"github.com/evalbuild/eval/workspace/graph"
)

// Latest is how far a label has gone: neither epochs nor redraws are lowered.
type Latest struct {
	epochs  map[string]int // by stream
	redraws map[graph.Sample]int
	blocks  map[string][]string // by stream
}

// Latest looks at all lines of a label's reps.
func (l *Lock) Latest(label graph.Label) Latest {
	at := Latest{map[string]int{}, map[graph.Sample]int{}, map[string][]string{}}
	for _, x := range slices.Backward(l.view().lines) {
		if x.Label != label || x.Kind == Look {
			continue
		}
		s := x.Sample
		if x.captured() && !slices.Contains(at.blocks[s.Stream], s.Block) {
			at.blocks[s.Stream] = append(at.blocks[s.Stream], s.Block)
		}
		at.epochs[s.Stream] = max(at.epochs[s.Stream], s.Epoch)
		s.Redraw = 0
		at.redraws[s] = max(at.redraws[s], x.Sample.Redraw)
	}
	return at
}

// Epoch is the highest of a stream.
func (at Latest) Epoch(stream string) int { return at.epochs[stream] }

// Redraw is the highest of a rep in its block and epoch.
func (at Latest) Redraw(s graph.Sample) int {
	s.Redraw = 0
	return at.redraws[s]
}

// Blocks are those in which a stream was drawn, the latest first.
func (at Latest) Blocks(stream string) []string { return at.blocks[stream] }
