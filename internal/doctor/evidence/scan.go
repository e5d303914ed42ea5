package evidence

import (
	"bytes"
	"context"
	"slices"
)

// A Pattern matches a line that contains one of the texts in Any, if Only is nil or returns true for the line. The
// case of ASCII letters does not matter.
type Pattern struct {
	Name string
	Any  []string
	Only func(text []byte) bool
}

// appendLower appends a text to a slice, with all ASCII letters in lower case.
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

// Limits of the lines that a scan keeps.
const (
	mostHits    = 16   // hits of a pattern: the first half and the last half of this number
	linesBefore = 16   // lines before a hit, because the first line of a stack trace often names the destination
	linesAfter  = 6    // lines after a hit
	lastLines   = 64   // last lines of a log
	mostOfLine  = 2048 // bytes of a line
)

// A Hit is a line that matches a pattern, with the lines around it.
type Hit struct {
	Pattern       string
	Line          Line
	Before, After []Line
}

// Scan reads the log once, and returns the hits and the last lines, in the order of lines. If reading fails, it returns
// the error and what was before it.
func (l *Log) Scan(ctx context.Context, patterns []Pattern) (hits []Hit, last []Line, err error) {
	s := scanner{patterns: patterns, literals: make([][][]byte, len(patterns)), kept: make([][]*Hit, len(patterns)), recent: make([]Line, lastLines)}
	for i, p := range patterns {
		for _, literal := range p.Any {
			s.literals[i] = append(s.literals[i], appendLower(nil, literal))
		}
	}
	for line, err := range l.Lines(ctx) {
		if err != nil {
			return s.result(), s.last(lastLines), err
		}
		s.line(&line)
	}
	return s.result(), s.last(lastLines), nil
}

type scanner struct {
	patterns []Pattern
	literals [][][]byte // of each pattern, in lower case
	lower    []byte     // the current line in lower case
	hits     []int      // indexes of the patterns that have a literal in the current line
	kept     [][]*Hit   // by pattern
	open     []*Hit     // hits that still need lines after them
	recent   []Line     // ring buffer with copies of the last lines
	seen     int        // number of lines that were added to recent
}

func (s *scanner) line(line *Line) {
	s.match(line.Text)
	if len(s.open) > 0 || len(s.hits) > 0 {
		s.keep(line)
	}
	s.remember(line)
}

// match sets hits to the patterns that have a literal in the line.
func (s *scanner) match(text []byte) {
	s.lower, s.hits = appendLower(s.lower[:0], text), s.hits[:0]
	for i, any := range s.literals {
		if slices.ContainsFunc(any, func(literal []byte) bool { return bytes.Contains(s.lower, literal) }) {
			s.hits = append(s.hits, i)
		}
	}
}

// keep copies a line. It adds the copy to the earlier hits that still collect lines after them, and adds a new hit
// for each pattern that matches the line.
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
		s.hit(p, &Hit{Pattern: pattern.Name, Line: kept, Before: s.last(linesBefore)})
	}
}

// hit adds a hit of a pattern. If there are too many, it drops one between the first and the last hits.
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

// last returns copies of the lines before the current one, n at most.
func (s *scanner) last(n int) (out []Line) {
	for i := max(s.seen-n, 0); i < s.seen; i++ {
		l := s.recent[i%len(s.recent)]
		l.Text = bytes.Clone(l.Text)
		out = append(out, l)
	}
	return out
}

// remember adds a line to recent. It reuses the memory of the line that it replaces.
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
