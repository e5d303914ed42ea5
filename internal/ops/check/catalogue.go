package check

import (
	_ "embed"
	"slices"
	"strings"

	"outrider.dev/internal/base/finding"
)

// checks contains a section for each check, which explains its meaning and remedies.
//
//go:embed checks.md
var checks string

// Kinds returns all checks, in their order.
func Kinds() (all []finding.Kind) {
	has := map[string]bool{}
	probes := slices.Concat(before, installed, []probe{otherMeshes, policies, kernel})
	for _, t := range topics {
		probes = append(probes, t.probe)
	}
	for _, p := range probes {
		if !has[p.id] {
			has[p.id] = true
			all = append(all, finding.Kind{Code: finding.Code(p.id), Title: p.title, Severity: finding.Error, Explanation: explanation(p.id), Doc: pageOf(p.id)})
		}
	}
	return all
}

func explanation(id string) string {
	_, text, _ := strings.Cut(checks, "## "+id+"\n")
	text, _, _ = strings.Cut(text, "\n## ")
	return strings.TrimSpace(text)
}

func pageOf(id string) string { return "findings/" + id + ".md" }
