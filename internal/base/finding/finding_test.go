package finding

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"outrider.dev/internal/base/cli/visible"
)

var sample = []Finding{
	{Code: "sleep", Severity: Warning, Title: "app sleeps", Object: Object{"Pod", "shop", "a"}, Place: Place{"b.yaml", 7, 20, 8, `    command: [sh, -c, "sleep 5; /app"]`, 0},
		Field: "spec.containers[0].command[2]", Evidence: "sleep 5", Why: "it guesses", Remedy: Remedy{"ask", "outrider lint -f b.yaml --fix"}, Source: "measured",
		Fix: &Patch{File: "b.yaml", Edits: []Edit{{Start: 3, End: 5, Text: "x", From: Position{1, 4}, To: Position{1, 6}}, {Start: 9, End: 12, From: Position{1, 10}, To: Position{2, 1}}}}},
	{Code: "cycle", Severity: Error, Title: "a waits for b", Object: Object{Kind: "Job", Name: "b"}, Place: Place{File: "a b.yaml"}, Why: "none starts"},
	{Code: "hint", Severity: Note, Title: "no file", Object: Object{Kind: "Pod"}},
}

var kinds = []Kind{
	{"cycle", "containers wait for one another", Error, "None of them starts.", "lint.md#cycle"},
	{"sleep", "a command sleeps", Warning, "It guesses.", "lint.md#sleep"},
	{"hint", "a hint", Note, "It helps.", "lint.md#hint"},
}

func TestSortIsByFileAndPlace(t *testing.T) {
	got := []Finding{
		{Code: "b", Place: Place{File: "b", Line: 2}}, {Code: "b", Place: Place{File: "a", Line: 10}}, {Code: "a", Place: Place{File: "a", Line: 10}},
		{Code: "c", Place: Place{File: "a", Line: 9}}, {Code: "a", Place: Place{File: "a", Line: 10, Column: 3}},
	}
	Sort(got)
	var order []string
	for _, f := range got {
		order = append(order, fmt.Sprint(f.File, f.Line, f.Code))
	}
	if d := cmp.Diff([]string{"a9c", "a10a", "a10b", "a10a", "b2b"}, order); d != "" {
		t.Error(d)
	}
}

func TestSelectTakesTheSeverityAndWorse(t *testing.T) {
	for least, want := range map[Severity]int{Note: 3, Warning: 2, Error: 1} {
		if got := len(Select(sample, least)); got != want {
			t.Errorf("%s: %d findings, want %d", least, got, want)
		}
	}
}

func TestPatchChangesOnlyWhatItCovers(t *testing.T) {
	tests := map[string]struct {
		edits []Edit
		want  string
	}{
		"edits in any order":         {[]Edit{{Start: 5, End: 6, Text: "F"}, {Start: 0, End: 1, Text: "AA"}}, "AAbcdeFg"},
		"two insertions, one place":  {[]Edit{{Start: 2, End: 2, Text: "1"}, {Start: 2, End: 2, Text: "2"}}, "ab12cdefg"},
		"at the end":                 {[]Edit{{Start: 7, End: 7, Text: "!"}}, "abcdefg!"},
		"an overlap is refused":      {[]Edit{{Start: 0, End: 3}, {Start: 2, End: 4}}, ""},
		"beyond the text is refused": {[]Edit{{Start: 0, End: 8}}, ""},
		"backwards is refused":       {[]Edit{{Start: 3, End: 2}}, ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := (&Patch{File: "f", Edits: tt.edits}).Apply([]byte("abcdefg"))
			if (err != nil) != (tt.want == "") || string(got) != tt.want {
				t.Errorf("%q, %v; want %q", got, err, tt.want)
			}
		})
	}
}

func TestTextShowsTheEvidence(t *testing.T) {
	var b strings.Builder
	if err := WriteText(&b, sample, false); err != nil {
		t.Fatal(err)
	}
	want := `Pod shop/a  b.yaml

  warning: app sleeps [sleep]
    7 | command: [sh, -c, "sleep 5; /app"]
      |                ^^^^^^^^
    at     spec.containers[0].command[2]
    why    it guesses
    known  measured
    do     ask
    run    outrider lint -f b.yaml --fix

Job b  a b.yaml

  error: a waits for b [cycle]
    why    none starts

Pod  

  note: no file [hint]
`
	if d := cmp.Diff(want, b.String()); d != "" {
		t.Error(d)
	}
	if got := Summary(sample); got != "1 error, 1 warning, 1 note" {
		t.Error(got)
	}
	if got := Summary(nil); got != "no findings" {
		t.Error(got)
	}
}

func TestColoursAreOnlyAdded(t *testing.T) {
	var plain, coloured strings.Builder
	for b, colour := range map[*strings.Builder]bool{&plain: false, &coloured: true} {
		if err := WriteText(b, sample, colour); err != nil {
			t.Fatal(err)
		}
	}
	var forged strings.Builder
	if err := WriteText(&forged, []Finding{{Title: "\x1b[32mall is well\x1b[0m"}}, true); err != nil || strings.Contains(forged.String(), "\x1b[") {
		t.Errorf("colours of a name: %v, %q", err, forged.String())
	}
	text := coloured.String()
	for _, code := range []string{"0", bold, faint, red, green, yellow, cyan} {
		text = strings.ReplaceAll(text, visible.Colour(code), "")
	}
	if text != plain.String() || text == coloured.String() {
		t.Errorf("without its colours:\n%q\nwant:\n%q", text, plain.String())
	}
}

// A long line is cut so that the evidence is shown, with the mark below it.
func TestLongLinesKeepTheirEvidence(t *testing.T) {
	line := strings.Repeat("é", 200) + "HERE" + strings.Repeat("x", 200)
	var b strings.Builder
	if err := WriteText(&b, []Finding{{Place: Place{File: "f", Line: 1, Column: 201, Width: 4, Text: line}}}, false); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(b.String(), "\n")
	shown, marks := []rune(lines[3]), []rune(lines[4])
	at := strings.Index(string(marks), "^^^^")
	if at < 0 || len(marks) != at+4 || string(shown[at:at+4]) != "HERE" || len(shown) > 120 {
		t.Errorf("%s\n%s", string(shown), string(marks))
	}
}

func TestJSONIsAListEvenOfNothing(t *testing.T) {
	var b bytes.Buffer
	if err := WriteJSON(&b, nil); err != nil || strings.TrimSpace(b.String()) != "[]" {
		t.Errorf("%v: %s", err, b.String())
	}
	b.Reset()
	if err := WriteJSON(&b, sample); err != nil {
		t.Fatal(err)
	}
	var back []struct {
		Code, File, Field string
		Line              int
		Remedy            struct{ Command string }
		Fix               *struct{ Edits []struct{ Start, End int } }
	}
	if err := json.Unmarshal(b.Bytes(), &back); err != nil || back[0].File != "b.yaml" || back[0].Line != 7 || len(back[0].Fix.Edits) != 2 || back[1].Fix != nil {
		t.Errorf("%v: %+v", err, back)
	}
}

// The findings of sample are written as testdata/sample.sarif, which is valid by the schema of SARIF 2.1.0.
func TestSARIF(t *testing.T) {
	const golden = "testdata/sample.sarif"
	var b bytes.Buffer
	if err := WriteSARIF(&b, Tool{Name: "outrider", Version: "1.0", Pages: "https://example.com/", Kinds: kinds}, sample); err != nil {
		t.Fatal(err)
	}
	if os.Getenv("UPDATE") != "" {
		if err := os.WriteFile(golden, b.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), b.String()); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}
