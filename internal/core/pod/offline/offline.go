// Package offline injects the pods of manifest files, or undoes their injection, without a cluster.
package offline

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"strings"

	"github.com/rogpeppe/go-internal/diff"
	corev1 "k8s.io/api/core/v1"

	"outrider.dev/internal/base/manifest"
	"outrider.dev/internal/core/pod/inject"
	"outrider.dev/internal/core/pod/inject/verdict"
	"outrider.dev/internal/core/pod/podfile"
)

// A File is a file of manifests.
type File struct {
	Name string
	Data []byte
}

// Options holds the settings of [Inject].
type Options struct {
	Inject    inject.Options
	Namespace string            // namespace of objects that do not name one
	Labels    map[string]string // labels of that namespace, in addition to those in its manifest

	// Pod injects one pod. Default: [inject.Pod].
	Pod func(*corev1.Pod, inject.Namespace, inject.Options) (inject.Result, error)
}

// A Message is a note, warning, error or hint about one object.
type Message struct {
	Level  string
	Object podfile.Object
	Text   string
}

func (m Message) String() string {
	return fmt.Sprintf("%s: %s: document %d: %s: %s", m.Level, m.Object.File, m.Object.Document, m.Object, m.Text)
}

// A Result holds the files after [Inject] or [Uninject].
type Result struct {
	Files   []File
	Refused int // number of refused pods

	what    string // "injected" or "uninjected"
	changes []podfile.Change
	reasons map[string][]string // by [key]
}

type injection struct {
	options    Options
	report     func(Message)
	namespaces map[string]inject.Namespace
	result     Result
}

// Inject injects the pods of all files. It calls the function report for each message. If a pod is refused, that
// is a message too, and Inject continues with the other pods.
func Inject(files []File, o Options, report func(Message)) (Result, error) {
	if o.Pod == nil {
		o.Pod = inject.Pod
	}
	in := injection{options: o, report: report, namespaces: namespaces(files, o), result: Result{reasons: map[string][]string{}, what: "injected"}}
	return in.run(files, in.pod)
}

// run applies the function change to the pods of all files.
func (in *injection) run(files []File, change func(podfile.Object) (*corev1.Pod, error)) (Result, error) {
	for _, f := range files {
		out, changes, err := podfile.Rewrite(f.Name, f.Data, change)
		if err != nil {
			return Result{}, err
		}
		in.result.Files = append(in.result.Files, File{f.Name, out})
		in.result.changes = append(in.result.changes, changes...)
	}
	return in.result, nil
}

// namespaces returns the namespaces that the files define. They are needed before the pods are read, because a
// namespace may be defined after its pods.
func namespaces(files []File, o Options) map[string]inject.Namespace {
	out := map[string]inject.Namespace{}
	for _, f := range files {
		for _, ns := range manifest.Namespaces(f.Data) {
			out[ns.Name] = inject.Namespace{Name: ns.Name, Labels: ns.Labels, Annotations: ns.Annotations}
		}
	}
	if len(o.Labels) > 0 {
		ns := out[o.Namespace]
		labels := map[string]string{}
		maps.Copy(labels, ns.Labels)
		maps.Copy(labels, o.Labels)
		ns.Name, ns.Labels = o.Namespace, labels
		out[ns.Name] = ns
	}
	return out
}

func (in *injection) reporter(o podfile.Object) func(level, format string, args ...any) {
	return func(level, format string, args ...any) { in.report(Message{level, o, fmt.Sprintf(format, args...)}) }
}

func (in *injection) refuse(report func(level, format string, args ...any), refusal *verdict.Refusal) {
	in.result.Refused++
	report("error", "%s (%s)", refusal.Sentence, refusal.Code)
	if refusal.Hint != "" {
		report("hint", "%s", refusal.Hint)
	}
}

// pod injects one pod. The result is nil if the pod does not change.
func (in *injection) pod(o podfile.Object) (*corev1.Pod, error) {
	report := in.reporter(o)
	if o.NoPod != nil {
		report("note", "not injected: %s is no pod template: %v", o.Template, o.NoPod)
		return nil, nil
	}
	for _, field := range o.Unknown {
		report("note", "%s is an unknown field; it stays", field)
	}
	name := o.Namespace
	if name == "" {
		name = in.options.Namespace
	}
	ns, known := in.namespaces[name]
	if !known {
		ns.Name = name
	}
	options := in.options.Inject
	options.Claims = o.Claims
	if o.Kind != "Pod" {
		options.Workload = inject.Workload{APIVersion: o.APIVersion, Kind: o.Kind, Name: o.Name}
	}
	r, err := in.options.Pod(&o.Pod, ns, options)
	for _, w := range r.Warnings {
		report("warning", "%s", w)
	}
	var refusal *verdict.Refusal
	switch {
	case errors.As(err, &refusal):
		in.refuse(report, refusal)
		return nil, nil
	case err != nil:
		return nil, err
	case !r.Injected:
		report("note", "not injected: %s (%s)", r.Reason.Sentence, r.Reason.Code)
		if r.Pod == &o.Pod {
			return nil, nil
		}
		return r.Pod, nil // without an earlier injection
	}
	in.result.reasons[key(o.File, o.Document, o.String())] = append([]string{"injected: " + r.Reason.Sentence}, r.Notes...)
	return r.Pod, nil
}

// key returns a string that identifies an object of a document.
func key(file string, document int, object string) string {
	return fmt.Sprintf("%s/%d/%s", file, document, object)
}

// Diff returns the differences of all changed documents, each with the reasons for the changes.
func (r Result) Diff() []byte {
	var b bytes.Buffer
	for _, c := range r.changes {
		for _, object := range c.Objects {
			fmt.Fprintf(&b, "# %s: document %d: %s\n", c.File, c.Document, object)
			for _, line := range r.reasons[key(c.File, c.Document, object)] {
				fmt.Fprintf(&b, "#   %s\n", line)
			}
		}
		name := strings.Join(strings.Fields(c.File), "-")
		b.Write(diff.Diff(name, []byte(c.Before), name+" ("+r.what+")", []byte(c.After)))
	}
	return b.Bytes()
}

// Text returns all files joined by [Join].
func (r Result) Text() []byte {
	var texts [][]byte
	for _, f := range r.Files {
		texts = append(texts, f.Data)
	}
	return Join(texts)
}

// Join returns several texts as one file of YAML documents. Texts are separated such that kubectl reads each as
// its own documents.
func Join(texts [][]byte) []byte {
	var b bytes.Buffer
	for i, text := range texts {
		if i > 0 {
			if b.Len() > 0 && !bytes.HasSuffix(b.Bytes(), []byte("\n")) {
				b.WriteByte('\n')
			}
			if !bytes.HasPrefix(text, []byte("---")) {
				b.WriteString("---\n")
			}
		}
		b.Write(text)
	}
	return b.Bytes()
}
