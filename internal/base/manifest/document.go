package manifest

import (
	"bytes"
	"reflect"
	"strings"

	"go.yaml.in/yaml/v3"

	"outrider.dev/internal/base/manifest/limits"
)

// A Document is a YAML or JSON document that is being edited.
type Document struct {
	text    []byte
	node    yaml.Node
	root    *yaml.Node
	before  []byte // the printed document before any change
	tokens  bool   // merge by tokens instead of lines, for JSON in a style that printing does not reproduce
	changed bool
}

// Read parses a document. A text without a value, such as a comment or the mark of UTF-16 alone, has the value null.
func Read(text []byte) (*Document, error) {
	node, err := limits.Document(text).Parse(text)
	if err != nil {
		return nil, err
	}
	d := &Document{text: text, node: *node, root: &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!null", Line: 1, Column: 1}}
	if len(d.node.Content) > 0 {
		d.root = d.node.Content[0]
	}
	return d, nil
}

// Root returns the node of the document's value.
func (d *Document) Root() *yaml.Node { return d.root }

// Expand replaces aliases and merge keys by copies, so that a change in one place changes no other. An
// anchor that contains itself is an error.
func (d *Document) Expand() error {
	if !indirect(d.root) {
		return nil
	}
	var whole any
	if err := d.root.Decode(&whole); err != nil {
		return err
	}
	if err := d.keep(false); err != nil {
		return err
	}
	expand(d.root)
	return nil
}

// keep prints the document before its first change, for the merge in [Document.Text].
func (d *Document) keep(small bool) (err error) {
	if d.before != nil {
		return nil
	}
	if d.before, err = d.print(); err == nil && small && isJSON(d.text) && !bytes.Equal(d.before, d.text) {
		d.tokens = true
		d.before, err = d.print()
	}
	return err
}

func (d *Document) print() ([]byte, error) {
	if !d.tokens {
		return printed(&d.node, d.text)
	}
	var b strings.Builder
	err := writeJSON(&b, d.root, " ")
	return []byte(b.String()), err
}

// Change changes the pod at a path (template) in an object, given the values of the pod before and after the
// change, which are results of [Tree]. Parts with equal values stay untouched. A changed flow mapping becomes a
// block mapping. Change reports whether anything changed.
func (d *Document) Change(object *yaml.Node, template []string, before, after any) (bool, error) {
	c := changer{root: object, containers: map[string]container{}}
	c.note(Field(object, template...), before)
	return d.change(c, object, Set(nil, template, before), Set(nil, template, after))
}

// SmallChange is like Change, for changes of a line or two in the whole object. Flow mappings stay. If the change
// affects a value that is shared through an anchor, it returns [ErrCannotEdit].
func (d *Document) SmallChange(object *yaml.Node, before, after any) (bool, error) {
	return d.change(changer{small: true, root: object}, object, before, after)
}

func (d *Document) change(c changer, object *yaml.Node, before, after any) (bool, error) {
	if reflect.DeepEqual(before, after) {
		return false, nil
	}
	if err := d.keep(c.small); err != nil {
		return false, err
	}
	d.changed = true
	n, err := c.at(object, before, after)
	if err == nil && n != object {
		*object = *n
	}
	return true, err
}

// Text returns the changed document, with the author's text in unchanged lines. If merging the changes into that
// text would give other values, Text returns the document as printed from its nodes, and exact is false.
func (d *Document) Text() (text []byte, exact bool, err error) {
	if !d.changed {
		return d.text, true, nil
	}
	after, err := d.print()
	if err != nil {
		return nil, false, err
	}
	units := linesOf
	if d.tokens {
		units = tokensOf
	}
	merged := merge(d.text, d.before, after, units)
	if sameValue(merged, &d.node) {
		return merged, true, nil
	}
	return after, false, nil
}

func sameValue(text []byte, n *yaml.Node) bool {
	var document yaml.Node
	if yaml.Unmarshal(text, &document) != nil {
		return false
	}
	if sameNodes(&document, n) {
		return true
	}
	var got, want any // compare the values: order and style may differ
	return document.Decode(&got) == nil && n.Decode(&want) == nil && reflect.DeepEqual(got, want)
}

// sameNodes reports whether two trees are equal except for their style. It is a fast check that compares texts,
// not decoded values.
func sameNodes(a, b *yaml.Node) bool {
	if a.Kind != b.Kind || len(a.Content) != len(b.Content) || a.Kind == yaml.AliasNode ||
		a.Kind == yaml.ScalarNode && (a.Value != b.Value || a.ShortTag() != b.ShortTag()) {
		return false
	}
	for i := range a.Content {
		if !sameNodes(a.Content[i], b.Content[i]) {
			return false
		}
	}
	return true
}

// lineEnds gives a text the line ends of another text (like): LF or CRLF.
func lineEnds(text, like []byte) []byte {
	text = bytes.ReplaceAll(text, []byte("\r\n"), []byte("\n"))
	if bytes.Contains(like, []byte("\r\n")) {
		text = bytes.ReplaceAll(text, []byte("\n"), []byte("\r\n"))
	}
	return text
}
