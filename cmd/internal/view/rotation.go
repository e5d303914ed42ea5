package view

import (
	"fmt"
	"io"
	"time"

	"outrider.dev/internal/base/cli"
	"outrider.dev/internal/base/cli/visible"
	"outrider.dev/internal/core/controlplane/ca"
)

// Rotation prints the mesh's roots and the progress of a rotation, as a table or as JSON.
func Rotation(w io.Writer, output string, s ca.RotationStatus) error {
	if output == "json" {
		return cli.WriteJSON(w, struct {
			ca.RotationStatus
			Step string `json:"step,omitempty"`
		}{s, s.Step()})
	}
	rows := [][]string{{"CERTIFICATE", "STATE", "EXPIRES", "SHA256", "SUBJECT"}}
	add := func(kind string, r ca.RootStatus) {
		state := string(r.State)
		switch at := r.Until.UTC().Format(time.RFC3339); r.State {
		case ca.RootNext:
			state += ", signs from " + at
		case ca.RootRetiring:
			state += ", removed at " + at
		}
		rows = append(rows, []string{kind, state, r.NotAfter.Format(time.DateOnly), r.SHA256, visible.Plain(r.Subject)})
	}
	for _, r := range s.Roots {
		add("root", r)
	}
	if s.Intermediate != nil {
		add("intermediate", *s.Intermediate)
	}
	if err := table(w, rows); err != nil {
		return err
	}
	step := s.Step()
	switch {
	case s.Foreign != "":
		step = "not by outriderd; " + s.Instead()
	case step == "":
		step = "none"
	}
	_, err := fmt.Fprintf(w, "rotation: %s\n", step)
	return err
}
