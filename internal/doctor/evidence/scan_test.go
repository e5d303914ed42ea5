package evidence

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// sequential finds the same as a scan, by a plain loop over all lines that parses each time in turn.
func sequential(l *Log, text string, patterns []Pattern) (hits []Hit, last []Line) {
	t := l.reader([]byte(text[:min(len(text), learnt)]))
	var all []Line
	var texts [][]byte
	for raw := range strings.Lines(text) {
		line := t.line(bytes.TrimRight([]byte(raw[:min(len(raw), MaxLine)]), "\r\n"))
		texts = append(texts, line.Text)
		line.Number, line.Likely, line.Text = len(all)+1, line.Time, bytes.Clone(line.Text[:min(len(line.Text), mostOfLine)])
		all = append(all, line)
	}
	for _, p := range patterns {
		var of []Hit
		for i, line := range all {
			lower := bytes.ToLower(texts[i])
			if slices.ContainsFunc(p.Any, func(text string) bool { return bytes.Contains(lower, []byte(text)) }) && (p.Only == nil || p.Only(texts[i])) {
				of = append(of, Hit{p.Name, line, all[max(0, i-linesBefore):i], slices.Concat(all[i+1 : min(len(all), i+1+linesAfter)])})
			}
		}
		if len(of) > mostHits {
			of = append(of[:mostHits/2:mostHits/2], of[len(of)-mostHits/2:]...)
		}
		hits = append(hits, of...)
	}
	slices.SortStableFunc(hits, func(a, b Hit) int { return a.Line.Number - b.Line.Number })
	return hits, all[max(0, len(all)-lastLines):]
}

// A scan in blocks, with times that are parsed only where they matter, finds what a plain loop finds: with and without
// dates, with lines that continue others over more than a block, and with lines longer than their limit.
func TestScanEqualsAPlainLoop(t *testing.T) {
	patterns := []Pattern{
		{Name: "refused", Any: []string{"connection refused", "econnrefused", "refused"}},
		{Name: "often", Any: []string{" ok", "accepted"}, Only: func(text []byte) bool { return !bytes.Contains(text, []byte("7")) }},
		{Name: "rare", Any: []string{"once", "accepted once"}},
		{Name: "overlap", Any: []string{"that", "hat", "at x", "x\xe6\x8b\x92"}},
	}
	for form, stamp := range map[string]string{"dates": "2026-11-24 13:%02d:%02d,%03d", "clock": "13:%02d:%02d.%03d", "klog": "I1124 13:%02d:%02d.%03d000", "none": "%.0d%.0d%.0d", "CRI": "2026-11-24T13:%02d:%02d.%03dZ stdout F"} {
		r, long := rand.New(rand.NewPCG(1, 2)), strings.Repeat(".", 400) // few lines are enough
		var b strings.Builder
		for i := 0; b.Len() < 9*blockSize/4; i++ {
			fmt.Fprintf(&b, stamp, 16+i/60_000, i/1000%60, i%1000)
			switch n := r.IntN(2_000); {
			case n == 0:
				b.WriteString(" accepted once\r")
			case n < 12:
				fmt.Fprintf(&b, " Connection REFUSED %d\n\tat x\nCaused by: that", i)
			case n < 14:
				b.WriteString(" " + strings.Repeat("x", 3*MaxLine) + " refused")
			case n == 14:
				b.WriteString(" dump" + strings.Repeat("\n\tat java.base/x", 3_000))
			case n < 1_000:
				fmt.Fprintf(&b, " order %d Accepted%s", i, long)
			default:
				fmt.Fprintf(&b, " order %d is on its way to the warehouse%s", i, long)
			}
			b.WriteString("\n")
		}
		b.WriteString("the last line was refused")
		l := logIn(b.String(), 1, 900)
		wantHits, wantLast := sequential(l, b.String(), patterns)
		for end := range 4 { // so many bytes in the last block that its begin is among the last hits, and then half of it
			size := blockSize
			if end > 0 {
				size = (b.Len() - 2000*end) / 2
			}
			hits, last, err := l.scan(t.Context(), Search(patterns), size)
			if err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(wantHits, hits) { // cmp.Diff alone takes seconds
				t.Errorf("%s: hits (-want +got):\n%.3000s", form, cmp.Diff(wantHits, hits))
			}
			if !reflect.DeepEqual(wantLast, last) {
				t.Errorf("%s: last lines (-want +got):\n%.3000s", form, cmp.Diff(wantLast, last))
			}
		}
	}
}

// A log of lines that all have a text of a pattern, and are no hits, is tried at its beginning and its end only.
func TestScanTriesFew(t *testing.T) {
	for begin, want := range map[string]int{"": 1, strings.Repeat("connection refused\n", mostHits/2): 1 + mostHits/2} {
		tried := 0
		patterns := []Pattern{{Name: "refused", Any: []string{"refused"}, Only: func(text []byte) bool { tried++; return bytes.Contains(text, []byte("connection")) }}}
		text := begin + strings.Repeat("the offer was refused by the customer, as usual\n", 5*blockSize/48) + "connection refused\n"
		hits, _, err := logIn(text, 1, 4).Scan(t.Context(), patterns)
		if err != nil || len(hits) != want || tried > tries+6*blockTries {
			t.Errorf("%d hits, %d tries, %v", len(hits), tried, err)
		}
	}
}
