package page

import (
	"bytes"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"outrider.dev/internal/base/cli/visible"
	"outrider.dev/internal/doctor/diagnose"
)

// Colours change no word and no line, and are not removed when text is made harmless for a terminal.
func TestColours(t *testing.T) {
	colour := regexp.MustCompile(visible.Colour("[0-9;]*"))
	for name, begins := range map[string]string{"awesome-app": visible.Colour("31"), "clean": visible.Colour("32")} {
		reports := []diagnose.Report{incident(t, name)}
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
