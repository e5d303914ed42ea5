package page

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"outrider.dev/internal/doctor/diagnose/result"
	"outrider.dev/internal/doctor/evidence"
)

// Limits of the pages of several pods.
const (
	mostGroups  = 20 // causes
	mostMembers = 3  // pods that a group names
	mostWell    = 20 // pods with nothing wrong that are named
)

// byCause returns the reports in the order of a page: the causes with the most pods first, then the pods with nothing
// wrong. It leaves out the reports of pods whose cause another report has, and the causes for which a page has no room.
func byCause(reports []result.Report) (ill, well []result.Report, more int) {
	for _, r := range reports {
		switch {
		case r.Verdict.Well():
			well = append(well, r)
		case r.SameAs == "":
			ill = append(ill, r)
		}
	}
	size := func(r result.Report) int {
		if r.Group == nil {
			return 1
		}
		return len(r.Group.Members)
	}
	told := map[result.Verdict]int{result.Undecided: 1} // a cause comes before what is undecided
	slices.SortStableFunc(ill, func(a, b result.Report) int {
		return cmp.Or(cmp.Compare(size(b), size(a)), cmp.Compare(told[a.Verdict], told[b.Verdict]))
	})
	more = max(len(ill)-mostGroups, 0)
	return ill[:len(ill)-more], well, more
}

// several says how many pods have how many causes.
func several(reports []result.Report) string {
	pods, creators, well, starting, causes := 0, 0, 0, 0, 0
	for _, r := range reports {
		if isCreator(r) {
			creators++
		} else {
			pods++
		}
		switch {
		case r.Verdict == result.Nothing:
			well++
		case r.Verdict == result.Starting:
			starting++
		case r.SameAs == "":
			causes++
		}
	}
	out := result.Count(pods, "pod")
	if creators > 0 {
		out += fmt.Sprintf(", %s that cannot create pods", result.Count(creators, "workload"))
	}
	out += ": " + result.Count(causes, "cause")
	if well > 0 {
		out += fmt.Sprintf(", nothing is wrong with %d", well)
	}
	if starting > 0 {
		out += fmt.Sprintf(", %d starting", starting)
	}
	return out
}

// isCreator reports whether a report is about a workload that cannot create pods.
func isCreator(r result.Report) bool {
	return len(r.Findings) > 0 && r.Findings[0].Code == "pods-not-created"
}

// whose says which pods a group has: 19 of 20 pods of Deployment shop/web.
func whose(g *result.Group) string {
	n, of := len(g.Members), ""
	switch w := len(g.Workloads); {
	case g.Pods == 0 && n == 1:
		return g.Members[0]
	case g.Pods == 0:
		return fmt.Sprintf("%d workloads", n)
	case n == 1 && g.Of == 1:
		return g.Members[0]
	case w == n && g.Of == n:
		return fmt.Sprintf("%d pods", n)
	case w == 1 && strings.HasPrefix(g.Workloads[0], "Pods "):
		of = strings.TrimPrefix(g.Workloads[0], "Pods ")
	case w == 1:
		of = "of " + g.Workloads[0]
	case w <= mostMembers:
		of = "of " + strings.Join(g.Workloads, ", ")
	default:
		of = fmt.Sprintf("of %d workloads (%s and others)", w, strings.Join(g.Workloads[:mostMembers], ", "))
	}
	if n == g.Of {
		return fmt.Sprintf("all %d pods %s", n, of)
	}
	return fmt.Sprintf("%d of %d pods %s", n, g.Of, of)
}

// when formats the first sign of a cause, with its day.
func when(t evidence.Time) string { return t.At.UTC().Format("15:04:05Z on 2 Jan") }

// headline says of a report which pods have its cause, what it is, and since when.
func headline(r result.Report) string {
	g := r.Group
	if g == nil {
		return r.Pod + ": " + r.Sentence
	}
	out := whose(g) + ": " + g.Sentence
	if g.Since.Known() {
		out += ", since " + when(g.Since)
		if g.Earlier {
			out += " or earlier"
		}
	}
	return out
}

// changes returns a line for each change before the cause of a group.
func changes(g *result.Group) (out []string) {
	if g == nil {
		return nil
	}
	for _, q := range g.Changes {
		at := "at a time that is not in the evidence"
		if q.At.Known() {
			at = when(q.At)
		}
		out = append(out, fmt.Sprintf("%s: %s", at, q.Text))
	}
	return out
}

// members names the first pods of a group; empty: the headline names them.
func members(g *result.Group) string {
	if g == nil || len(g.Members) < 2 {
		return ""
	}
	return some(g.Members, mostMembers)
}

// some names the first of several.
func some(names []string, most int) string {
	out := strings.Join(names[:min(len(names), most)], ", ")
	if more := len(names) - most; more > 0 {
		out += fmt.Sprintf(" and %d more", more)
	}
	return out
}

// facts returns the lines about a group that stand below its headline.
func facts(g *result.Group) (out []string) {
	if g == nil {
		return nil
	}
	out = slices.Clone(g.Common)
	if names := members(g); names != "" {
		out = append(out, "they are "+names)
	}
	return out
}

// wellLines returns a line for each of the first pods with nothing wrong, and one for the others.
func wellLines(well []result.Report) (out []string) {
	for _, r := range well[:min(len(well), mostWell)] {
		out = append(out, r.Pod+": "+r.Sentence)
	}
	if more := len(well) - mostWell; more > 0 {
		out = append(out, fmt.Sprintf("%d more pods in which nothing is wrong, or that are starting", more))
	}
	return out
}

const (
	changedBefore = "What changed before:"
	moreCauses    = "%d more causes, of fewer pods, are not shown: select fewer pods, or use -o json"
)

// group writes the lines of a group to a terminal.
func (t *texter) group(g *result.Group) {
	for _, line := range facts(g) {
		t.line("  ", oneLine(line), "")
	}
	if lines := changes(g); len(lines) > 0 {
		t.line("  ", changedBefore, "heading")
		for _, line := range lines {
			t.line("    ", oneLine(line), "")
		}
	}
}

// groups writes the causes for a terminal, each with what fixes it.
func (t *texter) groups(reports []result.Report) {
	ill, _, more := byCause(reports)
	for _, r := range ill {
		if r.Group == nil {
			continue
		}
		t.line("", cut(oneLine(headline(r)), longestLine), string(r.Verdict))
		t.line("  ", does(r), "")
		t.group(r.Group)
		if command := command(r); command != "" {
			t.line("  ", "$ "+oneLine(command), "command")
		}
		t.line("", "", "")
	}
	if more > 0 {
		t.line("", fmt.Sprintf(moreCauses, more), "")
		t.line("", "", "")
	}
}

// does returns the code of a report with what fixes its cause, or what would decide between the suspects.
func does(r result.Report) string {
	switch {
	case r.Verdict == result.Undecided:
		return "undecided: this command would decide"
	case len(r.Findings) == 0:
		return string(r.Verdict)
	}
	f := r.Findings[0]
	out := fmt.Sprintf("%s (%s)", f.Code, f.Confidence)
	remedy := f.Remedy.Sentence
	if r.Group != nil {
		remedy = r.Group.Remedy
	}
	if remedy != "" {
		out += ": " + oneLine(remedy)
	}
	if f.Patch != "" || f.Change != "" {
		out += "; the patch: outrider diagnose " + namedIn(r.Pod)
	}
	return out
}

// command returns the command of a report that needs no file beside it.
func command(r result.Report) string {
	switch {
	case r.Verdict == result.Undecided:
		return r.Decide
	case len(r.Findings) > 0 && r.Findings[0].Patch == "" && r.Findings[0].Change == "":
		return r.Findings[0].Remedy.Command
	}
	return ""
}

// namedIn formats NAMESPACE/NAME for a command.
func namedIn(pod string) string {
	if namespace, name, has := strings.Cut(pod, "/"); has {
		return name + " -n " + namespace
	}
	return pod
}
