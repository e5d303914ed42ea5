package foreign

import (
	"cmp"
	"fmt"
	"strings"

	"outrider.dev/internal/core/mesh"
)

// unsupportedSources are the fields of from.source that depend on request headers.
var unsupportedSources = []string{"remoteIpBlocks", "notRemoteIpBlocks", "requestPrincipals", "notRequestPrincipals"}

// judgeAuthorization reports the parts of an AuthorizationPolicy that are not enforced as written. It returns
// false if there are none.
func judgeAuthorization(s *mesh.IgnoredSpec, object fields) bool {
	spec := object.at("spec")
	action := cmp.Or(spec.text("action"), "ALLOW")
	switch {
	case spec["selector"] == nil && (len(spec.list("targetRefs")) > 0 || len(spec.at("targetRef")) > 0):
		s.Guards, s.Instead = true, "targetRefs are for waypoints; use spec.selector"
		return true
	case object.at("metadata").at("annotations").text("istio.io/dry-run") == "true":
		s.Instead = "its annotation istio.io/dry-run says that it only tries, and nothing is tried here"
		return true
	case action == "AUDIT":
		s.Instead = "nothing is audited; the access log has the requests"
		return true
	}
	var reasons []string
	if s.Namespace == mesh.IstioRoot {
		reasons = append(reasons, fmt.Sprintf("it holds for %s alone; for the pods of all namespaces put it into the root namespace, %s by default", mesh.IstioRoot, mesh.DefaultRoot))
	}
	if action == "CUSTOM" {
		reasons = append(reasons, "spec.action CUSTOM is not supported: no provider is called, and what its rules match is denied")
	}
	if found := unsupportedConditions(spec); len(found) > 0 {
		more, effect := "", "a rule with it allows nothing"
		if action != "ALLOW" {
			effect = "a rule denies without regard to it"
		}
		if len(found) > 1 {
			more = fmt.Sprintf(", and %d more", len(found)-1)
		}
		reasons = append(reasons, fmt.Sprintf("%s is not supported%s: %s", found[0], more, effect))
	}
	s.OtherRoot = s.Namespace == mesh.IstioRoot && len(reasons) == 1
	s.Guards, s.Partly, s.Instead = true, true, strings.Join(reasons, "; ")
	return len(reasons) > 0
}

// unsupportedConditions returns the paths of conditions that cannot be evaluated.
func unsupportedConditions(spec fields) []string {
	var out []string
	for i, rule := range spec.list("rules") {
		for j, from := range rule.list("from") {
			for _, name := range unsupportedSources {
				if _, has := from.at("source")[name]; has {
					out = append(out, fmt.Sprintf("spec.rules[%d].from[%d].source.%s", i, j, name))
				}
			}
		}
		for j, when := range rule.list("when") {
			if key := when.text("key"); mesh.Conditions[key] == mesh.Unsupported {
				out = append(out, fmt.Sprintf("spec.rules[%d].when[%d].key %.100q", i, j, key))
			}
		}
	}
	return out
}
