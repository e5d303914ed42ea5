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

// ScanOptions limit what is kept. The zero value of a field means its default.
type ScanOptions struct {
	Hits   int // hits of a pattern, half of them the first and half the last ones; default 16
	Before int // lines before a hit; default 2
	After  int // lines after it; default 6
	Text   int // bytes of a line that are kept; default 2048
}

func (o ScanOptions) defaults() ScanOptions {
	for _, f := range []struct {
		field *int
		usual int
	}{{&o.Hits, 16}, {&o.Before, 2}, {&o.After, 6}, {&o.Text, 2048}} {
		if *f.field == 0 {
			*f.field = f.usual
		}
	}
	return o
}

// A Hit is a line that matches a pattern, with the lines around it.
type Hit struct {
	Pattern       string
	Line          Line
	Before, After []Line
}

// Found is the result of one scan of a log.
type Found struct {
	Hits  []Hit          // in the order of lines
	Total map[string]int // by pattern, including hits that are not kept
	Lines int
	Bytes int64
}

// Scan reads the log once. If an error ends it, it returns what it has found so far along with the error.
func (l *Log) Scan(ctx context.Context, patterns []Pattern, o ScanOptions) (Found, error) {
	s := scanner{o: o.defaults(), patterns: patterns, literals: make([][][]byte, len(patterns)), kept: make([][]*Hit, len(patterns))}
	for i, p := range patterns {
		for _, literal := range p.Any {
			if literal != "" {
				s.literals[i] = append(s.literals[i], appendLower(nil, literal))
			}
		}
	}
	s.found.Total, s.recent = map[string]int{}, make([]Line, s.o.Before)
	var failed error
	for line, err := range l.Lines(ctx) {
		if err != nil {
			failed = err
			break
		}
		s.line(&line)
	}
	return s.result(), failed
}

type scanner struct {
	o        ScanOptions
	patterns []Pattern
	literals [][][]byte // of each pattern, in lower case
	lower    []byte     // the line in lower case
	hits     []int      // the patterns that match it
	found    Found
	kept     [][]*Hit // by pattern
	open     []*Hit   // hits that still need lines after them
	recent   []Line   // a ring of copies, whose memory is reused
	seen     int      // lines that were added to it
}

func (s *scanner) line(line *Line) {
	s.found.Lines++
	s.found.Bytes += int64(len(line.Text)) + 1
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
	kept.Text = bytes.Clone(line.Text[:min(len(line.Text), s.o.Text)])
	kept.Cut = line.Cut || len(kept.Text) < len(line.Text)
	s.open = slices.DeleteFunc(s.open, func(h *Hit) bool {
		h.After = append(h.After, kept)
		return len(h.After) >= s.o.After
	})
	for _, p := range s.hits {
		pattern := s.patterns[p]
		if pattern.Only != nil && !pattern.Only(line.Text) {
			continue
		}
		s.found.Total[pattern.Name]++
		s.hit(p, &Hit{Pattern: pattern.Name, Line: kept, Before: s.last(s.o.Before)})
	}
}

// hit keeps the first and the last hits of a pattern.
func (s *scanner) hit(p int, h *Hit) {
	kept := s.kept[p]
	if len(kept) >= s.o.Hits {
		first := s.o.Hits / 2
		gone := kept[first]
		s.open = slices.DeleteFunc(s.open, func(h *Hit) bool { return h == gone })
		kept = slices.Delete(kept, first, first+1)
	}
	s.kept[p] = append(kept, h)
	s.open = append(s.open, h)
}

// last returns copies of the last lines.
func (s *scanner) last(n int) (out []Line) {
	for i := max(s.seen-min(n, len(s.recent)), 0); i < s.seen; i++ {
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
	at.Cut = line.Cut || len(line.Text) > s.o.Text
	at.Text = append(text[:0], line.Text[:min(len(line.Text), s.o.Text)]...)
}

func (s *scanner) result() Found {
	for _, kept := range s.kept {
		for _, h := range kept {
			s.found.Hits = append(s.found.Hits, *h)
		}
	}
	slices.SortStableFunc(s.found.Hits, func(a, b Hit) int { return a.Line.Number - b.Line.Number })
	return s.found
}
