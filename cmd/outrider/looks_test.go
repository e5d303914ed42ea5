package main

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// looks has sets of incidents that were written, with their answers, without a look at the rules. A set has a folder
// for each incident, ANSWERS.md, SCORE.md with the score of the first look, and judged.txt: a line for each incident
// with its number, a mark by the answer, and the first sentence of the diagnosis that the mark is for.
const looks = "../../testdata/looks"

// marks has the meaning of a mark, by the answer to the incident.
var marks = map[string]string{"R": "right", "P": "partly right", "W": "wrong"}

// The first sentence of the diagnosis of each incident in testdata/looks is the one that was judged by the answers of
// its set. With UPDATE=1 a new sentence is written to judged.txt with the mark "?", which fails until it is judged.
func TestLooks(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(looks, "*", "judged.txt"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no set of incidents in %s: %v", looks, err)
	}
	for _, file := range files {
		set := filepath.Dir(file)
		t.Run(filepath.Base(set), func(t *testing.T) {
			judged := readJudged(t, file)
			var now strings.Builder
			of := map[string]int{}
			incidents, err := filepath.Glob(filepath.Join(set, "[0-9]*"))
			if err != nil || len(incidents) != len(judged) {
				t.Errorf("%d incidents, and %d are judged: %v", len(incidents), len(judged), err)
			}
			for _, incident := range incidents {
				number := filepath.Base(incident)
				was, is := judged[number], judgement{"?", firstSentence(incident)}
				if is.sentence == was.sentence {
					is = was
				} else if os.Getenv("UPDATE") == "" {
					t.Errorf("%s:\nnow %s\nwas %s (%s)\nUPDATE=1 go test -run TestLooks ./cmd/outrider writes the new sentence: judge it by ANSWERS.md", number, is.sentence, was.sentence, was.mark)
				}
				if marks[is.mark] == "" {
					t.Errorf("%s: the mark %q is not R, P or W: judge its sentence by ANSWERS.md", number, is.mark)
				}
				of[is.mark]++
				fmt.Fprintf(&now, "%s %s %s\n", number, is.mark, is.sentence)
			}
			if os.Getenv("UPDATE") != "" {
				if err := os.WriteFile(file, []byte(now.String()), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			for _, mark := range slices.Sorted(maps.Keys(marks)) {
				t.Logf("%s: %d of %d are %s", filepath.Base(set), of[mark], len(incidents), marks[mark])
			}
		})
	}
}

// A judgement is the first sentence of a diagnosis, and its mark.
type judgement struct{ mark, sentence string }

func readJudged(t *testing.T, file string) map[string]judgement {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]judgement{}
	for line := range strings.Lines(string(text)) {
		number, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		mark, sentence, _ := strings.Cut(rest, " ")
		all[number] = judgement{mark, sentence}
	}
	return all
}

// firstSentence returns the first sentence that "outrider diagnose" prints of a folder, in one line: of several pods
// the first cause, and where it can read nothing its error.
func firstSentence(folder string) string {
	var out, errs bytes.Buffer
	if run([]string{"diagnose", "-f", folder}, &out, &errs) == 2 {
		out = errs
	}
	paragraphs := strings.Split(out.String(), "\n\n")
	if first := paragraphs[0]; len(paragraphs) > 1 && strings.Contains(first, " pods: ") && !strings.Contains(first, "\n") {
		paragraphs = paragraphs[1:]
	}
	sentence, _, _ := strings.Cut(paragraphs[0], "\nDo: ")
	return strings.ReplaceAll(strings.Join(strings.Fields(sentence), " "), looks+"/", "")
}
