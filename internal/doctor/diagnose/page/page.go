// Package page prints the reports of a diagnosis: as text, JSON, YAML, Markdown, an SVG picture, or
// one self-contained HTML page. It reads only the reports, so that each form says the same.
//
// The quotes in a report were written by others. They are cut to a bounded length, their control
// characters are made harmless, and each form escapes them where it writes them, so that no log can
// add markup.
package page

import (
	"encoding/json"
	"fmt"
	"io"

	"sigs.k8s.io/yaml"

	"outrider.dev/internal/doctor/diagnose"
)

// Formats are the formats that [Write] supports.
var Formats = []string{"text", "json", "yaml", "md", "svg", "html"}

// Options of a page.
type Options struct {
	Format  string // one of Formats
	Fleet   bool   // all pods on one page, by time to ready, instead of one after the other
	Columns int    // width of the terminal; only for text
	Colour  bool   // the terminal shows colours; only for text
}

// These limit what a page shows. The page tells how much was left out.
const (
	longestLine = 500  // characters of a log line
	longestName = 120  // characters of a pod's or container's name
	mostMarks   = 200  // marks of one container
	mostLines   = 1000 // log lines on a page
	mostPods    = 40   // pods with their timelines
	mostRows    = 2000 // rows of a fleet
)

// Check returns an error if the options do not describe a valid page.
func (o Options) Check() error {
	if o.Fleet && (o.Format == "svg" || o.Format == "md") {
		return fmt.Errorf("--all has no -o %s: want text, json, yaml or html", o.Format)
	}
	return nil
}

// Write writes the reports.
func Write(w io.Writer, reports []diagnose.Report, o Options) error {
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
		_, err := io.WriteString(w, Markdown(reports))
		return err
	case "svg":
		_, err := io.WriteString(w, SVG(reports))
		return err
	}
	for i, r := range reports {
		if i > 0 {
			fmt.Fprintln(w)
		}
		if err := writeText(w, r, o); err != nil {
			return err
		}
	}
	return nil
}
