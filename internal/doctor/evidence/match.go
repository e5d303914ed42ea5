package evidence

// A Pattern picks lines: those with one of the literals, letters of ASCII in either case, for
// which Only, if there is one, returns true.
type Pattern struct {
	Name string
	Any  []string
	Only func(text []byte) bool
}

// A matcher finds all literals of all patterns in one pass over a line (Aho-Corasick). The bytes
// that no literal has share one column of the table, so that it fits a processor's cache.
type matcher struct {
	patterns []Pattern
	column   [256]uint8
	width    int
	next     []int32 // by state and column
	found    [][]int // by state: the patterns whose literal ends there
}

func fold(b byte) byte {
	if b >= 'A' && b <= 'Z' {
		return b | 0x20
	}
	return b
}

func newMatcher(patterns []Pattern) *matcher {
	m := &matcher{patterns: patterns, width: 1}
	for _, p := range patterns {
		for _, literal := range p.Any {
			for i := range len(literal) {
				if b := fold(literal[i]); m.column[b] == 0 && m.width < 255 {
					m.column[b] = uint8(m.width)
					m.width++
				}
			}
		}
	}
	for b := byte('A'); b <= 'Z'; b++ {
		m.column[b] = m.column[fold(b)]
	}
	m.state()
	for i, p := range patterns {
		for _, literal := range p.Any {
			if literal != "" {
				m.add(literal, i)
			}
		}
	}
	m.link()
	return m
}

// state adds one, without any way on.
func (m *matcher) state() int32 {
	for range m.width {
		m.next = append(m.next, -1)
	}
	m.found = append(m.found, nil)
	return int32(len(m.found) - 1)
}

func (m *matcher) add(literal string, pattern int) {
	at := int32(0)
	for i := range len(literal) {
		way := int(at)*m.width + int(m.column[fold(literal[i])])
		if m.next[way] < 0 {
			to := m.state()
			m.next[way] = to
		}
		at = m.next[way]
	}
	m.found[at] = append(m.found[at], pattern)
}

// link completes the table: where no literal goes on, the longest end of what was read does that
// begins one.
func (m *matcher) link() {
	back := make([]int32, len(m.found))
	var queue []int32
	for c := range m.width {
		if to := m.next[c]; to > 0 {
			queue = append(queue, to)
		} else {
			m.next[c] = 0
		}
	}
	for len(queue) > 0 {
		s := queue[0]
		queue = queue[1:]
		m.found[s] = append(m.found[s], m.found[back[s]]...)
		for c := range m.width {
			way, other := int(s)*m.width+c, m.next[int(back[s])*m.width+c]
			if to := m.next[way]; to >= 0 {
				back[to] = other
				queue = append(queue, to)
			} else {
				m.next[way] = other
			}
		}
	}
}

// match appends the patterns that a line has to those in hits.
func (m *matcher) match(text []byte, hits []int) []int {
	at := int32(0)
	for _, b := range text {
		at = m.next[int(at)*m.width+int(m.column[b])]
		if found := m.found[at]; found != nil {
			hits = append(hits, found...)
		}
	}
	return hits
}
