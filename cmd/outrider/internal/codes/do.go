package codes

import (
	_ "embed"
	"fmt"
	"strings"

	"outrider.dev/internal/base/finding"
	"outrider.dev/internal/doctor/diagnose/remedies"
)

// sections has a section for each code, in alphabetical order: what to do, with commands in sh blocks. Lines in braces
// stand for what several sections have: see macros.
//
//go:embed do.md
var sections string

// do returns what to do about a code, as Markdown; empty: it has no section.
func do(code finding.Code) string {
	_, text, _ := strings.Cut(sections, "\n## "+string(code)+"\n")
	text, _, _ = strings.Cut(text, "\n## ")
	for name, block := range macros { // any order: no block contains a macro
		text = strings.ReplaceAll(text, "\n{"+name+"}\n", "\n"+strings.ReplaceAll(block, "CODE", string(code))+"\n")
	}
	return strings.TrimSpace(text)
}

// macros has the blocks that several sections share.
var macros = map[string]string{
	"fix":    "```sh\noutrider lint -f FILE --only CODE --fix --diff\noutrider lint -f FILE --only CODE --fix --write\n```",
	"plan":   "```sh\noutrider plan -f FILE\n```",
	"advise": "```sh\noutrider plan -f FILE --advise\n```",

	"start":    annotated(remedies.Start, deployment),
	"stronger": annotated(remedies.Stronger, deployment),
	"init":     annotated(remedies.Init, deployment),
	"stop":     annotated(remedies.Stop, deployment),
	"end":      annotated(remedies.End, cronJob),
}

// Commands that add an annotation to the pods of a workload.
const (
	deployment = "kubectl patch deployment APP -n NAMESPACE --patch '\nspec: {template: {metadata: {annotations: {\n  %s\n}}}}'\n"
	cronJob    = "kubectl patch cronjob NAME -n NAMESPACE --patch '\nspec: {jobTemplate: {spec: {template: {metadata: {annotations: {\n  %s\n}}}}}}'\n"
)

// annotated returns a command with the annotation that serves a purpose in a pod of Outrider, and the annotations that
// serve it in pods of other meshes.
func annotated(p remedies.Purpose, command string) string {
	all := remedies.Annotations(p)
	var out strings.Builder
	fmt.Fprintf(&out, "```sh\n"+command+"```\n\nThat is the annotation of Outrider. Of other meshes, from that version on:\n\n", all[0].YAML)
	for _, a := range all[1:] {
		fmt.Fprintf(&out, "- %s: `%s`\n", a.Mesh, a.YAML)
	}
	return strings.TrimSpace(out.String())
}
