package page

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"outrider.dev/internal/doctor/diagnose"
	"outrider.dev/internal/doctor/diagnose/result"
	"outrider.dev/internal/doctor/evidence"
	"outrider.dev/internal/doctor/evidence/gather"
)

const incidents = "../../../../testdata/incidents"

// incident returns the report on an incident of the corpus.
func incident(t testing.TB, name string) result.Report {
	t.Helper()
	return diagnosed(t, filepath.Join(incidents, name))
}

func diagnosed(t testing.TB, folder string) result.Report {
	t.Helper()
	set, err := gather.Read(t.Context(), gather.Options{}, folder)
	if err != nil {
		t.Fatal(err)
	}
	r, err := diagnose.Diagnose(t.Context(), set.Pods[0], diagnose.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// all returns the reports on all incidents of the corpus.
func all(t testing.TB) (out []result.Report) {
	t.Helper()
	folders, err := os.ReadDir(incidents)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range folders {
		if f.IsDir() {
			out = append(out, incident(t, f.Name()))
		}
	}
	return out
}

// hostile lists texts that would be markup or control a terminal if a format did not escape them.
var hostile = []string{
	"<script>alert(1)</script>", "]]>", "</style><style>*{display:none}", "</script><img src=x onerror=alert(1)>", "<!--", "```\n# heading\n```", "~~~", "| a | b |\n|---|---|",
	"\u202egnp.exe", "\x1b[2J\x07", "\xff\xfe", "{{.}}", "javascript:alert(1)", "'\" onmouseover=alert(1) x='", "<svg onload=alert(1)>", "[x](https://example.com)", "![x](https://example.com/p.png)", "@team", "&lt;b&gt;", "a\r\nb",
}

// poisoned returns a report in which text replaces every text that comes from the evidence.
func poisoned(t testing.TB, text string) result.Report {
	t.Helper()
	r := incident(t, "awesome-app")
	r.Pod, r.Sentence, r.Decide = text, text, text
	r.Missing, r.Notes = []string{text}, []string{text}
	r.Group = &result.Group{Sentence: text, Remedy: text, Pods: 2, Of: 3, Workloads: []string{text}, Common: []string{text}, Changes: []evidence.Quote{{Text: text, Source: evidence.Source{File: text}}}, Members: []string{text, text}}
	for i := range r.Timeline {
		r.Timeline[i].Container, r.Timeline[i].Text = text, text
	}
	for i := range r.Findings {
		f := &r.Findings[i]
		f.Sentence, f.Container, f.Disproof, f.Patch, f.Change = text, text, text, text, text
		f.Remedy.Sentence, f.Remedy.Command = text, text
		if f.Replay != nil {
			f.Replay.Assumed = []string{text}
		}
		f.Against = append(f.Against, evidence.Quote{Text: text})
		for j := range f.Evidence {
			f.Evidence[j].Text, f.Evidence[j].Source.File = text, text
		}
	}
	for i := range r.Tracks {
		t := &r.Tracks[i]
		t.Container = text
		for j := range t.Runs {
			t.Runs[j].Ended = text
		}
		for j := range t.Marks {
			t.Marks[j].Text, t.Marks[j].About, t.Marks[j].Source.File = text, text, text
		}
	}
	return r
}

// Each format that shows findings also shows the result of the replay.
func TestReplayIsShown(t *testing.T) {
	reports := []result.Report{incident(t, "awesome-app")}
	for _, format := range []string{"text", "md", "html"} {
		var b strings.Builder
		if err := Write(&b, reports, Options{Format: format, Columns: 1000}); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(b.String(), "with the hold 0 refused calls, 0 restarts") {
			t.Errorf("-o %s has no replay:\n%s", format, b.String())
		}
	}
}
