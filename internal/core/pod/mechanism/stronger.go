package mechanism

import (
	"fmt"
	"slices"
	"strings"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/core/pod/podstart"
	"outrider.dev/internal/core/pod/request"
	"outrider.dev/startup"
)

// Stronger returns a sentence about weak edges: those that the choices keep at most at the first start, while a
// gate would keep them at every start. The sentence explains how to get the gates. It is empty if there are no
// such edges. Only edges to regular containers are considered, and of these only edges from a proxy and edges
// that an annotation requests, because no setting would give the others a gate.
func Stronger(r podstart.Reading, choices []Choice, on startup.Kubernetes) string {
	if r.Start == request.Off {
		return ""
	}
	c := newChooser(r, r.Plan().Expand(), on)
	requested := startup.ByEnds(startup.Plan{Containers: c.plan.Containers, Edges: r.Requested}.Expand().Edges)
	var weak, missing, by, annotations []string
	for _, choice := range choices {
		e := choice.Edge
		_, isRequested := requested[e.Ends()]
		if !c.weak(choice, isRequested) {
			continue
		}
		weak, missing, by = append(weak, e.To), append(missing, missingCommands(r, e)...), append(by, string(e.By))
		if !isRequested {
			annotations = append(annotations, contract.DependsOn+"."+e.To+": "+e.From)
		}
	}
	if len(weak) == 0 {
		return ""
	}
	var remedy []string
	if len(missing) > 0 {
		remedy = append(remedy, fmt.Sprintf("write the command of %s into the pod spec, inject with --resolve-images, or have the nodes add the gates (%s: %s)", names(missing), contract.Init, contract.InitByNode))
	}
	if len(missing)+len(annotations) == 0 || r.Start != "" || r.Native {
		annotations = append(annotations, contract.Start+": gate")
	}
	if len(annotations) > 0 {
		remedy = append(remedy, "annotate "+names(annotations))
	}
	return fmt.Sprintf("%s keeps %s back at the first start at most; a gate would at every start: %s", names(by), names(weak), strings.Join(remedy, ", and "))
}

// weak reports whether the choice keeps its edge at most at the first start although a gate could keep it at
// every start.
func (c *chooser) weak(choice Choice, requested bool) bool {
	return choice.Answer.Start != startup.EveryStart && (requested || c.pod.Facts[choice.Edge.From].Proxy) && c.gateWouldFit(choice.Edge)
}

// MissingCommands returns the containers whose wait for a proxy is weak (see [Stronger]) because the pod does not
// contain the command that a gate would need. Each is listed once, in order.
func MissingCommands(r podstart.Reading, choices []Choice, on startup.Kubernetes) (out []string) {
	if r.Start == request.Off {
		return nil
	}
	c := newChooser(r, r.Plan().Expand(), on)
	for _, choice := range choices {
		if e := choice.Edge; c.weak(choice, false) && slices.Contains(missingCommands(r, e), e.To) && !slices.Contains(out, e.To) {
			out = append(out, e.To)
		}
	}
	return out
}

// gateWouldFit reports whether a gate could replace the mechanism of an edge to a regular container if the
// commands were known.
func (c *chooser) gateWouldFit(e startup.Edge) bool {
	to, _ := c.judge.Find(e.To)
	if e.By == "" || to.Kind != startup.Plain || c.pod.Facts[e.To].Proxy {
		return false
	}
	e.By = ""
	return c.judge.Keeps(startup.Gate, e).Can() && (len(missingCommands(c.pod, e)) > 0 || c.option(e, startup.Gate).Answer.Can())
}

// missingCommands returns the containers of an edge whose command is not in the pod, although a gate for the
// edge needs the command.
func missingCommands(r podstart.Reading, e startup.Edge) (out []string) {
	if r.Node {
		return nil
	}
	if !r.Facts[e.To].Command {
		out = append(out, e.To)
	}
	if from := r.Facts[e.From]; !from.Command && (!from.Proxy || e.After == startup.Completed) {
		out = append(out, e.From)
	}
	return out
}

// names returns the distinct names, sorted and separated by commas.
func names(all []string) string {
	return strings.Join(slices.Compact(slices.Sorted(slices.Values(all))), ", ")
}
