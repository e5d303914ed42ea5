package page

import (
	"bytes"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"outrider.dev/internal/base/cli/visible"
	"outrider.dev/internal/doctor/diagnose/result"
)

// Colours change no word and no line, and are not removed when text is made harmless for a terminal.
func TestColours(t *testing.T) {
	colour := regexp.MustCompile(visible.Colour("[0-9;]*"))
	for name, begins := range map[string]string{"awesome-app": visible.Colour("31"), "clean": visible.Colour("32")} {
		reports := []result.Report{incident(t, name)}
		var plain, painted bytes.Buffer
		for w, coloured := range map[*bytes.Buffer]bool{&plain: false, &painted: true} {
			if err := Write(w, reports, Options{Format: "text", Columns: 80, Colour: coloured}); err != nil {
				t.Fatal(err)
			}
		}
		if d := cmp.Diff(plain.String(), colour.ReplaceAllString(painted.String(), "")); d != "" {
			t.Errorf("%s (-plain +painted):\n%s", name, d)
		}
		if !strings.HasPrefix(painted.String(), begins) || strings.Contains(plain.String(), "\x1b") || visible.Text(painted.String()) != painted.String() {
			t.Errorf("%s: %q", name, painted.String())
		}
	}
}

// A command that uses a patch comes after the patch, and a part of a manifest is shown as such.
func TestThePatchComesBeforeItsCommand(t *testing.T) {
	for _, format := range []string{"text", "md", "html"} {
		for title, change := range map[string]func(*result.Finding){ // in any order: each is reported
			"patch.yaml":                   func(*result.Finding) {},
			"What changes in the manifest": func(f *result.Finding) { f.Patch, f.Change = "", f.Patch },
		} {
			r := incident(t, "awesome-app")
			f := &r.Findings[0]
			change(f)
			f.Remedy.Command = "kubectl use-the-file"
			var b bytes.Buffer
			if err := Write(&b, []result.Report{r}, Options{Format: format, Columns: 200}); err != nil {
				t.Fatal(err)
			}
			text := b.String()
			if _, article, is := strings.Cut(text, "<article>"); is {
				text = article
			}
			titled, shown, command := strings.LastIndex(text, title), strings.LastIndex(text, "holdApplication"), strings.LastIndex(text, "kubectl use-the-file")
			if titled < 0 || titled > shown || shown > command {
				t.Errorf("%s: %q is at %d, the patch at %d, the command at %d:\n%s", format, title, titled, shown, command, text)
			}
		}
	}
}

// The remedy stands right below the cause, once; of an undecided diagnosis nothing is advised there.
func TestWhatToDoComesFirst(t *testing.T) {
	r := incident(t, "awesome-app")
	do := r.Findings[0].Remedy.Sentence
	for format, want := range map[string]string{"text": r.Sentence + "\nDo: " + do + "\n", "md": "\n\n**Do:** "} { // in any order: each is reported
		for verdict, times := range map[result.Verdict]int{result.Found: 1, result.Undecided: 0} { // in any order: each is reported
			r.Verdict = verdict
			var b bytes.Buffer
			if err := Write(&b, []result.Report{r}, Options{Format: format, Columns: 500}); err != nil {
				t.Fatal(err)
			}
			if strings.Count(b.String(), want) != times || strings.Count(b.String(), do) != 1 && format == "text" {
				t.Errorf("%s, %s:\n%s", format, verdict, &b)
			}
		}
	}
}
