package podspec

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"outrider.dev/internal/base/contract"
	"outrider.dev/startup"
)

// Stronger is in one sentence what would keep at every start what the choices keep at the first one
// at most; empty if there is nothing, or if nothing would. It is about plain containers, and what
// they wait for by an annotation or since it is a proxy: no setting gives the others a gate.
func (r Reading) Stronger(choices []Choice, on startup.Kubernetes) string {
	if r.Start == StartOff {
		return ""
	}
	c := newChooser(r, r.Plan().Expand(), on)
	requested := byEnds(startup.Plan{Containers: c.plan.Containers, Edges: r.Requested}.Expand().Edges)
	var weak, missing, by, request []string
	for _, choice := range choices {
		e := choice.Edge
		_, isRequested := requested[endsOf(e)]
		if !c.weak(choice, isRequested) {
			continue
		}
		weak, missing, by = append(weak, e.To), append(missing, r.missingCommands(e)...), append(by, string(e.By))
		if !isRequested {
			request = append(request, perContainer+e.To+": "+e.From)
		}
	}
	if len(weak) == 0 {
		return ""
	}
	var remedy []string
	if len(missing) > 0 {
		remedy = append(remedy, fmt.Sprintf("write the command of %s into the pod spec, inject with --resolve-images, or have the nodes add the gates (%s: %s)", names(missing), contract.Init, contract.InitByNode))
	}
	if len(missing)+len(request) == 0 || r.Start != StartDefault || r.Native {
		request = append(request, StartAnnotation+": gate")
	}
	if len(request) > 0 {
		remedy = append(remedy, "annotate "+names(request))
	}
	return fmt.Sprintf("%s keeps %s back at the first start at most; a gate would at every start: %s", names(by), names(weak), strings.Join(remedy, ", and "))
}

// weak reports whether a gate would keep at every start an edge that the choice keeps at the first one at
// most.
func (c *chooser) weak(choice Choice, requested bool) bool {
	return choice.Answer.Start != startup.EveryStart && (requested || c.pod.Facts[choice.Edge.From].Proxy) && c.gateWouldFit(choice.Edge)
}

// MissingCommands are the containers, once each and in order, that wait for a proxy at the first start
// at most, because a gate would need a command that the pod does not have.
func (r Reading) MissingCommands(choices []Choice, on startup.Kubernetes) (out []string) {
	if r.Start == StartOff {
		return nil
	}
	c := newChooser(r, r.Plan().Expand(), on)
	for _, choice := range choices {
		if e := choice.Edge; c.weak(choice, false) && slices.Contains(r.missingCommands(e), e.To) && !slices.Contains(out, e.To) {
			out = append(out, e.To)
		}
	}
	return out
}

// gateWouldFit reports whether a plain container could wait behind a gate in place of the mechanism
// that its edge has, once the commands are known.
func (c *chooser) gateWouldFit(e startup.Edge) bool {
	to, _ := c.judge.Find(e.To)
	if e.By == "" || to.Kind != startup.Plain || c.pod.Facts[e.To].Proxy {
		return false
	}
	e.By = ""
	return c.judge.Keeps(startup.Gate, e).Can() && (len(c.pod.missingCommands(e)) > 0 || c.option(e, startup.Gate).Answer.Can())
}

// missingCommands are the containers whose commands a gate for that edge needs, and that have none.
func (r Reading) missingCommands(e startup.Edge) (out []string) {
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

// names lists each name once, in order.
func names(all []string) string {
	return strings.Join(slices.Compact(slices.Sorted(slices.Values(all))), ", ")
}

// Unmodelled are what the containers request of the kubelet that its model does not do, a sentence
// for each.
func Unmodelled(pod *corev1.Pod) (out []string) {
	for _, c := range carriers(pod) {
		for i, rule := range c.RestartPolicyRules {
			out = append(out, fmt.Sprintf("%s.restartPolicyRules[%d]: %s of %s is not modelled: what it restarts, and in which order, is not in the answer",
				c.field(), i, rule.Action, c.Name))
		}
	}
	return out
}
