package podfile

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	kjson "sigs.k8s.io/json"

	"outrider.dev/internal/base/manifest"
	"outrider.dev/internal/base/manifest/decodeerror"
)

// An Object is a pod, or an object with a pod template.
type Object struct {
	File     string `json:"file"`
	Document int    `json:"document"` // number of the document in the file, from 1
	Kind     string `json:"kind"`
	Name     string `json:"name"`
	Template string `json:"template,omitempty"` // field path of the pod template; empty for a pod

	APIVersion string     `json:"-"`
	Namespace  string     `json:"-"` // as in the document; may be empty
	Index      int        `json:"-"` // index among the objects of the document
	Pod        corev1.Pod `json:"-"`
	Unknown    []string   `json:"-"` // fields that this version of the API does not define
	Claims     []string   `json:"-"` // volumes that a StatefulSet adds to its pods

	// NoPod is the error that explains why a template with containers is not a pod template. It is set only for
	// kinds that are not part of Kubernetes. [Parse] leaves such objects out.
	NoPod error `json:"-"`
}

func (o Object) String() string {
	if o.Name == "" {
		return o.Kind
	}
	return o.Kind + " " + o.Name
}

// Field returns the path of a field of the pod, seen from the object.
func (o Object) Field(podField string) string {
	if o.Template == "" {
		return podField
	}
	return o.Template + "." + podField
}

// An InputError reports an invalid document.
type InputError struct {
	File     string
	Document int
	Line     int // the first line of the document in the file
	Object   string
	Field    string
	Err      error
}

func (e *InputError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: document %d (line %d)", e.File, e.Document, e.Line)
	if e.Object != "" {
		b.WriteString(": " + e.Object)
	}
	if e.Field != "" {
		b.WriteString(": " + e.Field)
	}
	return b.String() + ": " + e.Err.Error()
}

func (e *InputError) Unwrap() error { return e.Err }

// templates contains the path of the pod template for the kinds in which it is not spec.template.
var templates = map[string]string{
	"Pod":     "",
	"CronJob": "spec.jobTemplate.spec.template",
}

const usualTemplate = "spec.template"

// ownGroups lists the API groups whose kinds always have a pod template. In other kinds, spec.template is a pod
// template only if it can be decoded as one: in an ApplicationSet, a VirtualMachine or a MachineDeployment it is
// something else, and in a Knative Service it may lack names.
var ownGroups = []string{"", "apps", "batch", "extensions"}

// own reports whether the object is of a kind that must have a pod template.
func (o Object) own() bool {
	group, _, hasGroup := strings.Cut(o.APIVersion, "/")
	if !hasGroup {
		group = "" // v1, or no API version at all
	}
	return slices.Contains(ownGroups, group) && (o.APIVersion != "" || slices.Contains(ownKinds, o.Kind))
}

// ownKinds are the kinds that are recognised without their API version.
var ownKinds = []string{"Pod", "ReplicationController", "Deployment", "StatefulSet", "DaemonSet", "ReplicaSet", "Job", "CronJob"}

// Parse returns the pods and pod templates in a file, YAML or JSON, and the kinds of the other objects. The error
// is an [*InputError].
func Parse(file string, data []byte) (objects []Object, others []string, err error) {
	number := 0
	for s := range manifest.Split(data) {
		if s.Empty() {
			continue
		}
		number++
		p := parser{at: InputError{File: file, Document: number, Line: s.Line}}
		if err := p.document(s.Body); err != nil {
			return nil, nil, err
		}
		for _, o := range p.objects {
			if o.NoPod != nil {
				others = append(others, o.Kind)
			} else {
				objects = append(objects, o)
			}
		}
		others = append(others, p.others...)
	}
	return objects, others, nil
}

// Named returns the only object with the given name, or the only object if the name is empty. It fails if there
// is none or more than one.
func Named(file string, objects []Object, name string) (Object, error) {
	var names []string
	var found []Object
	for _, object := range objects {
		names = append(names, object.Name)
		if name == "" || object.Name == name {
			found = append(found, object)
		}
	}
	switch {
	case len(found) == 0:
		return Object{}, fmt.Errorf("%s has no pod or workload %q; names are %s", file, name, strings.Join(names, ", "))
	case len(found) > 1:
		return Object{}, fmt.Errorf("%s has %d pods: choose one with --pod; names are %s", file, len(found), strings.Join(names, ", "))
	}
	return found[0], nil
}

type parser struct {
	at      InputError
	objects []Object
	others  []string
	count   int // number of objects of any kind
}

func (p *parser) fail(object, field string, err error) error {
	e := p.at
	e.Object, e.Field, e.Err = object, field, err
	return &e
}

// mismatch explains an error about a value of a wrong type. The parameter raw is the JSON of the object or of its
// pod template.
func (p *parser) mismatch(o Object, raw []byte, err error) error {
	if m := decodeerror.Find(raw, err); m != nil {
		return p.fail(o.String(), o.Field(m.Field), m)
	}
	return p.fail(o.String(), "", errors.New(decodeerror.Reason(err)))
}

func (p *parser) document(text []byte) error {
	raw, err := manifest.StrictJSON(text)
	if err != nil {
		return p.fail("", "", errors.New(decodeerror.Syntax(text, err)))
	}
	return p.object(raw, "", "")
}

// object reads one object, or all objects of a list. The parameters apiVersion and kind are used if the object
// does not set these fields, as in some lists.
func (p *parser) object(raw []byte, apiVersion, kind string) error {
	var head struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
		Metadata   struct {
			Name         string `json:"name"`
			Namespace    string `json:"namespace"`
			GenerateName string `json:"generateName"`
		} `json:"metadata"`
		Items []json.RawMessage `json:"items"`
	}
	raw = bytes.TrimSpace(raw)
	if string(raw) == "null" {
		return nil // kubectl ignores null too, as a document and as an item of a list
	}
	if len(raw) == 0 || raw[0] != '{' {
		return p.fail("", "", errors.New("this is no Kubernetes object"))
	}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(raw, &head); err != nil {
		return p.mismatch(Object{}, raw, err)
	}
	head.Kind = cmp.Or(head.Kind, kind)
	if head.Kind == "" {
		return p.fail("", "kind", errors.New("missing: this is no Kubernetes object"))
	}
	if of, isList := strings.CutSuffix(head.Kind, "List"); isList && head.Items != nil {
		if of == "" {
			head.APIVersion, apiVersion = "", "" // a List contains objects of any version
		}
		for _, item := range head.Items {
			if err := p.object(item, cmp.Or(head.APIVersion, apiVersion), of); err != nil {
				return err
			}
		}
		return nil
	}
	o := Object{File: p.at.File, Document: p.at.Document, Index: p.count, APIVersion: cmp.Or(head.APIVersion, apiVersion), Kind: head.Kind,
		Namespace: head.Metadata.Namespace, Name: cmp.Or(head.Metadata.Name, head.Metadata.GenerateName)}
	p.count++
	if o.Kind == "StatefulSet" {
		o.Claims = claimsOf(raw)
	}
	path, known := templates[head.Kind]
	if !known {
		path = usualTemplate
	}
	o.Template = path
	template, ok := templateAt(raw, path)
	if !ok {
		p.others = append(p.others, o.Kind)
		return nil
	}
	return p.template(o, template)
}

// claimsOf returns the names of a StatefulSet's volume claim templates; none if they cannot be decoded.
func claimsOf(raw []byte) (names []string) {
	var claims []struct {
		Metadata struct {
			Name string `json:"name"`
		} `json:"metadata"`
	}
	if text, ok := dig(raw, "spec.volumeClaimTemplates"); !ok || json.Unmarshal(text, &claims) != nil {
		return nil
	}
	for _, c := range claims {
		names = append(names, c.Metadata.Name)
	}
	return names
}

// template reads the pod from the given JSON, if that is a pod template.
func (p *parser) template(o Object, template []byte) error {
	err := p.pod(o, template)
	if err == nil || o.own() {
		return err
	}
	if _, has := dig(template, "spec.containers"); !has {
		p.others = append(p.others, o.Kind)
		return nil
	}
	o.NoPod = err
	var input *InputError
	if errors.As(err, &input) {
		o.NoPod = fmt.Errorf("%s: %w", cmp.Or(input.Field, o.Template), input.Err)
	}
	p.objects = append(p.objects, o)
	return nil
}

// pod decodes the template of o and checks the fields that every pod must have.
func (p *parser) pod(o Object, template []byte) error {
	strict, err := kjson.UnmarshalStrict(template, &o.Pod)
	if err != nil {
		return p.mismatch(o, template, err)
	}
	for _, s := range strict {
		if field, ok := s.(kjson.FieldError); ok && strings.HasPrefix(s.Error(), "unknown field") {
			o.Unknown = append(o.Unknown, o.Field(field.FieldPath()))
			continue
		}
		return p.fail(o.String(), "", s)
	}
	if len(o.Pod.Spec.Containers) == 0 {
		return p.fail(o.String(), o.Field("spec.containers"), errors.New("a pod needs at least one container"))
	}
	for _, list := range []string{"initContainers", "containers"} {
		containers := o.Pod.Spec.Containers
		if list == "initContainers" {
			containers = o.Pod.Spec.InitContainers
		}
		if i := slices.IndexFunc(containers, func(c corev1.Container) bool { return c.Name == "" }); i >= 0 {
			return p.fail(o.String(), o.Field(fmt.Sprintf("spec.%s[%d].name", list, i)), errors.New("missing"))
		}
	}
	p.objects = append(p.objects, o)
	return nil
}

// templateAt returns the pod template at a path of names; false if there is none.
func templateAt(raw []byte, path string) ([]byte, bool) {
	raw, ok := dig(raw, path)
	if !ok {
		return nil, false
	}
	_, ok = dig(raw, "spec")
	return raw, ok
}

// dig returns the value at a path of field names; false if there is none.
func dig(raw []byte, path string) ([]byte, bool) {
	for step := range strings.SplitSeq(path, ".") {
		var level map[string]json.RawMessage
		if step == "" {
			continue
		}
		if json.Unmarshal(raw, &level) != nil || level[step] == nil {
			return nil, false
		}
		raw = level[step]
	}
	return raw, true
}
