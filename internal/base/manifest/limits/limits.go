// Package limits parses YAML from unknown authors. It computes the size of the document with expanded aliases
// before anything expands them, because a text of 200 KB can expand to 9 GB.
//
// Package manifest uses it for decoding. The agent uses it directly, to link less code.
package limits

import (
	"bytes"
	"fmt"

	"go.yaml.in/yaml/v3"
)

// Limits are the limits of a text. Zero means no limit.
type Limits struct {
	Bytes    int // size of the text
	Values   int // number of keys, scalars, lists and objects, counted again for each alias
	Unfolded int // total size of keys and scalars, counted again for each alias
	Depth    int // nesting of lists and objects
	Keys     int // number of keys in one object; the decoder's time grows with its square
}

// Annotation are the limits for the value of an annotation. Tenants write it, and servers of the mesh parse it.
// The API server accepts 256 KiB of annotations per object.
var Annotation = Limits{Bytes: 64 << 10, Values: 4096, Unfolded: 256 << 10, Depth: 32}

// Document returns limits for a whole document. They grow with its length, and allow as many aliases as a person
// would write.
func Document(text []byte) Limits {
	return Limits{Values: 1<<16 + 4*len(text), Unfolded: 1<<20 + 4*len(text), Depth: 1000, Keys: 10_000}
}

// An Error reports that a text exceeds a limit.
type Error struct{ reason string }

func (e *Error) Error() string { return e.reason }

// Check returns an error if a text exceeds the limits. Without a limit on bytes, it accepts a text without
// aliases unparsed, even if it is not YAML, because such a text does not expand.
func (l Limits) Check(text []byte) error {
	if l.Bytes == 0 && !bytes.ContainsRune(text, '*') {
		return nil
	}
	_, err := l.Parse(text)
	return err
}

// Parse parses a text, or returns an error if it exceeds the limits. For a text without a document, the result
// has no content. Alias nodes are not expanded.
func (l Limits) Parse(text []byte) (*yaml.Node, error) {
	if l.Bytes > 0 && len(text) > l.Bytes {
		return nil, &Error{fmt.Sprintf("%d bytes; want at most %d", len(text), l.Bytes)}
	}
	if l.Depth > 0 && unclosed(text) > 32*l.Depth { // the parser takes half a second for 10,000 open brackets
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

// Decode decodes a text by the tags and rules of yaml.v3, or returns an error if it exceeds the limits.
func (l Limits) Decode(text []byte, into any) error {
	document, err := l.Parse(text)
	if err != nil || len(document.Content) == 0 {
		return err
	}
	return document.Decode(into)
}

// A size is the size of a node including everything below it, with expanded aliases.
type size struct{ values, bytes, depth int }

type counter struct {
	limits Limits
	sizes  map[*yaml.Node]size // sizes of nodes with an anchor; depth -1 marks one that is being counted
}

// count returns the size of a node at a depth. It visits each node of the text once; for an alias, it reuses the
// size of the node to which that refers.
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

// judge returns an error if a node of this size, at this depth, exceeds the limits.
func (c *counter) judge(s size, depth int) error {
	const repeated = ", each value as often as an alias (*NAME) repeats it"
	switch l := c.limits; {
	case l.Values > 0 && s.values > l.Values:
		return &Error{fmt.Sprintf("more than %d values%s", l.Values, repeated)}
	case l.Unfolded > 0 && s.bytes > l.Unfolded:
		return &Error{fmt.Sprintf("more than %d bytes%s", l.Unfolded, repeated)}
	case l.Depth > 0 && s.depth+depth > l.Depth+1: // + 1, because the document node is a level too
		return l.tooDeep()
	}
	return nil
}

func (l Limits) tooDeep() error {
	return &Error{fmt.Sprintf("more than %d lists and objects in one another", l.Depth)}
}

// unclosed returns the maximum number of brackets that are open at once, including brackets in strings.
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
