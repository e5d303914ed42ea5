package evidence

import "slices"

// A Searcher finds the lines that have a text of some patterns: by the automaton of Aho and Corasick, which looks once
// at each byte for all texts together.
type Searcher struct {
	patterns []Pattern
	class    [256]uint8 // of each byte; capital letters of ASCII are as small ones, and 0 is in no text
	width    int        // number of classes
	next     []uint32   // by state and class: the next state, times width
	ends     [][]int    // of the states from first on: the patterns whose texts end there
	first    uint32     // the first state in which a text ends, times width
}

// Search prepares a search.
func Search(patterns []Pattern) *Searcher {
	s := &Searcher{patterns: patterns, width: 1}
	for _, p := range patterns {
		for _, text := range p.Any {
			for _, c := range []byte(text) {
				if c = lower(c); s.class[c] == 0 {
					s.class[c] = uint8(s.width)
					s.width++
				}
			}
		}
	}
	for c := byte('A'); c <= 'Z'; c++ {
		s.class[c] = s.class[lower(c)]
	}
	s.build()
	return s
}

func lower(c byte) byte {
	if c >= 'A' && c <= 'Z' {
		c |= 0x20
	}
	return c
}

// build makes the trie of all texts, then adds to each state the steps of the longest text that it ends with, by
// breadth, and last numbers the states anew, so that those in which a text ends come last.
func (s *Searcher) build() {
	w := s.width
	next, ends := make([]int, w), [][]int{nil}
	for i, p := range s.patterns {
		for _, text := range p.Any {
			at := 0
			for _, c := range []byte(text) {
				step := at*w + int(s.class[lower(c)])
				if next[step] == 0 {
					next[step] = len(ends)
					next, ends = append(next, make([]int, w)...), append(ends, nil)
				}
				at = next[step]
			}
			if at > 0 && !slices.Contains(ends[at], i) {
				ends[at] = append(ends[at], i)
			}
		}
	}
	fail := make([]int, len(ends))
	queue := []int{0}
	for len(queue) > 0 {
		at := queue[0]
		queue = queue[1:]
		for c := range w {
			to, back := next[at*w+c], 0
			if at != 0 {
				back = next[fail[at]*w+c]
			}
			if to == 0 {
				next[at*w+c] = back
				continue
			}
			fail[to] = back
			for _, i := range ends[back] {
				if !slices.Contains(ends[to], i) {
					ends[to] = append(ends[to], i)
				}
			}
			queue = append(queue, to)
		}
	}
	number := make([]uint32, len(ends))
	var n uint32
	for _, last := range []bool{false, true} {
		if last {
			s.first = n * uint32(w)
		}
		for at := range ends {
			if (len(ends[at]) > 0) == last {
				number[at] = n * uint32(w)
				n++
			}
		}
	}
	s.next, s.ends = make([]uint32, len(next)), make([][]int, len(ends)-int(s.first)/w)
	for at := range ends {
		for c := range w {
			s.next[int(number[at])+c] = number[next[at*w+c]]
		}
		if number[at] >= s.first {
			s.ends[int(number[at]-s.first)/w] = ends[at]
		}
	}
}

// find adds to the lists of the patterns the lines of a block that have a text of them. No text has a line ending.
func (s *Searcher) find(b *block, found [][]int) {
	var state uint32
	line := 0
	for i, c := range b.data {
		if state = s.next[state+uint32(s.class[c])]; state < s.first {
			continue
		}
		for int(b.ends[line]) < i {
			line++
		}
		if line > 0 && i-int(b.ends[line-1]) > MaxLine || line == 0 && i >= MaxLine {
			continue
		}
		for _, p := range s.ends[int(state-s.first)/s.width] {
			if n := len(found[p]); n == 0 || found[p][n-1] != line {
				found[p] = append(found[p], line)
			}
		}
	}
}
