package startup

import (
	"slices"
	"strings"
)

// CycleError reports containers that wait for one another.
type CycleError struct{ Path []string }

func (e *CycleError) Error() string { return "start-up cycle: " + strings.Join(e.Path, " -> ") }

// StartOrder returns the names of the containers so that each comes after those
// it waits for. Among those that could come next it takes the pod's order. An
// edge to a container that the pod does not have is passed over.
//
// It returns a *CycleError if containers wait for one another.
func (p Plan) StartOrder() ([]string, error) {
	q := p.Expand()
	waitsFor := map[string][]string{}
	for _, e := range q.Edges {
		if _, i := q.Find(e.From); i >= 0 {
			waitsFor[e.To] = append(waitsFor[e.To], e.From)
		}
	}
	var order []string
	left := slices.Clone(q.Containers)
	for len(left) > 0 {
		next := slices.IndexFunc(left, func(c Container) bool {
			return !slices.ContainsFunc(waitsFor[c.Name], func(n string) bool { return !slices.Contains(order, n) })
		})
		if next < 0 {
			return nil, &CycleError{Path: q.cycle()}
		}
		order = append(order, left[next].Name)
		left = slices.Delete(left, next, next+1)
	}
	return order, nil
}

// StopOrder is the reverse of StartOrder: a container stops before those it
// needs, so that its last calls still go through.
func (p Plan) StopOrder() ([]string, error) {
	order, err := p.StartOrder()
	slices.Reverse(order)
	return order, err
}

// cycle returns one cycle of the edges alone, each container waiting for the
// next, the first name again at the end; nil if there is none.
func (p Plan) cycle() []string {
	w := waits{}
	for _, e := range p.Edges {
		w.add(point{name: e.To}, point{name: e.From})
	}
	for _, e := range p.Edges {
		if back := w.path(point{name: e.From}, point{name: e.To}); back != nil {
			path := []string{e.To}
			for _, b := range back {
				path = append(path, b.name)
			}
			return path
		}
	}
	return nil
}
