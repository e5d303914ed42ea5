package view

import (
	"io"
	"strings"

	"outrider.dev/internal/base/cli"
	"outrider.dev/internal/base/finding"
	"outrider.dev/internal/doctor/lint"
	"outrider.dev/internal/doctor/lint/kinds"
)

// LintOutputs lists the formats of [Findings]; the first is the default.
var LintOutputs = []string{"text", "json", "sarif"}

// Findings prints the findings of lint. The text ends with the number of findings that can be fixed, if there are
// any, and with fixCommand, the flags that fix them.
func Findings(w io.Writer, t cli.Terminal, output string, r lint.Report, fixCommand string) error {
	switch output {
	case "json":
		return finding.WriteJSON(w, r.Findings)
	case "sarif":
		tool := finding.Tool{Name: "outrider lint", Version: cli.Version(), Pages: "https://outrider.dev/docs/", Kinds: kinds.All()}
		return finding.WriteSARIF(w, tool, r.Findings)
	}
	var p printer
	if err := finding.WriteText(&p, r.Findings, t.Colour); err != nil {
		return err
	}
	if len(r.Findings) > 0 {
		p.line("")
	}
	p.line("%s", FindingsSummary(r))
	if text := r.NotChecked(); text != "" {
		p.line("%s", text)
	}
	fixes := 0
	for _, f := range r.Findings {
		if f.Fix != nil {
			fixes++
		}
	}
	if fixes > 0 {
		p.line("%d can be fixed by command: add --fix --diff to see how, %s to do it", fixes, fixCommand)
	}
	return p.print(w)
}

// FindingsSummary returns a sentence with the numbers of findings by severity, and of the objects that were checked.
func FindingsSummary(r lint.Report) string {
	var parts []string
	if r.Pods > 0 {
		parts = append(parts, plural(r.Pods, "pod"))
	}
	if r.Services > 0 {
		parts = append(parts, plural(r.Services, "service"))
	}
	if len(parts) == 0 {
		return finding.Summary(r.Findings) + ": no pod, no pod template and no service is there"
	}
	return finding.Summary(r.Findings) + " in " + strings.Join(parts, " and ")
}

// Kinds prints the codes of lint.
func Kinds(w io.Writer, output string) error {
	if output == "json" {
		return cli.WriteJSON(w, kinds.All())
	}
	var p printer
	for _, k := range kinds.All() {
		p.line("%-24s %-8s %s", k.Code, k.Severity, k.Title)
	}
	return p.print(w)
}
