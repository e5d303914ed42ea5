package view

import (
	"encoding/xml"
	"fmt"
	"io"
	"strings"

	"outrider.dev/internal/base/cli"
	"outrider.dev/internal/base/cli/visible"
	"outrider.dev/internal/base/manifest"
	"outrider.dev/internal/ops/check"
)

// CheckOutputs lists the formats of [Checks]; the first is the default.
var CheckOutputs = []string{"table", "json", "junit"}

// mostObjects is the largest number of objects that a table lists for one check.
const mostObjects = 20

// Checks prints checks of a cluster; suite is their name in JUnit. A table lists only some of the objects of each
// check.
func Checks(w io.Writer, terminal cli.Terminal, output, suite string, all []check.Check) error {
	switch output {
	case "json":
		return cli.WriteJSON(w, all)
	case "junit":
		return junit(w, suite, all)
	}
	p := &printer{Terminal: terminal}
	id := 0
	shown := check.Summary(all, mostObjects)
	for _, c := range shown {
		id = max(id, len(c.ID))
	}
	colours := map[check.Result]string{check.OK: green, check.Warning: yellow, check.Failed: red, check.Skipped: faint}
	const results = len("warning")
	indent := strings.Repeat(" ", results+2+id+2)
	for _, c := range shown {
		reason := c.Reason
		if c.Object != "" {
			reason = c.Object + ": " + reason
		}
		head := p.paint(colours[c.Result], fmt.Sprintf("%-*s", results, c.Result)) + "  " + fmt.Sprintf("%-*s", id, c.ID) + "  "
		// Commands in a hint are not wrapped, so that they can be copied.
		for i, line := range wrap(reason, max(width-len(indent), 40)) {
			if i > 0 {
				head = indent
			}
			p.line("%s%s", head, line)
		}
		if c.Hint != "" {
			p.line("%s%s", indent, p.paint(bold, "hint: "+c.Hint))
		}
		if c.Result == check.Failed || c.Result == check.Warning {
			p.line("%s%s", indent, p.paint(faint, c.Link))
		}
	}
	p.line("%s", checksSummary(all))
	return p.print(w)
}

func checksSummary(all []check.Check) string {
	n := map[check.Result]int{}
	for _, c := range all {
		n[c.Result]++
	}
	text := fmt.Sprintf("%s: %d ok", plural(len(all), "check"), n[check.OK])
	for _, r := range []check.Result{check.Warning, check.Failed, check.Skipped} {
		if n[r] > 0 {
			text += fmt.Sprintf(", %d %s", n[r], r)
		}
	}
	return text
}

// Manifest prints objects as their YAML text, or as a JSON list.
func Manifest(w io.Writer, output, text string) error {
	if output != "json" {
		_, err := io.WriteString(w, text)
		return err
	}
	list := map[string]any{"apiVersion": "v1", "kind": "List", "items": []any{}}
	var items []any
	for document := range strings.SplitSeq("\n"+text, "\n---") {
		var o map[string]any
		if err := manifest.Decode([]byte(document), &o); err != nil {
			return err
		}
		if len(o) > 0 {
			items = append(items, o)
		}
	}
	list["items"] = items
	return cli.WriteJSON(w, list)
}

// JUnit's XML format, which CI systems read. There is no standard for it; CI systems accept these fields.
type (
	testsuite struct {
		XMLName  xml.Name   `xml:"testsuite"`
		Name     string     `xml:"name,attr"`
		Tests    int        `xml:"tests,attr"`
		Failures int        `xml:"failures,attr"`
		Skipped  int        `xml:"skipped,attr"`
		Cases    []testcase `xml:"testcase"`
	}
	testcase struct {
		Class   string   `xml:"classname,attr"`
		Name    string   `xml:"name,attr"`
		Failure *outcome `xml:"failure"`
		Skipped *outcome `xml:"skipped"`
		Output  string   `xml:"system-out,omitempty"`
	}
	outcome struct {
		Message string `xml:"message,attr"`
		Text    string `xml:",chardata"`
	}
)

// junit prints checks as test cases. A warning passes, and its reason becomes the output.
func junit(w io.Writer, suite string, all []check.Check) error {
	out := testsuite{Name: suite, Tests: len(all)}
	for _, c := range all {
		t := testcase{Class: suite, Name: strings.TrimSpace(c.ID + " " + c.Object)}
		reason := visible.Plain(c.Reason)
		text := visible.Plain(strings.Join(append(strings.Fields(c.Hint), c.Link), " "))
		switch c.Result {
		case check.Failed:
			t.Failure = &outcome{reason, text}
			out.Failures++
		case check.Skipped:
			t.Skipped = &outcome{reason, text}
			out.Skipped++
		default:
			t.Output = string(c.Result) + ": " + reason
		}
		out.Cases = append(out.Cases, t)
	}
	if _, err := io.WriteString(w, xml.Header); err != nil {
		return err
	}
	e := xml.NewEncoder(w)
	e.Indent("", "  ")
	if err := e.Encode(out); err != nil {
		return err
	}
	_, err := io.WriteString(w, "\n")
	return err
}
