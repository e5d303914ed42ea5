package startup

import (
	"container/heap"
	"slices"
	"strings"
)

// A CycleError reports containers that wait for one another. Each container in Path waits for the next one.
type CycleError struct{ Path []string }

func (e *CycleError) Error() string { return "start-up cycle: " + strings.Join(e.Path, " -> ") }

// StartOrder returns the names of the containers such that each comes after those for which it waits. If several
// could come next, the first of them in the pod comes next. Edges with containers that the pod does not have are
// ignored.
//
// If containers wait for one another, the error is a [*CycleError].
func (p Plan) StartOrder() ([]string, error) {
	q := p.Expand()
	var n numbers
	of := map[int32][]int{} // indexes of the containers by name
	for i, c := range q.Containers {
		of[n.number(c.Name)] = append(of[n.number(c.Name)], i)
	}
	waiting := make([]int, len(q.Containers)) // number of names for which it waits and that are not in the order yet
	waitFor := make([][]int, len(n.names))
	for _, e := range q.Edges {
		from, known := n.of[e.From]
		to, both := n.of[e.To]
		if !known || !both {
			continue
		}
		for _, i := range of[to] {
			waiting[i]++
			waitFor[from] = append(waitFor[from], i)
		}
	}
	var ready minHeap
	for i := range q.Containers {
		if waiting[i] == 0 {
			heap.Push(&ready, i)
		}
	}
	order := make([]string, 0, len(q.Containers))
	for len(ready) > 0 {
		name := q.Containers[heap.Pop(&ready).(int)].Name
		order = append(order, name)
		for _, i := range waitFor[n.of[name]] {
			if waiting[i]--; waiting[i] == 0 {
				heap.Push(&ready, i)
			}
		}
		waitFor[n.of[name]] = nil // a second container of the same name changes nothing
	}
	if len(order) < len(q.Containers) {
		return nil, &CycleError{Path: q.cycle()}
	}
	return order, nil
}

// minHeap is a heap whose top is the smallest number.
type minHeap []int

func (h minHeap) Len() int           { return len(h) }
func (h minHeap) Less(i, j int) bool { return h[i] < h[j] }
func (h minHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *minHeap) Push(x any)        { *h = append(*h, x.(int)) }
func (h *minHeap) Pop() any {
	last := (*h)[len(*h)-1]
	*h = (*h)[:len(*h)-1]
	return last
}

// StopOrder returns the reverse of [Plan.StartOrder]: a container stops before those it needs, so that its last
// requests to them still succeed.
func (p Plan) StopOrder() ([]string, error) {
	order, err := p.StartOrder()
	slices.Reverse(order)
	return order, err
}

// cycle returns one cycle of the edges alone: each container waits for the next, and the first name is
// repeated at the end. It returns nil if there is no cycle.
func (p Plan) cycle() []string {
	var n numbers
	var g graph
	node := func(name string) int32 {
		i := n.number(name)
		for len(g) <= int(i) {
			g = append(g, nil)
		}
		return i
	}
	for _, e := range p.Edges {
		to, from := node(e.To), node(e.From)
		g[to] = append(g[to], from)
	}
	component := g.components()
	for _, e := range p.Edges {
		from, to := n.of[e.From], n.of[e.To]
		if component[from] != component[to] {
			continue
		}
		path := []string{e.To}
		for _, i := range g.path(from, to) {
			path = append(path, n.names[i])
		}
		return path
	}
	return nil
}
