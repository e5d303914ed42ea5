package manifest

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"outrider.dev/internal/pod/inject"
)

// apply does one step of a patch below n. The patch is one of the typed pod, which has
// fields that the document may leave out: what is to be changed may have to be made, and
// what is to go may not be there. What is moved keeps its comments.
func apply(n *yaml.Node, op inject.Operation) error {
	var value *yaml.Node
	var err error
	kind := op.Op
	switch kind {
	case "remove":
	case "move":
		kind = "add"
		if value, err = at(n, op.From); err == nil {
			err = change(n, "remove", op.From, nil)
		}
	default:
		value, err = written(op.Value)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", op.Path, err)
	}
	return change(n, kind, op.Path, value)
}

func stepsOf(path string) []string {
	steps := strings.Split(strings.TrimPrefix(path, "/"), "/")
	for i := range steps {
		steps[i] = strings.NewReplacer("~1", "/", "~0", "~").Replace(steps[i])
	}
	return steps
}

// at is what stands at a path.
func at(n *yaml.Node, path string) (*yaml.Node, error) {
	for _, step := range stepsOf(path) {
		next, err := below(n, step)
		if err != nil {
			return nil, err
		}
		if next == nil {
			return nil, fmt.Errorf("there is no %s", step)
		}
		n = next
	}
	return n, nil
}

// change adds, replaces or removes what stands at a path.
func change(n *yaml.Node, kind, path string, value *yaml.Node) error {
	steps := stepsOf(path)
	for _, step := range steps[:len(steps)-1] {
		n.Style &^= yaml.FlowStyle
		below, err := below(n, step)
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		if below == nil && kind == "remove" {
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
	if n.Kind == yaml.ScalarNode && n.Tag == "!!null" {
		*n = yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"}
	}
	switch {
	case n.Kind == yaml.SequenceNode:
		return inSequence(n, kind, path, last, value)
	case n.Kind != yaml.MappingNode:
		return fmt.Errorf("%s: not an object", path)
	case kind == "remove":
		remove(n, last)
	default:
		put(n, last, value)
	}
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

func inSequence(n *yaml.Node, kind, path, step string, value *yaml.Node) error {
	i, err := strconv.Atoi(step)
	limit := len(n.Content) - 1
	if kind == "add" {
		limit++
	}
	if err != nil || i < 0 || i > limit {
		return fmt.Errorf("%s: no such element", path)
	}
	switch kind {
	case "remove":
		n.Content = slices.Delete(n.Content, i, i+1)
	case "add":
		n.Content = slices.Insert(n.Content, i, value)
	default:
		n.Content[i] = value
	}
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
