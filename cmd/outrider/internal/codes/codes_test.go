package codes

import (
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"outrider.dev/internal/base/finding"
	"outrider.dev/internal/doctor/lint/kinds"
)

var update = flag.Bool("update", false, "write the pages")

const pages = "../../../../docs/findings"

// Each code has a page, and each page belongs to a code.
func TestPages(t *testing.T) {
	want := map[string]string{"README.md": Index()}
	for _, c := range All() {
		want[string(c.Code)+".md"] = Page(c)
	}
	there, err := filepath.Glob(pages + "/*.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range there {
		if _, has := want[filepath.Base(path)]; has {
			continue
		}
		if !*update {
			t.Errorf("%s is the page of no code", path)
		} else if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range want { // any order: the pages are independent
		path := filepath.Join(pages, name)
		if *update {
			if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		is, err := os.ReadFile(path)
		if d := cmp.Diff(text, string(is)); err != nil || d != "" {
			t.Errorf("%s: %v (-want +got):\n%s\nwrite the pages by: go test ./cmd/outrider/internal/codes -update", path, err, d)
		}
	}
}

// Each code has a title, a severity, an explanation and a page.
func TestAll(t *testing.T) {
	by := map[string]bool{}
	for _, c := range All() {
		if c.Title == "" || c.Severity == "" || strings.TrimSpace(c.Explanation) == "" {
			t.Errorf("%s is not explained: %+v", c.Code, c)
		}
		checkDo(t, c)
		if c.Doc != "findings/"+string(c.Code)+".md" {
			t.Errorf("%s: its page is %s", c.Code, c.Doc)
		}
		for _, command := range c.By {
			by[command] = true
		}
	}
	if len(by) != 3 {
		t.Errorf("codes are found by %v", by)
	}
}

// checkDo fails the test if a code does not say what to do by commands that a terminal of 80 columns shows as they are
// pasted. That the commands exist is tested in test/docs.
func checkDo(t *testing.T, c finding.Entry) {
	blocks := regexp.MustCompile("(?ms)^```sh\n(.*?)^```$").FindAllStringSubmatch(c.Do, -1)
	if len(blocks) == 0 || strings.Count(c.Do, "```") != 2*len(blocks) {
		t.Errorf("%s does not say what to do, by commands in sh blocks:\n%s", c.Code, c.Do)
	}
	for _, b := range blocks {
		for line := range strings.Lines(b[1]) {
			if strings.TrimSpace(line) == "" || len(line) > 76+len("\n") {
				t.Errorf("%s: a line of commands is empty, or too long for a terminal: %q", c.Code, line)
			}
		}
	}
	for _, m := range regexp.MustCompile("`[^`\n]{79,}`").FindAllString(c.Do, -1) {
		t.Errorf("%s: a command is too long for a terminal, which an sh block could fold: %s", c.Code, m)
	}
	for _, m := range regexp.MustCompile(`--only ([\w,-]+)`).FindAllStringSubmatch(c.Do, -1) {
		for code := range strings.SplitSeq(m[1], ",") {
			if _, err := kinds.Of(code); err != nil {
				t.Errorf("%s: lint has no code %s", c.Code, code)
			}
		}
	}
	if m := regexp.MustCompile(`(?m)^\{\w*\}$`).FindString(c.Do); m != "" {
		t.Errorf("%s: there is no block %s", c.Code, m)
	}
}

// The sections are in the order of the codes, and each is of a code.
func TestSections(t *testing.T) {
	var want, got []string
	for _, c := range All() {
		want = append(want, string(c.Code))
	}
	for _, m := range regexp.MustCompile(`(?m)^## (.*)$`).FindAllStringSubmatch(sections, -1) {
		got = append(got, m[1])
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("do.md (-codes +sections):\n%s", d)
	}
}

// An old code leads to a present code or to another tool, and is not used again.
func TestOldCodes(t *testing.T) {
	present := map[finding.Code]bool{}
	for _, c := range All() {
		present[c.Code] = true
	}
	for _, old := range finding.OldCodes() {
		code, note := finding.Present(old)
		if present[finding.Code(old)] || code != "" && !present[code] || !strings.HasPrefix(note, old+" is ") {
			t.Errorf("%s: %q, %q", old, code, note)
		}
	}
	if code, note := finding.Present("no-such-code"); code != "no-such-code" || note != "" {
		t.Errorf("an unknown name: %q, %q", code, note)
	}
}

func TestFind(t *testing.T) {
	for name, note := range map[string]string{"startup-race": "", "own-crash": "own-crash is now called app-crash; the next release accepts the new name only"} { // any order: the cases are independent
		if c, got, err := Find(name); err != nil || c.Title == "" || got != note {
			t.Errorf("%s: %+v, %q, %v", name, c, got, err)
		}
	}
	for name, want := range map[string]string{"hold-failed-open": "hold-fails-open", "xyz": `"xyz" is no code`, "probe-timeout": "no longer checked", "": `"" is no code`} {
		if _, _, err := Find(name); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", name, err, want)
		}
	}
}
