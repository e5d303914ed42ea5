// Package manifest reads and edits YAML and JSON as people write it.
//
// An edit preserves the text around it: comments, order, blank lines and quotes. Both "outrider inject" and
// "outrider lint --fix" edit files through [Document].
//
// Where to read:
//
//	split.go     where documents begin
//	decode.go    strict decoding, within limits
//	document.go  a document that is edited: its objects, and its text afterwards
//	change.go    the nodes of an object, changed as little as possible
//	merge.go     printed nodes, merged into the text of the author
//	node.go      nodes of YAML: fields, aliases, new values
//	print.go     a document in its own style, YAML or JSON
package manifest

import (
	"bytes"

	"outrider.dev/internal/base/manifest/limits"
)

// A Namespace is a document of kind Namespace.
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
			ns.Labels = map[string]string{} // known to have none
		}
		out = append(out, ns)
	}
	return out
}
