package podupgrade

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
)

// The queue hands out the pods in their order. At a time it hands out at most a quarter of the pods of a workload,
// but at least one.
func TestQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var all []Candidate
		for workload, pods := range map[string]int{"lone": 1, "pair": 2, "many": 9} { // any order: sorted below
			for i := range pods {
				all = append(all, Candidate{Name: fmt.Sprintf("%s-%d", workload, i), workload: workload})
			}
		}
		slices.SortFunc(all, func(a, b Candidate) int { return slices.Compare([]byte(a.Name), []byte(b.Name)) })
		q := newQueue(all, all)
		given := make(chan Candidate, len(all))
		for range len(all) { // more workers than the queue keeps busy at a time
			go func() {
				for c, more := q.next(); more; c, more = q.next() {
					given <- c
				}
			}()
		}
		take := func() (names []string, taken []Candidate) {
			synctest.Wait()
			for len(given) > 0 {
				c := <-given
				names, taken = append(names, c.Name), append(taken, c)
			}
			slices.Sort(names)
			return names, taken
		}
		var rounds [][]string
		for names, taken := take(); len(names) > 0; names, taken = take() {
			rounds = append(rounds, names)
			if len(rounds) == 3 { // after this, replacements in progress continue, but no other begins
				q.stop()
			}
			for _, c := range taken {
				q.done(c)
			}
		}
		want := "[[lone-0 many-0 many-1 pair-0] [many-2 many-3 pair-1] [many-4 many-5]]"
		if got := fmt.Sprint(rounds); got != want {
			t.Errorf("given out: %s, want %s", got, want)
		}
		if len(q.due) != 3 || q.due[0].Name != "many-6" {
			t.Errorf("left: %v, want many-6 to many-8", q.due)
		}
	})
}
