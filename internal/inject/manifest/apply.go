package manifest

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"outrider.dev/internal/inject"
)

// apply does one step of a patch below n. The patch is one of the typed pod, which has
// fields that the document may leave out: what is to be changed may have to be made, and
// what is to go may not be there.
func apply(n *yaml.Node, op inject.Operation) error {
	steps := strings.Split(strings.TrimPrefix(op.Path, "/"), "/")
	for i := range steps {
		steps[i] = strings.NewReplacer("~1", "/", "~0", "~").Replace(steps[i])
	}
	for _, step := range steps[:len(steps)-1] {
		n.Style &^= yaml.FlowStyle
		below, err := below(n, step)
		if err != nil {
			return fmt.Errorf("%s: %w", op.Path, err)
		}
		if below == nil && op.Op == "remove" {
			return nil
		}
		if below == nil {
			below = &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"}
			put(n, step, below)
		}
		n = below
	}
	n.Style &^= yaml.FlowStyle
	last := steps[len(steps)-1]
	if n.Kind == yaml.SequenceNode {
		return inSequence(n, last, op)
	}
	if n.Kind == yaml.ScalarNode && n.Tag == "!!null" {
		*n = yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"}
	}
	if n.Kind != yaml.MappingNode {
		return fmt.Errorf("%s: not an object", op.Path)
	}
	if op.Op == "remove" {
		remove(n, last)
		return nil
	}
	value, err := valueNode(op.Value)
	if err != nil {
		return err
	}
	put(n, last, value)
	return nil
}

// below is a field or an element; nil if a mapping has none of that name.
func below(n *yaml.Node, step string) (*yaml.Node, error) {
	switch {
	case n.Kind == yaml.MappingNode:
		return field(n, step), nil
	case n.Kind == yaml.ScalarNode && n.Tag == "!!null":
		*n = yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"}
		return nil, nil
	case n.Kind == yaml.SequenceNode:
		i, err := strconv.Atoi(step)
		if err != nil || i < 0 || i >= len(n.Content) {
			return nil, fmt.Errorf("no element %s", step)
		}
		return n.Content[i], nil
	}
	return nil, fmt.Errorf("%q is in no object", step)
}

func inSequence(n *yaml.Node, step string, op inject.Operation) error {
	i, err := strconv.Atoi(step)
	limit := len(n.Content) - 1
	if op.Op == "add" {
		limit++
	}
	if err != nil || i < 0 || i > limit {
		return fmt.Errorf("%s: no such element", op.Path)
	}
	if op.Op == "remove" {
		n.Content = slices.Delete(n.Content, i, i+1)
		return nil
	}
	value, err := valueNode(op.Value)
	if err != nil {
		return err
	}
	if op.Op == "add" {
		n.Content = slices.Insert(n.Content, i, value)
		return nil
	}
	n.Content[i] = value
	return nil
}

// put sets a key. A list stays on one line if it was, and what was said about it stays.
func put(n *yaml.Node, key string, value *yaml.Node) {
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value != key {
			continue
		}
		old := n.Content[i+1]
		value.HeadComment, value.LineComment, value.FootComment = old.HeadComment, old.LineComment, old.FootComment
		if old.Kind == value.Kind && len(value.Content) <= maxFlow {
			value.Style |= old.Style & yaml.FlowStyle
		}
		n.Content[i+1] = value
		return
	}
	name := &yaml.Node{}
	if err := name.Encode(key); err != nil {
		name.Kind, name.Value = yaml.ScalarNode, key
	}
	n.Content = append(n.Content, name, value)
}

// maxFlow is how many elements a list may have to stay on one line.
const maxFlow = 6

func remove(n *yaml.Node, key string) {
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == key {
			n.Content = slices.Delete(n.Content, i, i+2)
			return
		}
	}
}
