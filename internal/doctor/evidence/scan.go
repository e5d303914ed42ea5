package evidence

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"slices"
)

// A Pattern matches a line that contains one of the texts in Any, if Only is nil or returns true for the line. The
// case of ASCII letters does not matter.
type Pattern struct {
	Name string
	Any  []string
	Only func(text []byte) bool
}

// Limits of what a scan keeps and tries.
const (
	mostHits    = 16   // hits of a pattern: the first half and the last half of this number
	linesBefore = 16   // lines before a hit, because the first line of a stack trace often names the destination
	linesAfter  = 6    // lines after a hit
	lastLines   = 64   // last lines of a log
	mostOfLine  = 2048 // bytes of a line

	// Only is asked about the first lines with a text of a pattern, and then of each block about the last ones. So a log
	// of many lines with such a text that are no hits is read as fast as any other.
	tries      = 4096
	blockTries = 64
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
	return l.ScanFor(ctx, Search(patterns))
}

// Opening returns the first line of the log that has a time, if it is among the lines by which its times are learnt.
func (l *Log) Opening(ctx context.Context) (Line, bool) {
	for b, err := range l.blocks(ctx, learnt) {
		for i := 0; err == nil && i < b.len(); i++ {
			if line := b.line(i); line.Time.Known() {
				return line, true
			}
		}
		break
	}
	return Line{}, false
}

// ScanFor is [Log.Scan] for a search that was prepared.
func (l *Log) ScanFor(ctx context.Context, search *Searcher) (hits []Hit, last []Line, err error) {
	return l.scan(ctx, search, blockSize)
}

func (l *Log) scan(ctx context.Context, search *Searcher, size int) (hits []Hit, last []Line, err error) {
	s := scanner{search: search, kept: make([][]*Hit, len(search.patterns)), tried: make([]int, len(search.patterns)), found: make([][]int, len(search.patterns))}
	for b, err := range l.blocks(ctx, size) {
		if err != nil {
			return s.result(), s.last, err
		}
		s.block(b)
	}
	return s.result(), s.last, nil
}

type scanner struct {
	search *Searcher
	kept   [][]*Hit // by pattern
	tried  []int    // by pattern: the number of lines that Only was asked about
	found  [][]int  // by pattern: the lines of the current block that have a text of it
	last   []Line   // the last lines of the previous blocks
}

func (s *scanner) block(b *block) {
	for _, kept := range s.kept {
		for _, h := range kept {
			for next := h.Line.Number + 1 + len(h.After); len(h.After) < linesAfter && next < b.first+b.len(); next++ {
				h.After = append(h.After, b.line(next-b.first))
			}
		}
	}
	for p := range s.found {
		s.found[p] = s.found[p][:0]
	}
	s.search.find(b, s.found)
	for p, found := range s.found {
		s.pattern(b, p, found)
	}
	s.last = s.before(b, b.len(), lastLines)
}

// pattern adds the hits of a pattern among the lines of a block that have a text of it: the first lines of the log, and
// the last ones, from the end of the block.
func (s *scanner) pattern(b *block, p int, found []int) {
	i := 0
	for ; i < len(found) && len(s.kept[p]) < mostHits/2; i++ {
		if s.tried[p] >= tries && len(found)-i > blockTries {
			i = len(found) - blockTries
		}
		if s.is(b, p, found[i]) {
			s.kept[p] = append(s.kept[p], s.hit(b, p, found[i]))
		}
	}
	var late []*Hit
	for j := len(found) - 1; j >= i && len(late) < mostHits/2 && (s.tried[p] < tries || len(found)-j <= blockTries); j-- {
		if s.is(b, p, found[j]) {
			late = append(late, s.hit(b, p, found[j]))
		}
	}
	slices.Reverse(late)
	if s.kept[p] = append(s.kept[p], late...); len(s.kept[p]) > mostHits {
		s.kept[p] = slices.Delete(s.kept[p], mostHits/2, len(s.kept[p])-mostHits/2)
	}
}

func (s *scanner) is(b *block, p, i int) bool {
	only := s.search.patterns[p].Only
	if only == nil {
		return true
	}
	s.tried[p]++
	return only(b.text(i))
}

func (s *scanner) hit(b *block, p, i int) *Hit {
	h := &Hit{Pattern: s.search.patterns[p].Name, Before: s.before(b, i, linesBefore), Line: b.line(i)}
	for next := i + 1; next < min(b.len(), i+1+linesAfter); next++ {
		h.After = append(h.After, b.line(next))
	}
	return h
}

// before returns the lines before one of a block, n at most.
func (s *scanner) before(b *block, i, n int) (out []Line) {
	if more := n - i; more > 0 {
		out = slices.Clone(s.last[max(0, len(s.last)-more):])
	}
	for j := max(0, i-n); j < i; j++ {
		out = append(out, b.line(j))
	}
	return out
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

// A block is a part of a log of whole lines. Their times are parsed only if they are asked for, since most lines of a
// large log do not matter.
type block struct {
	data  []byte
	ends  []int32 // of each line: where its line ending is, or the block's end
	first int     // number of the first line
	times [2]*timer
}

// A timer computes the times of a block's lines by one zone.
type timer struct {
	*lineReader
	carried stamps // before the block, the last time of a line that is known
	at      int    // a line of the block
	before  stamps // before the line at, the last time that is known
}

func (b *block) len() int { return len(b.ends) }

// raw returns a line as it is in the log, without the line ending.
func (b *block) raw(i int) []byte {
	from := 0
	if i > 0 {
		from = int(b.ends[i-1]) + 1
	}
	return bytes.TrimRight(b.data[from:min(int(b.ends[i]), from+MaxLine)], "\r\n")
}

// text returns a line without the container runtime's prefix.
func (b *block) text(i int) []byte {
	return b.times[0].layout.Text(b.raw(i))
}

// line returns a copy of a line.
func (b *block) line(i int) Line {
	line := b.times[0].of(b, i)
	line.Likely = line.Time
	if b.times[1] != nil {
		line.Likely = b.times[1].of(b, i).Time
	}
	line.Number = b.first + i
	line.Text = bytes.Clone(line.Text[:min(len(line.Text), mostOfLine)])
	return line
}

// of returns a line with its time. A line that continues another one has its time.
func (t *timer) of(b *block, i int) Line {
	t.last = t.lastBefore(b, i)
	line := t.lineReader.line(b.raw(i))
	t.at, t.before = i+1, t.last
	return line
}

// lastBefore returns the last known time of the lines before one: of the nearest line that has one.
func (t *timer) lastBefore(b *block, i int) stamps {
	from, last := 0, t.carried
	if t.at <= i {
		from, last = t.at, t.before
	}
	if t.layout.Dateless() { // each time depends on the one before it
		for t.last = last; from < i; from++ {
			t.lineReader.line(b.raw(from))
		}
		return t.last
	}
	t.last = last
	for j := i - 1; j >= from; j-- {
		r := t.layout.Read(b.raw(j))
		if at := t.ownOf(r); at.Known() {
			return stamps{at, writtenAt(r)}
		}
	}
	return last
}

// next prepares the timer for the next block.
func (t *timer) next(b *block) {
	t.carried = t.lastBefore(b, b.len())
	t.at, t.before = 0, t.carried
}

// blockSize is the size of the parts in which a log is read.
const blockSize = 1 << 20

// blocks yields the log in parts of whole lines, of a size at most, which are valid until the next one. An error, also of ctx, is the last
// element.
func (l *Log) blocks(ctx context.Context, size int) func(yield func(*block, error) bool) {
	return func(yield func(*block, error) bool) {
		from, err := l.open(ctx)
		if err != nil {
			yield(nil, fmt.Errorf("reading %s: %w", l.Source, err))
			return
		}
		defer from.Close()
		b := &block{first: max(l.First, 1)}
		buffer := make([]byte, size)
		n, skips := 0, false // bytes in the buffer; the rest of a long line is to be skipped
		for {
			more, err := io.ReadFull(from, buffer[n:])
			ended := err == io.EOF || err == io.ErrUnexpectedEOF
			n += more
			if ctx.Err() != nil {
				yield(nil, ctx.Err())
				return
			}
			whole := buffer[:n]
			if skips {
				whole = whole[:0]
				if i := bytes.IndexByte(buffer[:n], '\n'); i >= 0 {
					n, skips = copy(buffer, buffer[i+1:n]), false
					whole = buffer[:n]
				} else {
					n = 0
				}
			}
			rest := 0
			if !ended {
				if rest = len(whole) - 1 - bytes.LastIndexByte(whole, '\n'); rest == len(buffer) {
					rest, skips = 0, true
				}
			}
			if b.set(whole[:len(whole)-rest]); b.len() > 0 {
				if b.times[0] == nil {
					b.times[0] = &timer{lineReader: l.reader(b.data[:min(len(b.data), learnt)])}
					if placed, assumed := l.InLikelyZone(); assumed != nil {
						b.times[1] = &timer{lineReader: placed.reader(b.data[:min(len(b.data), learnt)])}
					}
				}
				if !yield(b, nil) {
					return
				}
				for _, t := range b.times {
					if t != nil {
						t.next(b)
					}
				}
				b.first += b.len()
			}
			switch {
			case ended:
				return
			case err != nil:
				yield(nil, fmt.Errorf("reading %s, line %d: %w", l.Source, b.first, err))
				return
			}
			n = copy(buffer, whole[len(whole)-rest:])
		}
	}
}

// set finds the lines of a block.
func (b *block) set(data []byte) {
	b.data, b.ends = data, b.ends[:0]
	for at := 0; at < len(data); {
		end := len(data)
		if i := bytes.IndexByte(data[at:], '\n'); i >= 0 {
			end = at + i
		}
		b.ends = append(b.ends, int32(end))
		at = end + 1
	}
}
