package page

import (
	"encoding/json"
	"flag"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"outrider.dev/internal/doctor/diagnose/result"
)

var update = flag.Bool("update", false, "write the golden files")

// golden compares a text with a file or, with -update, writes the file.
func golden(t *testing.T, file, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

func TestMarkdown(t *testing.T) {
	golden(t, "testdata/awesome-app.md", Markdown(kept(t)))
}

// kept returns reports from a file, which do not change when the rules change.
func kept(t *testing.T) (out []result.Report) {
	t.Helper()
	text, err := os.ReadFile("testdata/awesome-app.json")
	if err == nil {
		err = json.Unmarshal(text, &out)
	}
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// blocks returns a text without its code blocks, and whether a block is open at the end. By CommonMark's rule, a
// block ends at a fence that is at least as long as its first fence.
func blocks(text string) (outside string, open bool) {
	var b strings.Builder
	fence := ""
	for line := range strings.Lines(text) {
		run := regexp.MustCompile("^ {0,3}(`{3,}|~{3,})").FindString(line)
		run = strings.TrimLeft(run, " ")
		switch {
		case fence == "" && run != "":
			fence = run
		case fence != "" && strings.HasPrefix(run, fence) && strings.Trim(line, " `~\n") == "":
			fence = ""
		case fence == "":
			b.WriteString(line)
		}
	}
	return b.String(), fence != ""
}

// Hostile text, for example in a log, cannot end a code block, and does not become markup outside of code blocks.
func TestMarkdownOfHostileText(t *testing.T) {
	markup := regexp.MustCompile("(^|[^\\\\])[`<>|\\[\\]!~]|@[^&]")
	for _, text := range hostile {
		got := Markdown([]result.Report{poisoned(t, text), incident(t, "clean")})
		outside, open := blocks(got)
		if open || !strings.Contains(outside, "nothing is wrong") {
			t.Errorf("%q: a block is open at the end, or ends too late, in\n%s", text, got)
		}
		for line := range strings.Lines(outside) {
			line = strings.ReplaceAll(strings.TrimRight(line, "\n"), "The patch, `patch.yaml`:", "")
			if at := markup.FindString(line); at != "" {
				t.Errorf("%q: %q is markup in %q", text, at, line)
			}
			if strings.HasPrefix(line, "#") && !strings.HasPrefix(line, "### ") {
				t.Errorf("%q: a heading: %q", text, line)
			}
		}
		if strings.ContainsAny(got, "\x1b\x07\r\u202e") || strings.Contains(got, "\xff") {
			t.Errorf("%q: control characters in\n%q", text, got)
		}
	}
}
