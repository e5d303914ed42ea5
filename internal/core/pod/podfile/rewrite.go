package podfile

import (
	"bytes"
	"errors"
	"fmt"
	"strings"

	"go.yaml.in/yaml/v3"
	corev1 "k8s.io/api/core/v1"

	"outrider.dev/internal/base/manifest"
	"outrider.dev/internal/base/manifest/decodeerror"
)

// A Change is a document before and after [Rewrite].
type Change struct {
	File          string
	Document      int
	Objects       []string
	Before, After string
}

// Rewrite calls change for each pod and pod template, and returns the file with each pod replaced by the result
// of change. If the result is nil, the pod does not change. A document without a changed pod keeps its exact
// bytes. If change fails, Rewrite returns that error. If the file is invalid, the error is an [*InputError].
func Rewrite(file string, data []byte, change func(Object) (*corev1.Pod, error)) ([]byte, []Change, error) {
	var out bytes.Buffer
	var changes []Change
	number := 0
	for s := range manifest.Split(data) {
		if s.Empty() {
			out.Write(s.Raw())
			continue
		}
		number++
		r := rewriter{parser: parser{at: InputError{File: file, Document: number, Line: s.Line}}, change: change}
		after, err := r.rewrite(s.Body)
		if err != nil {
			return nil, nil, err
		}
		if r.changed == nil {
			out.Write(s.Raw())
			continue
		}
		if out.Write(s.Lead); bytes.HasPrefix(s.Lead, []byte("---")) && !bytes.HasSuffix(s.Lead, []byte("\n")) {
			out.WriteByte('\n') // the document began on the line of the "---"
		}
		out.Write(after)
		changes = append(changes, Change{file, number, r.changed, string(s.Body), string(after)})
	}
	return out.Bytes(), changes, nil
}

// A rewriter changes the pods of one document.
type rewriter struct {
	parser
	change  func(Object) (*corev1.Pod, error)
	changed []string
}

func (r *rewriter) rewrite(text []byte) ([]byte, error) {
	if err := r.document(text); err != nil {
		return nil, err
	}
	d, err := manifest.Read(text)
	if err == nil {
		err = d.Expand()
	}
	if err != nil {
		return nil, r.fail("", "", errors.New(decodeerror.Syntax(text, err)))
	}
	items := manifest.Objects(d.Root())
	for _, o := range r.objects {
		if o.Index >= len(items) {
			return nil, r.fail(o.String(), "", errors.New("not found in the YAML a second time"))
		}
		if err := r.replace(d, o, items[o.Index]); err != nil {
			return nil, err
		}
	}
	after, _, err := d.Text()
	return after, err
}

func (r *rewriter) replace(d *manifest.Document, o Object, node *yaml.Node) error {
	pod, err := r.change(o)
	if err != nil || pod == nil {
		return err
	}
	before, err := manifest.Tree(&o.Pod)
	if err != nil {
		return err
	}
	after, err := manifest.Tree(pod)
	if err != nil {
		return err
	}
	changed, err := d.Change(node, o.templatePath(), before, after)
	if err != nil {
		return fmt.Errorf("%s: document %d: %s: %w", o.File, o.Document, o, err)
	}
	if changed {
		r.changed = append(r.changed, o.String())
	}
	return nil
}

// templatePath returns the path to the pod template as a list of keys.
func (o Object) templatePath() []string {
	if o.Template == "" {
		return nil
	}
	return strings.Split(o.Template, ".")
}
