// Package manifest reads and edits YAML and JSON files that people write.
//
// An edit preserves the rest of the text: comments, order, blank lines and quotes. Both "outrider inject" and
// "outrider lint --fix" edit files through [Document].
//
// Where to read:
//
//	split.go     the documents of a file
//	decode.go    strict decoding, within limits
//	document.go  a document that is edited, and its text afterwards
//	change.go    changes of an object's nodes, as small as possible
//	merge.go     the merge of printed changes into the text of the author
//	node.go      YAML nodes: fields, aliases, new values
//	print.go     printing of a document in its author's style, YAML or JSON
package manifest

import (
	"bytes"

	"outrider.dev/internal/base/manifest/limits"
)

// A Namespace is a Kubernetes Namespace in a file. Labels is never nil.
type Namespace struct {
	Name                string
	Labels, Annotations map[string]string
}

// Namespaces returns the namespaces that a file declares. It ignores documents of other kinds and documents
// that are not YAML.
func Namespaces(data []byte) []Namespace {
	var out []Namespace
	for s := range Split(data) {
		var head struct {
			Kind     string `yaml:"kind"`
			Metadata struct {
				Name        string            `yaml:"name"`
				Labels      map[string]string `yaml:"labels"`
				Annotations map[string]string `yaml:"annotations"`
			} `yaml:"metadata"`
		}
		if !bytes.Contains(s.Body, []byte("Namespace")) || limits.Document(s.Body).Decode(s.Body, &head) != nil || head.Kind != "Namespace" {
			continue
		}
		ns := Namespace{head.Metadata.Name, head.Metadata.Labels, head.Metadata.Annotations}
		if ns.Labels == nil {
			ns.Labels = map[string]string{} // not nil: the namespace is known to have no labels
		}
		out = append(out, ns)
	}
	return out
}
