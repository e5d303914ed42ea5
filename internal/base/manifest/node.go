package manifest

import (
	"bytes"
	"encoding/json"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// Entry returns the index of a key in the Content of a mapping; -1 if the node is not a mapping or has no such
// key. The value of the key is at the next index.
func Entry(n *yaml.Node, key string) int {
	if n == nil || n.Kind != yaml.MappingNode {
		return -1
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == key {
			return i
		}
	}
	return -1
}

// Field returns the node at a path of keys, following aliases; nil if there is none.
func Field(n *yaml.Node, path ...string) *yaml.Node {
	for _, key := range path {
		n = Target(n)
		i := Entry(n, key)
		if i < 0 {
			return nil
		}
		n = n.Content[i+1]
	}
	return Target(n)
}

// Text returns the scalar at a path of keys; "" if there is none.
func Text(n *yaml.Node, path ...string) string {
	if n = Field(n, path...); n == nil || n.Kind != yaml.ScalarNode {
		return ""
	}
	return n.Value
}

// maxDepth bounds the nesting of lists, and chains of aliases.
const maxDepth = 100

// Target follows aliases.
func Target(n *yaml.Node) *yaml.Node {
	for range maxDepth {
		if n == nil || n.Kind != yaml.AliasNode || n.Alias == nil {
			break
		}
		n = n.Alias
	}
	return n
}

// Objects returns the Kubernetes objects of a document. For a List, these are its items, and the items of Lists
// in it, without items that are not mappings. Any other document is itself the object.
func Objects(root *yaml.Node) []*yaml.Node { return objects(root, "", 0) }

// objects is like Objects, for an item of a list. kind is the item's kind if the item does not declare one.
func objects(n *yaml.Node, kind string, depth int) []*yaml.Node {
	n = Target(n)
	if n.Kind != yaml.MappingNode || depth > maxDepth {
		return nil
	}
	if own := Text(n, "kind"); own != "" {
		kind = own
	}
	items := Field(n, "items")
	of, isList := strings.CutSuffix(kind, "List")
	if !isList || items == nil || items.Kind != yaml.SequenceNode {
		return []*yaml.Node{n}
	}
	var out []*yaml.Node
	for _, item := range items.Content {
		out = append(out, objects(item, of, depth+1)...)
	}
	return out
}

// indirect reports whether n contains an alias or a merge key, which [expand] would replace.
func indirect(n *yaml.Node) bool {
	return n.Kind == yaml.AliasNode || isMerge(n) || slices.ContainsFunc(n.Content, indirect)
}

func isMerge(key *yaml.Node) bool { return key.Tag == "!!merge" || key.Value == "<<" }

// expand replaces aliases and merge keys below n by copies, so that a change in one place changes no other. The
// caller must have checked that no anchor contains itself.
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

// unmerge replaces the merge keys (<<) of a mapping by the fields to which they refer, except those that the
// mapping itself has.
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
				if Entry(n, s.Content[j].Value) < 0 {
					n.Content = append(n.Content, s.Content[j], s.Content[j+1])
				}
			}
		}
		i -= 2
	}
}

// fields is a JSON object with ordered fields. Throughout this package, a tree is a JSON value: nil, a scalar,
// fields or []any.
type fields []field

type field struct {
	key   string
	value any
}

func (f fields) get(key string) (any, bool) {
	i := slices.IndexFunc(f, func(f field) bool { return f.key == key })
	if i < 0 {
		return nil, false
	}
	return f[i].value, true
}

// Tree converts v to a JSON tree for [Document.Change]. It keeps lists and maps that are empty but not nil, even
// if they have omitempty, and drops fields that are null.
func Tree(v any) (any, error) {
	text, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	out, err := tree(d)
	if err != nil {
		return nil, err
	}
	return withEmpty(out, reflect.ValueOf(v)), nil
}

// withEmpty adds to the tree of v the empty lists and maps that json.Marshal dropped because of omitempty, but
// that are not nil in v.
func withEmpty(tree any, v reflect.Value) any {
	for v.Kind() == reflect.Pointer {
		v = v.Elem()
	}
	switch t := tree.(type) {
	case []any:
		for i := range t {
			if v.Kind() == reflect.Slice && i < v.Len() {
				t[i] = withEmpty(t[i], v.Index(i))
			}
		}
	case fields:
		for i := 0; v.Kind() == reflect.Struct && i < v.NumField(); i++ {
			of, value := v.Type().Field(i), v.Field(i)
			name, _, _ := strings.Cut(of.Tag.Get("json"), ",")
			at := slices.IndexFunc(t, func(f field) bool { return f.key == name })
			switch kind := value.Kind(); {
			case of.Anonymous && name == "":
				t, _ = withEmpty(t, value).(fields)
			case at >= 0:
				t[at].value = withEmpty(t[at].value, value)
				if none, _ := t[at].value.(fields); kind == reflect.Struct && none != nil && len(none) == 0 {
					t = slices.Delete(t, at, at+1) // an empty struct, which omitempty does not drop, has no information
				}
			case kind == reflect.Slice && !value.IsNil() && value.Len() == 0 && of.Type.Elem().Kind() != reflect.Uint8:
				t = append(t, field{name, []any{}})
			case kind == reflect.Map && !value.IsNil() && value.Len() == 0:
				t = append(t, field{name, fields{}})
			}
		}
		return t
	}
	return tree
}

func tree(d *json.Decoder) (any, error) {
	token, err := d.Token()
	if number, is := token.(json.Number); is {
		if n, err := strconv.Atoi(number.String()); err == nil {
			return n, nil
		}
		return number.Float64()
	}
	open, is := token.(json.Delim)
	if !is {
		return token, err
	}
	object, list := fields{}, []any{}
	for d.More() {
		var key json.Token
		if open == '{' {
			if key, err = d.Token(); err != nil {
				return nil, err
			}
		}
		value, err := tree(d)
		if err != nil {
			return nil, err
		}
		if name, named := key.(string); !named {
			list = append(list, value)
		} else if value != nil { // drop a field that is null, such as the service of a gRPC probe
			object = append(object, field{name, value})
		}
	}
	if _, err = d.Token(); open == '{' {
		return object, err
	}
	return list, err
}

// Set returns a copy of a tree with the value v at a path of keys, or without that field if v is nil.
func Set(tree any, path []string, v any) any {
	if len(path) == 0 {
		return v
	}
	f, _ := tree.(fields)
	old, _ := f.get(path[0])
	out := slices.DeleteFunc(slices.Clone(f), func(f field) bool { return f.key == path[0] })
	if below := Set(old, path[1:], v); below != nil {
		out = append(out, field{path[0], below})
	}
	if out == nil {
		out = fields{}
	}
	return out
}

// newNode converts a tree to a node. Fields are sorted, with "name" first, as people write it.
func newNode(v any) (*yaml.Node, error) {
	switch v := v.(type) {
	case fields:
		out := &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"}
		sorted := slices.SortedFunc(slices.Values(v), func(a, b field) int {
			if (a.key == "name") != (b.key == "name") {
				if a.key == "name" {
					return -1
				}
				return 1
			}
			return strings.Compare(a.key, b.key)
		})
		for _, f := range sorted {
			for _, part := range []any{f.key, f.value} {
				n, err := newNode(part)
				if err != nil {
					return nil, err
				}
				out.Content = append(out.Content, n)
			}
		}
		return out, nil
	case []any:
		out := &yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq"}
		for _, item := range v {
			n, err := newNode(item)
			if err != nil {
				return nil, err
			}
			out.Content = append(out.Content, n)
		}
		return out, nil
	case int:
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!int", Value: strconv.Itoa(v)}, nil
	case bool:
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!bool", Value: strconv.FormatBool(v)}, nil
	case string:
		out := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: v}
		if noText.MatchString(v) {
			out.Style = yaml.DoubleQuotedStyle
		}
		if utf8.ValidString(v) {
			return out, nil
		}
	}
	out := &yaml.Node{}
	return out, out.Encode(v) // correct for all values, but a hundred times slower than the code above
}

// noText matches strings that a YAML 1.1 parser reads as another type, although the emitter of this library would
// not quote them.
var noText = regexp.MustCompile(`^([yYnN]|yes|Yes|YES|no|No|NO|on|On|ON|off|Off|OFF|[-+]?[0-9][0-9_]*(:[0-5]?[0-9])+(\.[0-9_]*)?)$`)
