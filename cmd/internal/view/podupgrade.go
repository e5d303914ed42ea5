package view

import (
	"cmp"
	"fmt"
	"io"

	"outrider.dev/internal/base/cli"
	"outrider.dev/internal/ops/podupgrade"
)

// Candidates prints the pods that an upgrade would change and those that it would not, as a table or as JSON.
func Candidates(w io.Writer, output string, all []podupgrade.Candidate) error {
	if output == "json" {
		return cli.WriteJSON(w, append([]podupgrade.Candidate{}, all...))
	}
	if len(all) == 0 {
		_, err := fmt.Fprintln(w, "no pod here has a proxy of Outrider")
		return err
	}
	count := map[podupgrade.State]int{}
	rows := [][]string{{"NAMESPACE", "POD", "STATE", "IMAGE", "NEXT"}}
	for _, c := range all {
		count[c.State]++
		rows = append(rows, []string{c.Namespace, c.Name, string(c.State), c.From, cmp.Or(c.Reason, c.To)})
	}
	if err := table(w, rows); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "%d outdated, %d current, %d need a new pod\n", count[podupgrade.Outdated], count[podupgrade.Current], count[podupgrade.NeedsNewPod])
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
