// Package page prints the reports of a diagnosis: as text, JSON, YAML, Markdown, an SVG picture, or
// one self-contained HTML page. All formats have the same content, because nothing but the reports is
// read.
//
// The quotes in a report were written by others. They are cut to a bounded length, control characters
// are made harmless, and each format escapes the quotes, so that no log can add markup.
package page

import (
	"encoding/json"
	"fmt"
	"io"

	"sigs.k8s.io/yaml"

	"outrider.dev/internal/doctor/diagnose/result"
)

// Formats are the formats that [Write] supports.
var Formats = []string{"text", "json", "yaml", "md", "svg", "html"}

// Options of a page.
type Options struct {
	Format  string // one of Formats
	Fleet   bool   // one row for each pod, the slowest start first, instead of one report after the other
	Columns int    // width of the terminal; only for text
	Colour  bool   // the terminal shows colours; only for text
}

// Limits of a page. The page says how much was left out.
const (
	longestLine = 500  // characters of a log line
	longestName = 120  // characters of a pod's or container's name
	mostMarks   = 200  // marks of one container
	mostLines   = 1000 // log lines on a page
	mostPods    = 40   // pods that are shown with their timelines
	mostRows    = 2000 // rows of a fleet
)

// Check returns an error if the format has no page for a fleet.
func (o Options) Check() error {
	if o.Fleet && o.Format == "svg" {
		return fmt.Errorf("--all has no -o %s: want text, json, yaml, md or html", o.Format)
	}
	return nil
}

// Write writes the reports in the format of the options; an unknown format means text.
func Write(w io.Writer, reports []result.Report, o Options) error {
	switch {
	case o.Format == "html" && o.Fleet:
		return FleetHTML(w, reports)
	case o.Format == "html":
		return HTML(w, reports)
	case o.Fleet && o.Format == "text":
		return FleetText(w, reports, o.Columns)
	}
	switch o.Format {
	case "json", "yaml":
		text, err := json.MarshalIndent(reports, "", "  ")
		if err == nil && o.Format == "yaml" {
			text, err = yaml.JSONToYAML(text)
		}
		if err != nil {
			return err
		}
		_, err = fmt.Fprintln(w, string(text))
		return err
	case "md":
		text := Markdown(reports)
		if o.Fleet {
			text = fleetMarkdown(reports)
		}
		_, err := io.WriteString(w, text)
		return err
	case "svg":
		_, err := io.WriteString(w, SVG(reports))
		return err
	}
	return writeTexts(w, reports, o)
}
