package view

import (
	"encoding/json"
	"fmt"
	"io"
	"text/tabwriter"

	"outrider.dev/internal/ops/podupgrade"
)

// Candidates prints what an upgrade of pods would do, as a table or as JSON.
func Candidates(w io.Writer, output string, all []podupgrade.Candidate) error {
	if output == "json" {
		if all == nil {
			all = []podupgrade.Candidate{}
		}
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		return e.Encode(all)
	}
	if len(all) == 0 {
		_, err := fmt.Fprintln(w, "no pod here has a proxy of Outrider")
		return err
	}
	count := map[podupgrade.State]int{}
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintln(t, "NAMESPACE\tPOD\tSTATE\tIMAGE\tNEXT")
	for _, c := range all {
		count[c.State]++
		next := c.To
		if c.Reason != "" {
			next = c.Reason
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\n", c.Namespace, c.Name, c.State, c.From, next)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "%d due, %d current, %d need a new pod\n", count[podupgrade.Due], count[podupgrade.Current], count[podupgrade.Cannot])
	return err
}

// UpgradeStep describes a step of the upgrade of a pod in one line.
func UpgradeStep(e podupgrade.Event) string {
	switch {
	case e.Step == podupgrade.Prepared:
		return fmt.Sprintf("node %s: %s is there, and runs", e.Pod.Node, e.Pod.To)
	case e.Err != nil:
		return fmt.Sprintf("%s: %s: %v", e.Pod, e.Step, e.Err)
	case len(e.Restarts) > 0:
		return fmt.Sprintf("%s: %s after %.1f s; restarted meanwhile: %v", e.Pod, e.Step, e.Took.Seconds(), e.Restarts)
	case e.Took > 0:
		return fmt.Sprintf("%s: %s after %.1f s", e.Pod, e.Step, e.Took.Seconds())
	}
	return fmt.Sprintf("%s: %s", e.Pod, e.Step)
}
