package manifest

import (
	"encoding/json"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
	kjson "sigs.k8s.io/json"
)

// field is the value of a mapping's key; nil if it has none.
func field(n *yaml.Node, key string) *yaml.Node {
	if n == nil || n.Kind != yaml.MappingNode {
		return nil
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == key {
			return n.Content[i+1]
		}
	}
	return nil
}

// indirect says whether there is something to [expand] below n: an alias, or a merge key.
func indirect(n *yaml.Node) bool {
	return n.Kind == yaml.AliasNode || isMerge(n) || slices.ContainsFunc(n.Content, indirect)
}

func isMerge(key *yaml.Node) bool { return key.Tag == "!!merge" || key.Value == "<<" }

// expand writes out aliases and merge keys below n, so that a change in one place
// changes no other. No anchor must hold itself.
func expand(n *yaml.Node) {
	for i, c := range n.Content {
		for c.Kind == yaml.AliasNode {
			c = clone(c.Alias)
			n.Content[i] = c
		}
		expand(c)
		c.Anchor = ""
	}
	if n.Kind == yaml.MappingNode {
		unmerge(n)
	}
}

func clone(n *yaml.Node) *yaml.Node {
	out := *n
	out.Anchor = ""
	out.Content = make([]*yaml.Node, len(n.Content))
	for i, c := range n.Content {
		out.Content[i] = clone(c)
	}
	return &out
}

// unmerge puts the fields behind << into the mapping; its own ones go first.
func unmerge(n *yaml.Node) {
	for i := 0; i+1 < len(n.Content); i += 2 {
		if !isMerge(n.Content[i]) {
			continue
		}
		merged := n.Content[i+1]
		n.Content = slices.Delete(n.Content, i, i+2)
		sources := []*yaml.Node{merged}
		if merged.Kind == yaml.SequenceNode {
			sources = merged.Content
		}
		for _, s := range sources {
			for j := 0; j+1 < len(s.Content); j += 2 {
				if field(n, s.Content[j].Value) == nil {
					n.Content = append(n.Content, s.Content[j], s.Content[j+1])
				}
			}
		}
		i -= 2
	}
}

// written is a value of the API's types as a node.
func written(v any) (*yaml.Node, error) {
	text, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	var plain any
	if err := kjson.UnmarshalCaseSensitivePreserveInts(text, &plain); err != nil {
		return nil, err
	}
	return valueNode(plain)
}

// valueNode is a value of JSON as a node. A name goes first, as people write it.
func valueNode(v any) (*yaml.Node, error) {
	switch v := v.(type) {
	case map[string]any:
		out := &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"}
		keys := make([]string, 0, len(v))
		for k := range v {
			keys = append(keys, k)
		}
		slices.SortFunc(keys, func(a, b string) int {
			if (a == "name") != (b == "name") {
				if a == "name" {
					return -1
				}
				return 1
			}
			return strings.Compare(a, b)
		})
		for _, k := range keys {
			key, err := valueNode(k)
			if err != nil {
				return nil, err
			}
			value, err := valueNode(v[k])
			if err != nil {
				return nil, err
			}
			out.Content = append(out.Content, key, value)
		}
		return out, nil
	case []any:
		out := &yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq"}
		for _, item := range v {
			n, err := valueNode(item)
			if err != nil {
				return nil, err
			}
			out.Content = append(out.Content, n)
		}
		return out, nil
	}
	out := &yaml.Node{}
	return out, out.Encode(v)
}

// argv are the elements of command and args, of each container below a pod's node.
func argv(pod *yaml.Node) map[string][]*yaml.Node {
	out := map[string][]*yaml.Node{}
	for _, list := range []string{"initContainers", "containers"} {
		containers := field(field(pod, "spec"), list)
		if containers == nil {
			continue
		}
		for _, c := range containers.Content {
			for _, key := range []string{"command", "args"} {
				if words := field(c, key); words != nil && words.Kind == yaml.SequenceNode {
					out[text(c, "name")] = append(out[text(c, "name")], words.Content...)
				}
			}
		}
	}
	return out
}

// keepWords gives the words of commands the comments and quotes that they had: a gate goes
// before them, or is taken away, and they stay the last ones.
func keepWords(pod *yaml.Node, before map[string][]*yaml.Node) {
	for name, now := range argv(pod) {
		old := before[name]
		for i := 1; i <= min(len(old), len(now)); i++ {
			was, is := old[len(old)-i], now[len(now)-i]
			if was.Kind != yaml.ScalarNode || was.Value != is.Value {
				break
			}
			is.Style = was.Style
			is.HeadComment, is.LineComment, is.FootComment = was.HeadComment, was.LineComment, was.FootComment
		}
	}
}
