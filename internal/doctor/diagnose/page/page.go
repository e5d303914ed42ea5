// Package page prints the reports of a diagnosis: as text, JSON, YAML, Markdown, an SVG picture, or
// one HTML page that needs nothing else. It reads reports alone, so that each form says the same.
//
// What a report quotes was written by others. It is cut to a bounded length, control characters are
// made harmless, and each form escapes it where it writes it: nothing of a log becomes markup.
package page

import (
	"encoding/json"
	"fmt"
	"io"

	"sigs.k8s.io/yaml"

	"outrider.dev/internal/doctor/diagnose"
)

// Formats are what [Write] writes.
var Formats = []string{"text", "json", "yaml", "md", "svg", "html"}

// Options of a page.
type Options struct {
	Format  string // one of Formats
	Fleet   bool   // all pods by time to ready, instead of one after the other
	Columns int    // of the terminal; text
	Colour  bool   // the terminal shows colours; text
}

// Limits of what a page shows. What is beyond them is counted on the page.
const (
	longestLine = 500  // characters of a line of a log
	longestName = 120  // of a pod or a container
	mostMarks   = 200  // of one container
	mostLines   = 1000 // lines of logs on a page
	mostPods    = 40   // with their timelines
	mostRows    = 2000 // of a fleet
)

// Check says whether there is such a page.
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
