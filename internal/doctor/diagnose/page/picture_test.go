package page

import (
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"

	"outrider.dev/internal/doctor/diagnose/result"
)

func TestSVG(t *testing.T) {
	golden(t, "testdata/awesome-app.svg", SVG(kept(t)))
}

// elements returns the number of XML elements by name.
func elements(t *testing.T, text string) map[string]int {
	t.Helper()
	out := map[string]int{}
	for d := xml.NewDecoder(strings.NewReader(text)); ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Fatalf("%v in\n%s", err, text)
		}
		if e, ok := token.(xml.StartElement); ok {
			out[e.Name.Local]++
		}
	}
}

// Hostile text, for example in a log, never becomes an element of the picture.
func TestSVGOfHostileText(t *testing.T) {
	for _, text := range hostile {
		got := elements(t, SVG([]result.Report{poisoned(t, text), incident(t, "clean")}))
		for _, e := range []string{"script", "img", "image", "a", "foreignObject", "b"} {
			if got[e] > 0 {
				t.Errorf("%q: %d elements %s", text, got[e], e)
			}
		}
		if got["svg"] != 1 || got["desc"] != 1 || got["style"] != 1 || got["rect"] < 5 {
			t.Errorf("%q: %v", text, got)
		}
	}
}

// Every incident can be drawn, and pods beyond the limit are counted.
func TestSVGOfMany(t *testing.T) {
	for _, r := range all(t) {
		if got := elements(t, SVG([]result.Report{r})); got["text"] < 2 {
			t.Errorf("%s: %v", r.Pod, got)
		}
	}
	var many []result.Report
	for range mostPods + 7 {
		many = append(many, incident(t, "clean"))
	}
	if got := SVG(many); !strings.Contains(got, "7 more pods are not shown") {
		t.Error("does not say that pods are left out")
	}
}
