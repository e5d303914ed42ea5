package evidence

import (
	"bytes"
	"context"
	"slices"
)

// ScanOptions bound what is kept. The zero value of a field means its default.
type ScanOptions struct {
	Hits   int // of a pattern: half of them the first ones, half the last; default 16
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

// A Hit is a line that a pattern picked, and lines around it.
type Hit struct {
	Pattern       string
	Line          Line
	Before, After []Line
}

// Found is what one pass over a log found.
type Found struct {
	Hits  []Hit          // in the order of lines
	Total map[string]int // by pattern, also of hits that are not kept
	Lines int
	Bytes int64
}

// Scan passes over the log once. What was found until an error is returned with it.
func (l *Log) Scan(ctx context.Context, patterns []Pattern, o ScanOptions) (Found, error) {
	s := scanner{o: o.defaults(), matcher: newMatcher(patterns), kept: make([][]*Hit, len(patterns))}
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
	o       ScanOptions
	matcher *matcher
	found   Found
	kept    [][]*Hit // by pattern
	open    []*Hit   // that want lines after them
	recent  []Line   // a ring of copies, whose memory is used again
	seen    int      // lines that were put into it
	hits    []int
}

func (s *scanner) line(line *Line) {
	s.found.Lines++
	s.found.Bytes += int64(len(line.Text)) + 1
	s.hits = s.matcher.match(line.Text, s.hits[:0])
	if len(s.open) > 0 || len(s.hits) > 0 {
		s.keep(line)
	}
	s.remember(line)
}

// keep looks at a line of which a copy may be needed: one at most.
func (s *scanner) keep(line *Line) {
	kept := *line
	kept.Text = bytes.Clone(line.Text[:min(len(line.Text), s.o.Text)])
	kept.Cut = line.Cut || len(kept.Text) < len(line.Text)
	s.open = slices.DeleteFunc(s.open, func(h *Hit) bool {
		h.After = append(h.After, kept)
		return len(h.After) >= s.o.After
	})
	for i, p := range s.hits {
		if slices.Contains(s.hits[:i], p) {
			continue
		}
		pattern := s.matcher.patterns[p]
		if pattern.Only != nil && !pattern.Only(line.Text) {
			continue
		}
		s.found.Total[pattern.Name]++
		s.hit(p, &Hit{Pattern: pattern.Name, Line: kept, Before: s.last(s.o.Before)})
	}
}

// hit keeps the first and the last ones of a pattern.
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

// last are copies of the last lines.
func (s *scanner) last(n int) (out []Line) {
	for i := max(s.seen-min(n, len(s.recent)), 0); i < s.seen; i++ {
		l := s.recent[i%len(s.recent)]
		l.Text = bytes.Clone(l.Text)
		out = append(out, l)
	}
	return out
}

// remember keeps the last lines.
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
