// Package manifest changes pods within manifests, and nothing else: documents without a
// pod pass through byte for byte, comments and the order of what is written stay, and
// fields that nobody knows do too.
//
// Where to read:
//
//	manifest.go  a file, document by document
//	split.go     where documents begin
//	apply.go     a JSON patch on a document as it is written
//	node.go      values as nodes, aliases as what they stand for
//	print.go     a document in its own style, YAML or JSON
package manifest

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
	corev1 "k8s.io/api/core/v1"

	"outrider.dev/internal/pod/inject"
	"outrider.dev/internal/pod/podspec"
)

// An Object is a pod, or something with a pod template, in a file.
type Object struct {
	podspec.Object
	APIVersion string
	Namespace  string // as it is written; empty if it is not
}

// A Namespace is a document of that kind.
type Namespace struct {
	Name                string
	Labels, Annotations map[string]string
}

// A Change is a document before and after.
type Change struct {
	File          string
	Document      int
	Objects       []string
	Before, After string
}

// Namespaces are the namespaces that a file makes. What is none is passed over, and what
// cannot be read is for [Rewrite] to say.
func Namespaces(data []byte) []Namespace {
	var out []Namespace
	for _, s := range split(data) {
		var head struct {
			Kind     string `yaml:"kind"`
			Metadata struct {
				Name        string            `yaml:"name"`
				Labels      map[string]string `yaml:"labels"`
				Annotations map[string]string `yaml:"annotations"`
			} `yaml:"metadata"`
		}
		if !bytes.Contains(s.body, []byte("Namespace")) || yaml.Unmarshal(s.body, &head) != nil || head.Kind != "Namespace" {
			continue
		}
		ns := Namespace{head.Metadata.Name, head.Metadata.Labels, head.Metadata.Annotations}
		if ns.Labels == nil {
			ns.Labels = map[string]string{} // it is known to have none
		}
		out = append(out, ns)
	}
	return out
}

// Rewrite returns the file with the pods that change returns in the place of those that
// it is given; nil leaves one as it is. An error of change ends it. One of what the file
// says is a *podspec.InputError.
func Rewrite(file string, data []byte, change func(Object) (*corev1.Pod, error)) ([]byte, []Change, error) {
	var out bytes.Buffer
	var changes []Change
	number := 0
	for _, s := range split(data) {
		if s.empty() {
			out.Write(s.raw())
			continue
		}
		number++
		r := rewriter{file: file, number: number, line: s.line, change: change}
		after, err := r.document(s.body)
		if err != nil {
			return nil, nil, err
		}
		if after == nil {
			out.Write(s.raw())
			continue
		}
		if out.Write(s.lead); bytes.HasPrefix(s.lead, []byte("---")) && !bytes.HasSuffix(s.lead, []byte("\n")) {
			out.WriteByte('\n') // the body began behind the dashes
		}
		out.Write(after)
		changes = append(changes, Change{file, number, r.changed, string(s.body), string(after)})
	}
	return out.Bytes(), changes, nil
}

// A rewriter is at one document.
type rewriter struct {
	file         string
	number, line int
	change       func(Object) (*corev1.Pod, error)
	changed      []string
}

// document is the document's new text; nil if it stays.
func (r *rewriter) document(text []byte) ([]byte, error) {
	var doc yaml.Node
	if err := yaml.Unmarshal(text, &doc); err != nil {
		return nil, r.unusable(text, err)
	}
	if len(doc.Content) == 0 {
		return nil, nil
	}
	root := doc.Content[0]
	if root.Kind != yaml.MappingNode {
		return nil, r.unusable(text, errors.New("this is no Kubernetes object"))
	}
	if indirect(root) {
		// An anchor that holds itself has no end, and some that hold one another have one
		// that nobody reaches. The decoder knows both; to write them out would not.
		var whole any
		if err := root.Decode(&whole); err != nil {
			return nil, r.unusable(text, err)
		}
		expand(root)
	}
	any := false
	for _, item := range itemsOf(root) {
		source := text
		if item.node != root {
			var err error
			if source, err = yaml.Marshal(item.whole()); err != nil {
				return nil, err
			}
		}
		done, err := r.object(item, source)
		if err != nil {
			return nil, err
		}
		any = any || done
	}
	if !any {
		return nil, nil
	}
	return printed(&doc, text)
}

// An item is an object, with what the list that it is in says about it.
type item struct {
	node             *yaml.Node
	apiVersion, kind string // of the list; empty if there is none, or it may have any
}

// itemsOf are the objects of a list, or of lists in it, else the object itself.
func itemsOf(n *yaml.Node) []item { return item{node: n}.items() }

func (i item) items() []item {
	items := field(i.node, "items")
	of, isList := strings.CutSuffix(cmp.Or(text(i.node, "kind"), i.kind), "List")
	if !isList || items == nil || items.Kind != yaml.SequenceNode {
		return []item{i}
	}
	version := text(i.node, "apiVersion")
	if of == "" {
		version = "" // of the List, which has objects of any
	}
	var out []item
	for _, n := range items.Content {
		if n.Kind == yaml.MappingNode {
			out = append(out, item{n, version, of}.items()...)
		}
	}
	return out
}

// whole is the object with the kind that its list says for it: the API leaves it out there.
func (i item) whole() *yaml.Node {
	if i.kind == "" || text(i.node, "kind") != "" {
		return i.node
	}
	out := *i.node
	out.Content = slices.Clone(out.Content)
	remove(&out, "kind")
	put(&out, "kind", &yaml.Node{Kind: yaml.ScalarNode, Value: i.kind})
	return &out
}

// object changes one object, and says whether it did.
func (r *rewriter) object(i item, source []byte) (bool, error) {
	var found *podspec.Object
	if err := r.parse(source, func(o podspec.Object) { found = &o }); err != nil {
		return false, err
	}
	if found == nil {
		return false, nil
	}
	o := Object{Object: *found, APIVersion: cmp.Or(text(i.node, "apiVersion"), i.apiVersion), Namespace: text(i.node, "metadata", "namespace")}
	pod, err := r.change(o)
	if err != nil || pod == nil {
		return false, err
	}
	ops, err := inject.Diff(&o.Pod, pod)
	if err != nil || len(ops) == 0 {
		return false, err
	}
	target := i.node
	if o.Template != "" {
		for step := range strings.SplitSeq(o.Template, ".") {
			target.Style &^= yaml.FlowStyle
			target = field(target, step)
		}
	}
	words := argv(target)
	for _, op := range ops {
		if err := apply(target, op); err != nil {
			return false, fmt.Errorf("%s: document %d: %s: %w", r.file, r.number, o, err)
		}
	}
	keepWords(target, words)
	r.changed = append(r.changed, o.String())
	return true, nil
}

// parse reads the pods of a text; its errors name this file's document.
func (r *rewriter) parse(text []byte, each func(podspec.Object)) error {
	objects, _, err := podspec.Parse(r.file, text)
	var input *podspec.InputError
	if errors.As(err, &input) {
		input.Document, input.Line = r.number, input.Line+r.line-1
		return input
	}
	if err != nil {
		return err
	}
	for _, o := range objects {
		o.Document = r.number
		each(o)
	}
	return nil
}

// unusable is the error of a text, in podspec's words if it has some.
func (r *rewriter) unusable(text []byte, err error) error {
	if said := r.parse(text, func(podspec.Object) {}); said != nil {
		return said
	}
	return &podspec.InputError{File: r.file, Document: r.number, Line: r.line, Err: err}
}

// text is a scalar below n; empty if there is none.
func text(n *yaml.Node, path ...string) string {
	for _, step := range path {
		if n = field(n, step); n == nil {
			return ""
		}
	}
	return n.Value
}
