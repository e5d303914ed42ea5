package view

import (
	"fmt"
	"io"

	"outrider.dev/internal/base/cli"
	"outrider.dev/internal/base/cli/visible"
	"outrider.dev/internal/ops/report"
)

// Versions prints the versions of this command, of the control plane and of the proxies. The parameter command is the
// name of this command.
func Versions(w io.Writer, output, command string, v report.Versions) error {
	if output == "json" {
		return cli.WriteJSON(w, v)
	}
	if _, err := fmt.Fprintf(w, "%s %s\n", command, v.Client); err != nil {
		return err
	}
	var rows [][]string
	for _, r := range v.ControlPlane {
		version := r.Version.Version
		switch {
		case version == "":
			version = "no answer: " + r.Problem
		case r.Version.Envoy != "":
			version += ", for Envoy " + r.Version.Envoy
		}
		rows = append(rows, []string{"control plane", r.Name, visible.Plain(version)})
	}
	for _, p := range v.Proxies {
		version := "version not known"
		if p.Agent != "" {
			version = p.Agent
		}
		if p.Envoy != "" {
			version += ", Envoy " + p.Envoy
		}
		rows = append(rows, []string{"proxies", plural(p.Pods, "pod"), visible.Plain(version + ", image " + p.Image)})
	}
	switch {
	case v.Problem != "":
		rows = append(rows, []string{"cluster", "not known: " + visible.Plain(v.Problem)})
	case len(v.ControlPlane) > 0 && len(v.Proxies) == 0:
		rows = append(rows, []string{"proxies", "none"})
	}
	return table(w, rows)
}
