package engine

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/evalbuild/eval/workspace/graph"
)

// A Consent is what a build may draw. The zero value lets it draw nothing.
type Consent struct {
	Draws  int     // at most; AnyDraws: as many as are missing
	Budget float64 // US dollars; 0: no budget
	// Unpriced: under a budget, reps whose price isn't known are drawn too.
	Unpriced bool
}

// AnyDraws is no limit.
const AnyDraws = math.MaxInt

// A DeniedError says that a rep is missing and may not be drawn.
type DeniedError struct {
	Key    graph.Key
	Rep    string // treatment-3
	Why    string // it is missing
	Budget bool   // the budget is spent, or doesn't let it be drawn
	Cause  string
	// Unlocked is why it could not be drawn anyway, or nil.
	Unlocked *UnlockedError
}

func (e *DeniedError) Error() string {
	return fmt.Sprintf("%s would be drawn (%s), and %s", e.Rep, e.Why, e.Cause)
}

// A Cost is a sum of what reps reported. Unknown of them reported nothing: USD
// is a lower bound.
type Cost struct {
	USD     float64
	Unknown int
}

func (c *Cost) add(n *node) {
	if usd := n.usd(); usd != nil {
		c.USD += *usd
	} else {
		c.Unknown++
	}
}

// usd is what the node's draw cost: as it reported, else what was declared.
func (n *node) usd() *float64 {
	switch {
	case n.draw == nil:
		return nil
	case n.draw.usd != nil:
		return n.draw.usd
	}
	return n.action.Terms.USD
}

// spending is what a build has drawn and what that costs.
type spending struct {
	draws   int
	spent   float64
	running map[*node]bool          // draws, with what is reserved for each
	most    map[graph.Label]float64 // that a rep of a target has cost
	// asked are targets of unknown price of which a rep was begun under a budget:
	// until it has told what it cost, or hasn't, the others wait.
	asked map[graph.Label]*node
}

// settle takes a draw's reservation back for what it really cost. One that did
// not say is taken to have cost what was expected.
func (s *spending) settle(n *node, out outcome) {
	d := n.draw
	delete(s.running, n)
	if s.asked[n.action.Owner] == n {
		s.asked[n.action.Owner] = nil
	}
	switch usd := n.usd(); {
	case out.hit || len(out.damaged) > 0: // found after all, or not begun
		s.draws--
	case usd != nil:
		s.spent += *usd
	default:
		s.spent += d.reserve
	}
	d.reserve = 0
}

// reserved is what the running draws may cost: each what was expected of it, or
// more if another of its target has cost more since.
func (s *spending) reserved() (usd float64) {
	for n := range s.running {
		usd += max(n.draw.reserve, s.most[n.action.Owner])
	}
	return usd
}

// saw notes what a rep that was had has cost.
func (s *spending) saw(n *node) {
	usd := n.usd()
	if usd == nil {
		return
	}
	if s.most == nil {
		s.most = map[graph.Label]float64{}
	}
	s.most[n.action.Owner] = max(s.most[n.action.Owner], *usd)
}

// expect is what a rep will cost at most, as far as is known: what is declared, or
// if it is more the most that another of its target has cost.
func (b *build) expect(n *node) (usd float64, known bool) {
	usd, known = b.spending.most[n.action.Owner]
	if p := n.action.Terms.USD; p != nil { // which it may have overdrawn
		return max(*p, usd), true
	}
	return usd, known
}

// dispatchDraws decides about the draws that are wanted, when there is nothing
// left to check: all that are known to be missing are known by then, and are
// started in the order of the schedule. It returns those to run now; some may
// stay wanted, until a running one tells what it cost.
func (b *build) dispatchDraws() (run []*node) {
	wanted := b.wanted
	b.wanted = nil
	b.schedule(wanted)
	for i, n := range wanted {
		if b.unscorable[n.action.Owner] {
			n.begin()
			b.transition(n, skipped)
			b.end(n, outcome{})
			continue
		}
		if n.draw.unlocked != nil && b.o.Consent.Draws > 0 {
			n.begin()
			b.fail(n, outcome{node: n, err: n.draw.unlocked})
			continue
		}
		if b.byKey[n.key] == nil {
			wait, denied := b.mayDraw(n)
			if wait {
				b.wanted = wanted[i:]
				break
			}
			if denied != nil {
				denied.Key, denied.Rep, denied.Why, denied.Unlocked = n.key, repName(n.action.Sample), n.why, n.draw.unlocked
				n.begin()
				b.fail(n, outcome{node: n, err: denied})
				continue
			}
		} else {
			n.begin() // its twin does: the other of its pair need not wait
		}
		if n = b.start(n); n != nil {
			run = append(run, n)
		}
	}
	if len(run) > 0 {
		for _, n := range wanted { // also what waits for a twin: before anyone sees a reply
			b.bind(n) // whoever draws gets the error
		}
	}
	return run
}

// mayDraw reserves what a draw may cost. wait says that it depends on what
// those that run will have cost.
func (b *build) mayDraw(n *node) (wait bool, _ *DeniedError) {
	c, s := b.o.Consent, &b.spending
	if s.draws >= c.Draws {
		if c.Draws == 0 {
			return false, &DeniedError{Cause: "nothing may be drawn here"}
		}
		return len(s.running) > 0, &DeniedError{Cause: fmt.Sprintf("%d is the most that may be drawn", c.Draws)}
	}
	usd, known := b.expect(n)
	if c.Budget > 0 {
		switch {
		case len(s.running) >= b.o.Jobs: // those that run may tell that they cost more
			return true, nil
		case !known && !c.Unpriced:
			return false, &DeniedError{Budget: true, Cause: "its price isn't known, and there is a budget"}
		case !known && s.asked[n.action.Owner] != nil:
			return true, nil
		case s.spent+s.reserved()+usd > c.Budget && len(s.running) > 0:
			return true, nil
		case s.spent+usd > c.Budget:
			return false, &DeniedError{Budget: true, Cause: fmt.Sprintf("the budget of $%.2f is reached: $%.4g spent, $%.4g expected for the next", c.Budget, s.spent, usd)}
		}
	}
	if _, asked := s.asked[n.action.Owner]; c.Budget > 0 && !known && !asked {
		if s.asked == nil {
			s.asked = map[graph.Label]*node{}
		}
		s.asked[n.action.Owner] = n
	}
	s.draws++
	if s.running == nil {
		s.running = map[*node]bool{}
	}
	s.running[n], n.draw.reserve = true, usd
	return false, nil
}

// schedule sorts draws by target and pair, and within a pair by who is first:
// in odd pairs the first stream of the block, in even pairs the last. Each waits
// for the one before it to begin.
func (b *build) schedule(wanted []*node) {
	rank := func(n *node) int {
		if n.action.Block == nil {
			return 0
		}
		arms := n.action.Block.Arms
		i := slices.IndexFunc(arms, func(a *graph.Action) bool { return a.Sample.Stream == n.action.Sample.Stream })
		if n.action.Sample.Index%2 == 0 {
			i = len(arms) - i
		}
		return i
	}
	slices.SortStableFunc(wanted, func(x, y *node) int {
		return cmp.Or(
			x.action.Owner.Compare(y.action.Owner),
			cmp.Compare(x.action.Sample.Index, y.action.Sample.Index),
			cmp.Compare(rank(x), rank(y)),
			strings.Compare(x.action.Sample.Stream, y.action.Sample.Stream),
		)
	})
	for i, n := range wanted[min(1, len(wanted)):] {
		before := wanted[i]
		if before.action.Owner == n.action.Owner && before.action.Sample.Index == n.action.Sample.Index {
			n.draw.after = before.draw
		}
	}
}

func repName(s *graph.Sample) string { return fmt.Sprintf("%s-%d", s.Stream, s.Index) }

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}
