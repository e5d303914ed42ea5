package gather

import (
	_ "embed"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"outrider.dev/internal/doctor/evidence"
)

//go:embed testdata/tickets.txtar
var ticketFiles []byte

//go:embed testdata/attributed.txtar
var attributedFiles []byte

// A log that no command names goes to the container that a word, a form, a prefix or the rest of the evidence shows, and to
// none if something speaks against it.
func TestAttributed(t *testing.T) { readFolders(t, attributedFiles) }

// Folders of people, in several styles, with what is read of them: half of them say things that must not be read.
func TestTickets(t *testing.T) { readFolders(t, ticketFiles) }

// readFolders reads the folders of an archive, and compares what is read with the file want in each.
func readFolders(t *testing.T, archive []byte) {
	t.Helper()
	cases, want := map[string]map[string]string{}, map[string]string{}
	for _, f := range txtar.Parse(archive).Files {
		name, file, _ := strings.Cut(f.Name, "/")
		if cases[name] == nil {
			cases[name] = map[string]string{}
		}
		if file == "want" {
			want[name] = strings.TrimSpace(string(f.Data))
		} else {
			cases[name][file] = string(f.Data)
		}
	}
	right := 0
	for _, name := range slices.Sorted(maps.Keys(cases)) {
		s, err := Read(t.Context(), Options{}, folder(t, cases[name]))
		got := "no pod"
		if err == nil {
			got = ticketSummary(s)
		}
		if got == want[name] {
			right++
			continue
		}
		t.Errorf("%s: %s\nwant: %s", name, got, want[name])
		if err == nil {
			for _, line := range s.Left() {
				t.Log(line)
			}
		}
	}
	t.Logf("%d of %d", right, len(cases))
}

// ticketSummary returns a line for each pod: its containers with their restarts, the exit code of the last run that ended,
// and the runs of its logs (-: not known).
func ticketSummary(s *evidence.Set) string {
	var lines []string
	for _, p := range s.Pods {
		line := p.Name()
		if p.Row != nil {
			line += " row"
		}
		for _, c := range p.Containers {
			line += fmt.Sprintf(" %s(%d", c.Name, c.Restarts)
			for _, r := range slices.Backward(c.Runs) {
				if r.Exit != nil {
					line += fmt.Sprintf(" exit %d", *r.Exit)
					break
				}
			}
			if c.Waiting != nil {
				line += " " + c.Waiting.Reason
			}
			for _, l := range c.Logs {
				run := "-"
				if l.Run >= 0 {
					run = fmt.Sprint(l.Run)
				}
				line += fmt.Sprintf(" log %s", run)
			}
			line += ")"
		}
		if len(p.Events) > 0 {
			line += fmt.Sprintf(" events %d", len(p.Events))
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "\n")
}
