package page

import (
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"

	"outrider.dev/internal/base/cli/visible"
	"outrider.dev/internal/doctor/diagnose/result"
	"outrider.dev/internal/doctor/evidence"
)

// Markdown formats the reports as text to paste into a ticket. Text from the evidence, such as lines of logs, cannot
// add markup: it is either in code blocks, whose fences are longer than any fence within, or all its characters that
// have a meaning in Markdown or HTML are escaped.
//
// Of several pods it first says how many causes there are, and has the report of one pod for each.
func Markdown(reports []result.Report) string {
	var b strings.Builder
	if len(reports) == 1 {
		markdown(&b, reports[0])
		return b.String()
	}
	ill, well, more := byCause(reports)
	fmt.Fprintf(&b, "%s\n", prose(several(reports)))
	for _, r := range ill {
		b.WriteString("\n---\n\n")
		markdown(&b, r)
	}
	restMarkdown(&b, more, wellLines(well))
	return b.String()
}

// restMarkdown writes what Markdown and fleetMarkdown do not show in full.
func restMarkdown(b *strings.Builder, more int, lines []string) {
	if more > 0 {
		lines = append([]string{fmt.Sprintf(moreCauses, more)}, lines...)
	}
	if len(lines) > 0 {
		b.WriteString("\n---\n")
		listed(b, "The others:", lines)
	}
}

// fleetMarkdown formats the causes of many pods, each with what fixes it.
func fleetMarkdown(reports []result.Report) string {
	var b strings.Builder
	ill, _, more := byCause(reports)
	fmt.Fprintf(&b, "%s\n", prose(several(reports)))
	for _, r := range ill {
		fmt.Fprintf(&b, "\n### %s\n\n%s\n", prose(cut(headline(r), longestLine)), prose(does(r)))
		groupMarkdown(&b, r.Group)
		if command := command(r); command != "" {
			block(&b, "sh", command)
		}
	}
	restMarkdown(&b, more, nil)
	return b.String()
}

// groupMarkdown writes the lines of a group.
func groupMarkdown(b *strings.Builder, g *result.Group) {
	for _, line := range facts(g) {
		fmt.Fprintf(b, "\n%s\n", prose(line))
	}
	listed(b, changedBefore, changes(g))
}

func markdown(b *strings.Builder, r result.Report) {
	fmt.Fprintf(b, "### %s\n", prose(headline(r)))
	groupMarkdown(b, r.Group)
	if r.Group != nil && len(r.Group.Members) > 1 {
		fmt.Fprintf(b, "\nOne of them, %s: %s\n", prose(r.Pod), prose(r.Sentence))
	}
	first := firstRemedy(r)
	if first != "" {
		fmt.Fprintf(b, "\n**Do:** %s\n", prose(first))
	}
	if len(r.Timeline) > 0 {
		block(b, "text", timeline(r))
	}
	for _, f := range r.Findings {
		fmt.Fprintf(b, "\n**%s** (%s): %s\n", prose(string(f.Code)), prose(string(f.Confidence)), prose(f.Sentence))
		quoted(b, "", f.Evidence)
		quoted(b, "Against it:", f.Against)
		fmt.Fprintf(b, "\nIt would be disproved by: %s\n", prose(f.Disproof))
		if f.Remedy.Sentence != "" && f.Remedy.Sentence != first {
			fmt.Fprintf(b, "\n**What fixes it:** %s\n", prose(f.Remedy.Sentence))
		}
		if tried := f.Tried(); tried != "" {
			fmt.Fprintf(b, "\n%s\n", prose(tried))
		}
		if f.Patch != "" {
			b.WriteString("\nThe patch, `patch.yaml`:\n")
			block(b, "yaml", f.Patch)
		}
		if f.Change != "" {
			b.WriteString("\nWhat changes in the manifest:\n")
			block(b, "yaml", f.Change)
		}
		if f.Remedy.Command != "" { // it may use the patch
			block(b, "sh", f.Remedy.Command)
		}
	}
	if r.Decide != "" {
		b.WriteString("\n**What would decide:**\n")
		block(b, "sh", r.Decide)
	}
	listed(b, "Missing:", r.Missing)
	listed(b, "The evidence contradicts itself, or is limited:", r.Notes)
}

// timeline formats the report's timeline as plain text, one line for each moment.
func timeline(r result.Report) string {
	var b strings.Builder
	wide := 0
	for _, m := range r.Timeline {
		wide = max(wide, utf8.RuneCountInString(oneLine(m.Container)))
	}
	for _, m := range r.Timeline {
		fmt.Fprintf(&b, "%-13s %9s  %-*s  %s\n", result.Instant(m.At), result.Since(m.At, r.Timeline[0].At), wide, oneLine(m.Container), oneLine(m.Text))
	}
	return b.String()
}

func quoted(b *strings.Builder, title string, quotes []evidence.Quote) {
	if len(quotes) == 0 {
		return
	}
	if title != "" {
		fmt.Fprintf(b, "\n%s\n", title)
	}
	var text strings.Builder
	for _, q := range quotes {
		if q.At.Known() {
			text.WriteString(result.Instant(q.At) + " ")
		}
		text.WriteString(cut(q.Text, longestLine))
		if q.Source.File != "" {
			fmt.Fprintf(&text, "\n    %s", oneLine(q.Source.Place()))
		}
		text.WriteByte('\n')
	}
	block(b, "text", text.String())
}

func listed(b *strings.Builder, title string, all []string) {
	if len(all) == 0 {
		return
	}
	fmt.Fprintf(b, "\n%s\n\n", title)
	for _, l := range all {
		fmt.Fprintf(b, "- %s\n", prose(l))
	}
}

var backticks = regexp.MustCompile("`+")

// block writes a code block with a fence that is longer than any fence in the text.
func block(b *strings.Builder, language, text string) {
	text = strings.TrimRight(visible.Plain(text), "\n")
	fence := "```"
	for _, run := range backticks.FindAllString(text, -1) {
		if len(run) >= len(fence) {
			fence = run + "`"
		}
	}
	fmt.Fprintf(b, "\n%s%s\n%s\n%s\n", fence, language, text, fence)
}

// special matches the characters that begin markup in CommonMark and GitHub Flavored Markdown.
var special = regexp.MustCompile("[\\\\`*_{}\\[\\]<>#|~!&$]")

// prose escapes text that is outside of code blocks. It also escapes at signs, because GitHub notifies a user whose
// name follows one.
func prose(text string) string {
	return strings.ReplaceAll(special.ReplaceAllString(oneLine(text), `\$0`), "@", "@&#8203;")
}

// oneLine replaces line breaks and tabs by spaces, and removes invisible characters.
func oneLine(text string) string {
	return visible.Plain(strings.Join(strings.FieldsFunc(text, func(r rune) bool { return r == '\n' || r == '\t' || r == '\r' }), " "))
}

// cut truncates a text after the given number of characters.
func cut(text string, most int) string {
	for i := range text {
		if most == 0 {
			return text[:i] + " …"
		}
		most--
	}
	return text
}
