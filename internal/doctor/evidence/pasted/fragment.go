package pasted

import (
	"regexp"
	"slices"
	"strings"

	"outrider.dev/internal/doctor/evidence/described"
)

var (
	ofUnit = regexp.MustCompile(`(?i)\bcontainer[ "'\x60]+([a-z0-9][-a-z0-9]*)|([a-z0-9][-a-z0-9]*)["'\x60]? container\b`)
	isUnit = regexp.MustCompile(`(?m)^[ \t]*(?:Last )?State:[ \t]+(?:Running|Waiting|Terminated)[ \t\r]*$`)
	units  = regexp.MustCompile(`(?m)^[ \t]*(?:Init )?Containers:[ \t\r]*$`)
	// unsaid are the words before "container" that name none.
	unsaid = regexp.MustCompile(`^(?:the|a|an|this|that|each|every|init|main|app|application|sidecar|first|second|other|failing|same|one|of|in|for|from|is|has|was|status|state|our|its|my|no)$`)
)

// fragmentOf returns the container that the heading of a piece of a description names: its state, without the pod and the
// name around it. Empty: the section is no such piece.
func fragmentOf(s section) string {
	text := strings.Join(s.lines, "\n")
	if !isUnit.MatchString(text) || units.MatchString(text) || described.Is([]byte(text)) || s.command.pod == "" && s.command.verb != "" {
		return ""
	}
	for _, m := range ofUnit.FindAllStringSubmatch(s.heading, 8) {
		for _, name := range m[1:] {
			if podName.MatchString(name) && !unsaid.MatchString(name) {
				return name
			}
		}
	}
	return ""
}

// described returns the lines of a section as those of a container in a description.
func (s section) described(container string) []byte {
	out := "Containers:\n  " + container + ":\n"
	for _, line := range s.margin() {
		out += strings.TrimRight("    "+line, " ") + "\n"
	}
	return []byte(out)
}

// pointing matches the words of a heading that mean the pod of which the text speaks before.
var pointing = regexp.MustCompile(`(?i)\b(?:of|in|from|for)[ ](?:it|its|that|this|the same|same|the)(?:[ ](?:one|pod))?[ .:]*$|\b(?:that|this|same)[ ]pod\b`)

// headed returns the pod that a heading means: by its name, by the end of the name, which only this one has, or as the pod
// of the piece before. rows has all lines of pods of the text.
func headed(heading string, rows []described.Row, before []Piece) (pod, namespace string) {
	said := words(heading)
	var full, part []described.Row
	for _, r := range rows {
		end := r.Name[strings.LastIndexByte(r.Name, '-')+1:]
		switch {
		case strings.Contains(heading, r.Name):
			full = append(full, r)
		case len(end) >= 5 && end != r.Name && slices.Contains(said, end):
			part = append(part, r)
		}
	}
	if len(full) == 0 {
		full = part
	}
	full = slices.CompactFunc(full, func(a, b described.Row) bool { return a.Name == b.Name })
	if len(full) > 0 {
		if len(full) == 1 || strings.Contains(heading, full[0].Name) {
			return full[0].Name, full[0].Namespace
		}
		return "", ""
	}
	if !pointing.MatchString(strings.TrimRight(heading, "*_ :.")) {
		return "", ""
	}
	for _, p := range slices.Backward(before) {
		if p.Pod != "" {
			return p.Pod, p.Namespace
		}
		if p.Form == Text {
			if ill := slices.DeleteFunc(described.Read(p.Text).Pods, well); len(ill) == 1 {
				return ill[0].Name, ill[0].Namespace
			}
		}
	}
	return "", ""
}
