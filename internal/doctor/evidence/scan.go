package evidence

import (
	"bytes"
	"context"
	"slices"
)

// A Pattern matches lines that contain one of the literals (ASCII letters match in either case) and for which Only,
// if set, returns true.
type Pattern struct {
	Name string
	Any  []string
	Only func(text []byte) bool
}

// appendLower appends a text with its ASCII letters in lower case.
func appendLower[T []byte | string](to []byte, text T) []byte {
	for i := range len(text) {
		b := text[i]
		if b >= 'A' && b <= 'Z' {
			b |= 0x20
		}
		to = append(to, b)
	}
	return to
}

// These limit what a scan keeps.
const (
	mostHits    = 16   // of a pattern: half of them the first, half the last
	linesBefore = 16   // lines before a hit: the first line of a stack trace names the destination
	linesAfter  = 6    // lines after it
	mostOfLine  = 2048 // bytes of a line
)

// A Hit is a line that matches a pattern, with the lines around it.
type Hit struct {
	Pattern       string
	Line          Line
	Before, After []Line
}

// Scan reads the log once, and returns the hits in the order of lines. If an error ends it, it returns what it has
// found so far along with the error.
func (l *Log) Scan(ctx context.Context, patterns []Pattern) ([]Hit, error) {
	s := scanner{patterns: patterns, literals: make([][][]byte, len(patterns)), kept: make([][]*Hit, len(patterns)), recent: make([]Line, linesBefore)}
	for i, p := range patterns {
		for _, literal := range p.Any {
			s.literals[i] = append(s.literals[i], appendLower(nil, literal))
		}
	}
	for line, err := range l.Lines(ctx) {
		if err != nil {
			return s.result(), err
		}
		s.line(&line)
	}
	return s.result(), nil
}

type scanner struct {
	patterns []Pattern
	literals [][][]byte // of each pattern, in lower case
	lower    []byte     // the line in lower case
	hits     []int      // the patterns that match it
	kept     [][]*Hit   // by pattern
	open     []*Hit     // hits that still need lines after them
	recent   []Line     // a ring of copies, whose memory is reused
	seen     int        // lines that were added to it
}

func (s *scanner) line(line *Line) {
	s.match(line.Text)
	if len(s.open) > 0 || len(s.hits) > 0 {
		s.keep(line)
	}
	s.remember(line)
}

// match finds the patterns with a literal in the line.
func (s *scanner) match(text []byte) {
	s.lower, s.hits = appendLower(s.lower[:0], text), s.hits[:0]
	for i, any := range s.literals {
		if slices.ContainsFunc(any, func(literal []byte) bool { return bytes.Contains(s.lower, literal) }) {
			s.hits = append(s.hits, i)
		}
	}
}

// keep handles the hits of a line, and copies the line at most once.
func (s *scanner) keep(line *Line) {
	kept := *line
	kept.Text = bytes.Clone(line.Text[:min(len(line.Text), mostOfLine)])
	s.open = slices.DeleteFunc(s.open, func(h *Hit) bool {
		h.After = append(h.After, kept)
		return len(h.After) >= linesAfter
	})
	for _, p := range s.hits {
		pattern := s.patterns[p]
		if pattern.Only != nil && !pattern.Only(line.Text) {
			continue
		}
		s.hit(p, &Hit{Pattern: pattern.Name, Line: kept, Before: s.last()})
	}
}

// hit keeps the first and the last hits of a pattern.
func (s *scanner) hit(p int, h *Hit) {
	kept := s.kept[p]
	if len(kept) >= mostHits {
		const first = mostHits / 2
		gone := kept[first]
		s.open = slices.DeleteFunc(s.open, func(h *Hit) bool { return h == gone })
		kept = slices.Delete(kept, first, first+1)
	}
	s.kept[p] = append(kept, h)
	s.open = append(s.open, h)
}

// last returns copies of the last lines.
func (s *scanner) last() (out []Line) {
	for i := max(s.seen-linesBefore, 0); i < s.seen; i++ {
		l := s.recent[i%len(s.recent)]
		l.Text = bytes.Clone(l.Text)
		out = append(out, l)
	}
	return out
}

// remember adds a line to the ring of the last lines.
func (s *scanner) remember(line *Line) {
	at := &s.recent[s.seen%len(s.recent)]
	s.seen++
	text := at.Text
	*at = *line
	at.Text = append(text[:0], line.Text[:min(len(line.Text), mostOfLine)]...)
}

func (s *scanner) result() (hits []Hit) {
	for _, kept := range s.kept {
		for _, h := range kept {
			hits = append(hits, *h)
		}
	}
	slices.SortStableFunc(hits, func(a, b Hit) int { return a.Line.Number - b.Line.Number })
	return hits
}
