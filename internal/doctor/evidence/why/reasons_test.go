package why

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// Numbers of ends of logs of testdata/reasons.txt whose reason is found, and of those whose advice is right; neither may
// fall.
const (
	mostReasons = 221
	mostAdvices = 98
)

// An end of a log, with what is expected of it.
type end struct {
	name, log        string
	has, not, advice []string
}

func readEnds(t *testing.T) (out []end) {
	text, err := os.ReadFile("testdata/reasons.txt")
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range strings.Split(string(text), "\n=== ")[1:] {
		name, log, _ := strings.Cut(part, "\n")
		e := end{name: name}
		for {
			line, rest, _ := strings.Cut(log, "\n")
			if part, is := strings.CutPrefix(line, "> "); is && len(e.has) < 2 && len(e.advice) == 0 {
				e.has = append(e.has, part)
			} else if part, is := strings.CutPrefix(line, "! "); is {
				e.not = append(e.not, part)
			} else if part, is := strings.CutPrefix(line, "$ "); is && len(e.advice) == 0 && len(e.has) > 0 {
				e.advice = append(e.advice, part)
			} else {
				break
			}
			log = rest
		}
		e.log = strings.TrimSuffix(log, "\n") + "\n"
		out = append(out, e)
	}
	return out
}

// The message has what says why, and the advice names what it is about.
func TestReasons(t *testing.T) {
	reasons, advices := 0, 0
	ends := readEnds(t)
	for _, e := range ends {
		r, _ := find(e.log)
		lacks := func(part string) bool { return !strings.Contains(r.Text, part) }
		if slices.ContainsFunc(e.has, lacks) || !slices.ContainsFunc(e.not, lacks) && len(e.not) > 0 {
			t.Logf("%s\n got %q\nwant %q, not %q", e.name, r.Text, e.has, e.not)
		} else {
			reasons++
		}
		if do := Remedy(r.Text); len(e.advice) > 0 && strings.Contains(do, e.advice[0]) {
			advices++
		} else if len(e.advice) > 0 {
			t.Logf("%s: advice %q of %q\nwant %q", e.name, do, r.Text, e.advice[0])
		}
	}
	t.Logf("%d of %d reasons, %d advices", reasons, len(ends), advices)
	if reasons < mostReasons || advices < mostAdvices || len(ends) < 223 {
		t.Error("fewer than before")
	}
}
