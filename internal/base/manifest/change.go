package manifest

import (
	"errors"
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// ErrCannotEdit is the error of [Document.SmallChange] for a document in which the user must make the change by
// hand.
var ErrCannotEdit = errors.New("the change does not fit the way in which this YAML is written; a rewrite of the file would be needed")

// A changer edits the YAML nodes of an object, given its values before and after a change. It edits only nodes
// whose values differ, because the text may contain fields that are in neither.
type changer struct {
	small      bool // as for [Document.SmallChange]: keep flow mappings, and return ErrCannotEdit for shared nodes
	root       *yaml.Node
	containers map[string]container // containers of the pod by name, because a container may move between containers and initContainers
}

// A container is an element of a pod's container lists before the change.
type container struct {
	node *yaml.Node
	was  any
	argv []*yaml.Node
}

// at returns the node for a value that changes from before to after. It returns the old node itself if that can
// be edited; old is nil for a new field.
func (c *changer) at(old *yaml.Node, before, after any) (*yaml.Node, error) {
	if old != nil && reflect.DeepEqual(before, after) {
		return old, nil
	}
	if c.small && old != nil && (old.Kind == yaml.AliasNode || old.Anchor != "") {
		return nil, ErrCannotEdit
	}
	is, isMapping := after.(fields)
	was, _ := before.(fields)
	switch inMapping := old != nil && old.Kind == yaml.MappingNode; {
	case isMapping && inMapping && len(old.Content) > 0:
		return old, c.mapping(old, was, is)
	case isMapping && !inMapping && len(was) > 0: // the mapping is in the defaults, not in the document
		made := &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"}
		return made, c.mapping(made, was, is)
	}
	if done, err := c.list(old, before, after); done {
		return old, err
	}
	return written(old, after)
}

// list changes a list in place, if its elements can be matched with those in the values before and after. It
// reports whether they can be matched.
func (c *changer) list(n *yaml.Node, before, after any) (bool, error) {
	was, isList := before.([]any)
	is, stays := after.([]any)
	switch {
	case !isList || !stays || n == nil || n.Kind != yaml.SequenceNode || len(n.Content) != len(was):
		return false, nil
	case named(was) && named(is):
		return true, c.members(n, was, is, nil)
	case len(was) == len(is):
		return true, c.elements(n, was, is)
	}
	return false, nil
}

func (c *changer) mapping(n *yaml.Node, before, after fields) error {
	if !c.small {
		n.Style &^= yaml.FlowStyle
	} else if renamed(n, before, after) {
		return nil
	}
	if err := c.removeFields(n, before, after); err != nil {
		return err
	}
	for _, f := range after {
		was, had := before.get(f.key)
		if had && reflect.DeepEqual(was, f.value) {
			continue
		}
		var old *yaml.Node
		i := Entry(n, f.key)
		if i >= 0 {
			old = n.Content[i+1]
		}
		value, err := c.field(f.key, old, was, f.value)
		switch hadFields, _ := was.(fields); {
		case err != nil:
			return err
		case i < 0:
			key, _ := newNode(f.key) // newNode cannot fail for a string
			n.Content = slices.Insert(n.Content, c.placeFor(n), key, value)
		case c.small && len(hadFields) > 0 && value.Kind == yaml.MappingNode && len(value.Content) == 0: // the change has removed the last field of the mapping
			c.remove(n, i)
		default:
			n.Content[i+1] = value
		}
	}
	return nil
}

// renamed applies a change that consists of renaming one field of a mapping. The field keeps its position and its
// comments. For any other change it does nothing and returns false.
func renamed(n *yaml.Node, before, after fields) bool {
	gone := slices.DeleteFunc(slices.Clone(before), func(f field) bool { _, stays := after.get(f.key); return stays })
	came := slices.DeleteFunc(slices.Clone(after), func(f field) bool { _, was := before.get(f.key); return was })
	if len(gone) != 1 || len(came) != 1 || !reflect.DeepEqual(gone[0].value, came[0].value) {
		return false
	}
	i := Entry(n, gone[0].key)
	if i < 0 || n.Content[i].Kind != yaml.ScalarNode || n.Content[i].Anchor != "" || Entry(n, came[0].key) >= 0 {
		return false
	}
	for _, f := range after {
		if was, had := before.get(f.key); had && !reflect.DeepEqual(was, f.value) {
			return false
		}
	}
	n.Content[i].Value = came[0].key
	return true
}

// field is like [changer.at], for the field with the given key. For a list of containers, it also finds
// containers that the change has moved between containers and initContainers.
func (c *changer) field(key string, old *yaml.Node, before, after any) (*yaml.Node, error) {
	was, isList := before.([]any)
	is, stays := after.([]any)
	if key != "containers" && key != "initContainers" || !stays || !named(is) || c.small || before != nil && !isList {
		return c.at(old, before, after)
	}
	if old == nil || old.Kind != yaml.SequenceNode || len(old.Content) != len(was) {
		old, was = &yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq"}, nil
	}
	return old, c.members(old, was, is, c.containers)
}

// note stores in c.containers the containers that a pod has before any change.
func (c *changer) note(pod *yaml.Node, before any) {
	f, _ := before.(fields)
	spec, _ := f.get("spec")
	f, _ = spec.(fields)
	for _, list := range []string{"initContainers", "containers"} {
		was, _ := f.get(list)
		values, _ := was.([]any)
		nodes := Field(pod, "spec", list)
		for i, v := range values {
			if nodes != nil && i < len(nodes.Content) {
				c.containers[nameOf(v)] = container{nodes.Content[i], v, argv(nodes.Content[i])}
			}
		}
	}
}

// argv returns the nodes of the words in command and args of a container.
func argv(container *yaml.Node) []*yaml.Node {
	var out []*yaml.Node
	for _, key := range []string{"command", "args"} {
		if words := Field(container, key); words != nil && words.Kind == yaml.SequenceNode {
			out = append(out, words.Content...)
		}
	}
	return out
}

// keepWords copies comments and quotes from the words of the old command to those of the new one. It compares the
// words from the end, because a gate is added or removed at the front.
func keepWords(old, now []*yaml.Node) {
	for i := 1; i <= min(len(old), len(now)); i++ {
		was, is := old[len(old)-i], now[len(now)-i]
		if was.Kind != yaml.ScalarNode || was.Value != is.Value {
			break
		}
		is.Style = was.Style
		keepComments(is, was)
	}
}

func keepComments(n, old *yaml.Node) {
	n.HeadComment, n.LineComment, n.FootComment = old.HeadComment, old.LineComment, old.FootComment
}

// maxFlow is the maximum number of elements of a changed list that stays on one line.
const maxFlow = 6

// written returns a node for the value v in the style of the node that it replaces: with its comments, its
// quotes, and for a short list on one line.
func written(old *yaml.Node, v any) (*yaml.Node, error) {
	n, err := newNode(v)
	if err != nil || old == nil {
		return n, err
	}
	keepComments(n, old)
	switch {
	case n.Kind != old.Kind:
	case n.Kind != yaml.ScalarNode:
		if len(n.Content) <= maxFlow {
			n.Style |= old.Style & yaml.FlowStyle
		}
	case n.Tag == "!!str" && old.Style != 0:
		n.Style = old.Style &^ yaml.TaggedStyle
	}
	return n, nil
}

// removeFields removes the fields that the value before the change has, but the value after it has not.
func (c *changer) removeFields(n *yaml.Node, before, after fields) error {
	for _, f := range before {
		i := Entry(n, f.key)
		if _, stays := after.get(f.key); stays {
			continue
		}
		if i < 0 && c.small || i >= 0 && c.small && n.Content[i+1].Anchor != "" {
			return ErrCannotEdit // the field comes from a merge key, or its value has an anchor that other fields use
		}
		if i >= 0 {
			c.remove(n, i)
		}
	}
	return nil
}

// remove removes the field whose key is at index i. In a small change the comment above the field stays.
func (c *changer) remove(n *yaml.Node, i int) {
	if comment := n.Content[i].HeadComment; c.small && comment != "" && i+2 < len(n.Content) {
		next := n.Content[i+2]
		next.HeadComment = strings.TrimSuffix(comment+"\n"+next.HeadComment, "\n")
	}
	n.Content = slices.Delete(n.Content, i, i+2)
}

// placeFor returns the index at which a new field is inserted. Usually this is the end. For
// a small change to a mapping whose first value is not a scalar it is the beginning, where readers expect metadata
// and annotations.
func (c *changer) placeFor(n *yaml.Node) int {
	if !c.small || n == c.root || len(n.Content) == 0 || n.Style&yaml.FlowStyle != 0 || n.Content[1].Kind == yaml.ScalarNode || n.Content[0].HeadComment != "" {
		return len(n.Content)
	}
	return 0
}

// named reports whether each element is an object with a unique field name.
func named(list []any) bool {
	seen := map[string]bool{}
	for _, v := range list {
		name := nameOf(v)
		if name == "" || seen[name] {
			return false
		}
		seen[name] = true
	}
	return true
}

func nameOf(v any) string {
	f, _ := v.(fields)
	name, _ := f.get("name")
	text, _ := name.(string)
	return text
}

// members changes a list whose elements have names, as reported by [named]. A new element may have been moved
// from another list; elsewhere contains the elements of all lists.
func (c *changer) members(n *yaml.Node, before, after []any, elsewhere map[string]container) error {
	if !c.small {
		n.Style &^= yaml.FlowStyle
	}
	content := make([]*yaml.Node, 0, len(after))
	for _, is := range after {
		var old *yaml.Node
		var was any
		known, moved := elsewhere[nameOf(is)]
		if i := slices.IndexFunc(before, func(v any) bool { return nameOf(v) == nameOf(is) }); i >= 0 {
			old, was = n.Content[i], before[i]
		} else if moved {
			old, was = known.node, known.was
		}
		node, err := c.at(old, was, is)
		if err != nil {
			return err
		}
		keepWords(known.argv, argv(node))
		content = append(content, node)
	}
	n.Content = content
	return nil
}

func (c *changer) elements(n *yaml.Node, before, after []any) error {
	for i := range after {
		node, err := c.at(n.Content[i], before[i], after[i])
		if err != nil {
			return err
		}
		n.Content[i] = node
	}
	return nil
}
