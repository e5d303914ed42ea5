// Package limits parses YAML of unknown authors: what its aliases unfold to is counted before anything
// unfolds it. A text of 200 KB can say that it is 9 GB.
//
// Package manifest decodes by it; the agent, which links little, uses it alone.
package limits

import (
	"bytes"
	"fmt"

	"go.yaml.in/yaml/v3"
)

// Limits bound a text. Zero is no limit.
type Limits struct {
	Bytes    int // of the text
	Values   int // its keys, scalars, lists and objects, each as often as an alias repeats it
	Unfolded int // bytes of the keys and scalars, each as often as an alias repeats it
	Depth    int // lists and objects in one another
	Keys     int // of one object: the decoder compares each with all others
}

// Annotation is for a value within an object, which a tenant writes and a server reads. The API server
// takes 256 KiB of annotations for an object.
var Annotation = Limits{Bytes: 64 << 10, Values: 4096, Unfolded: 256 << 10, Depth: 32}

// Document is for a text that may repeat itself, and no more than a person would do it.
func Document(text []byte) Limits {
	return Limits{Values: 1<<16 + 4*len(text), Unfolded: 1<<20 + 4*len(text), Depth: 1000, Keys: 10_000}
}

// An Error is a text beyond a limit.
type Error struct{ reason string }

func (e *Error) Error() string { return e.reason }

// Check returns nil if a text is within the limits. One of any length that repeats nothing is not
// parsed: it is no larger than it looks, and may be no YAML.
func (l Limits) Check(text []byte) error {
	if l.Bytes == 0 && !bytes.ContainsRune(text, '*') {
		return nil
	}
	_, err := l.Parse(text)
	return err
}

// Parse returns the document in a text that is within the limits; without content if it has none.
// Aliases point at what they repeat.
func (l Limits) Parse(text []byte) (*yaml.Node, error) {
	if l.Bytes > 0 && len(text) > l.Bytes {
		return nil, &Error{fmt.Sprintf("%d bytes; want at most %d", len(text), l.Bytes)}
	}
	if l.Depth > 0 && unclosed(text) > 32*l.Depth { // 10,000 of them take the parser half a second
		return nil, l.tooDeep()
	}
	var document yaml.Node
	if err := yaml.Unmarshal(text, &document); err != nil {
		return nil, err
	}
	c := counter{limits: l, sizes: map[*yaml.Node]size{}}
	if _, err := c.count(&document, 0); err != nil {
		return nil, err
	}
	return &document, nil
}

// Decode decodes a text within the limits, by the tags and rules of yaml.v3.
func (l Limits) Decode(text []byte, into any) error {
	document, err := l.Parse(text)
	if err != nil || len(document.Content) == 0 {
		return err
	}
	return document.Decode(into)
}

// A size counts a node with all below it.
type size struct{ values, bytes, depth int }

type counter struct {
	limits Limits
	sizes  map[*yaml.Node]size // of what has an anchor; a depth of -1: it is being counted
}

// count returns the size of a node. It visits each node of the text once: what an alias repeats has
// been counted where it stands.
func (c *counter) count(n *yaml.Node, depth int) (size, error) {
	if n.Kind == yaml.AliasNode {
		repeated, ok := c.sizes[n.Alias]
		if !ok || repeated.depth < 0 {
			return size{}, &Error{fmt.Sprintf("anchor '%s' value contains itself", n.Value)}
		}
		return repeated, c.judge(repeated, depth)
	}
	if most := c.limits.Keys; most > 0 && n.Kind == yaml.MappingNode && len(n.Content) > 2*most {
		return size{}, &Error{fmt.Sprintf("line %d: an object of %d keys; want at most %d", n.Line, len(n.Content)/2, most)}
	}
	if n.Anchor != "" {
		c.sizes[n] = size{depth: -1}
	}
	out := size{values: 1, bytes: len(n.Value)}
	for _, child := range n.Content {
		s, err := c.count(child, depth+1)
		if err != nil {
			return size{}, err
		}
		out.values, out.bytes, out.depth = out.values+s.values, out.bytes+s.bytes, max(out.depth, s.depth+1)
		if err := c.judge(out, depth); err != nil {
			return size{}, err
		}
	}
	if n.Anchor != "" {
		c.sizes[n] = out
	}
	return out, c.judge(out, depth)
}

// judge compares a size, at a depth, with the limits.
func (c *counter) judge(s size, depth int) error {
	const repeated = ", each value as often as an alias (*NAME) repeats it"
	switch l := c.limits; {
	case l.Values > 0 && s.values > l.Values:
		return &Error{fmt.Sprintf("more than %d values%s", l.Values, repeated)}
	case l.Unfolded > 0 && s.bytes > l.Unfolded:
		return &Error{fmt.Sprintf("more than %d bytes%s", l.Unfolded, repeated)}
	case l.Depth > 0 && s.depth+depth > l.Depth+1: // the document is a level of its own
		return l.tooDeep()
	}
	return nil
}

func (l Limits) tooDeep() error {
	return &Error{fmt.Sprintf("more than %d lists and objects in one another", l.Depth)}
}

// unclosed is how many brackets are open at once, those in strings among them.
func unclosed(text []byte) int {
	open, most := 0, 0
	for _, c := range text {
		switch c {
		case '[', '{':
			open++
			most = max(most, open)
		case ']', '}':
			open--
		}
	}
	return most
}
