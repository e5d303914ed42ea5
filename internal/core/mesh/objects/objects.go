// Package objects converts Kubernetes objects to parts of a mesh.
//
// [Read] takes one object as JSON, for sources that read manifests. The functions for single kinds take
// objects of an API client. Both check every value that a mesh uses: an API server has checked most values,
// but those in files were not checked. Errors contain the field and the valid values.
package objects

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kjson "sigs.k8s.io/json"

	"outrider.dev/internal/core/mesh"
	"outrider.dev/internal/core/mesh/foreign"
)

// An Object is the result of reading one object.
type Object struct {
	APIVersion string
	Kind       string
	Namespace  string
	Name       string
	Item       int // position in a list, from 1; 0: not in a list

	// Known reports whether a mesh uses the kind. If not, nothing else was checked, and Part is nil or a
	// [mesh.IgnoredSpec].
	Known bool
	// Part is nil for an object that has no effect on a mesh, for example a namespace, a pod that has ended,
	// or a route for a gateway.
	Part mesh.Part
}

func (o Object) String() string {
	if o.Name == "" {
		return o.Kind
	}
	return o.Kind + " " + o.Namespace + "/" + o.Name
}

// A FieldError is the reason why one field is invalid.
type FieldError struct {
	Field   string // path in the object; empty: the object as a whole
	Message string // description of the mistake, and the valid values
}

// FieldErrors are all errors in one object.
type FieldErrors []FieldError

func (w FieldErrors) Error() string {
	var b strings.Builder
	for i, x := range w {
		if i > 0 {
			b.WriteString("; ")
		}
		if x.Field != "" {
			b.WriteString(x.Field + ": ")
		}
		b.WriteString(x.Message)
	}
	return b.String()
}

// A reader reads objects of one kind.
type reader struct {
	versions []string // supported versions; errors suggest the first
	read     func(raw []byte) (mesh.Part, error)
}

// readers contains the readers for the kinds that a mesh uses, by group and kind.
var readers = map[[2]string]reader{
	{"", "Service"}:                                 {[]string{"v1"}, decoded(Service)},
	{"", "Pod"}:                                     {[]string{"v1"}, decoded(Pod)},
	{"", "Namespace"}:                               {[]string{"v1"}, decoded(namespace)},
	{"discovery.k8s.io", "EndpointSlice"}:           {[]string{"v1"}, decoded(EndpointSlice)},
	{"gateway.networking.k8s.io", "HTTPRoute"}:      {[]string{"v1", "v1beta1"}, decoded(HTTPRoute)},
	{"gateway.networking.k8s.io", "GRPCRoute"}:      {[]string{"v1", "v1alpha2"}, decoded(GRPCRoute)},
	{"gateway.networking.k8s.io", "ReferenceGrant"}: {[]string{"v1beta1", "v1"}, decoded(ReferenceGrant)},
	{"security.istio.io", "PeerAuthentication"}:     {[]string{"v1", "v1beta1"}, decoded(PeerAuthentication)},
	{"security.istio.io", "AuthorizationPolicy"}:    {[]string{"v1", "v1beta1"}, AuthorizationPolicy},
	{hostGroup, "Host"}:                             {[]string{"v1"}, decoded(Host)},
	{hostGroup, "BackendPolicy"}:                    {[]string{"v1alpha1"}, decoded(BackendPolicy)},

	{"gateway.networking.x-k8s.io", "XBackendTrafficPolicy"}: {[]string{"v1alpha1"}, decoded(XBackendTrafficPolicy)},
}

// Read reads an object, or the items of a list. It stops at the first item with errors. If the error is a
// [FieldErrors], it is about the last object in the result.
func Read(raw []byte) ([]Object, error) { return read(nil, raw, "", "") }

func read(out []Object, raw []byte, apiVersion, kind string) ([]Object, error) {
	var head struct {
		metav1.TypeMeta
		Metadata struct {
			Name      string `json:"name"`
			Namespace string `json:"namespace"`
		} `json:"metadata"`
		Items []json.RawMessage `json:"items"`
	}
	if raw = bytes.TrimSpace(raw); len(raw) == 0 || raw[0] != '{' {
		return append(out, Object{}), FieldErrors{{"", "not a Kubernetes object: must have the fields apiVersion, kind and metadata"}}
	}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(raw, &head); err != nil {
		return append(out, Object{}), decodeError(raw, err)
	}
	o := Object{
		APIVersion: cmp.Or(head.APIVersion, apiVersion), Kind: cmp.Or(head.Kind, kind),
		Namespace: cmp.Or(head.Metadata.Namespace, metav1.NamespaceDefault), Name: head.Metadata.Name,
	}
	if o.Kind == "" {
		return append(out, o), FieldErrors{{"kind", "missing: not a Kubernetes object"}}
	}
	if of, isList := strings.CutSuffix(o.Kind, "List"); isList && head.Items != nil {
		return readItems(out, head.Items, o.APIVersion, of)
	}
	group, version, hasGroup := strings.Cut(o.APIVersion, "/")
	if !hasGroup {
		group, version = "", o.APIVersion
	}
	r, known := readers[[2]string{group, o.Kind}]
	if !known {
		o.Part = ignored(raw)
		return append(out, o), nil
	}
	o.Known = true
	if !slices.Contains(r.versions, version) {
		return append(out, o), FieldErrors{{"apiVersion", fmt.Sprintf("%q is not supported: must be %s", o.APIVersion, strings.TrimPrefix(group+"/"+r.versions[0], "/"))}}
	}
	var err error
	o.Part, err = r.read(raw)
	return append(out, o), err
}

func readItems(out []Object, items []json.RawMessage, apiVersion, kind string) ([]Object, error) {
	if kind == "" {
		apiVersion = "" // in the kind List each item has its own version
	}
	for i, item := range items {
		var err error
		from := len(out)
		if out, err = read(out, item, apiVersion, kind); err != nil {
			var fieldErrors FieldErrors
			errors.As(err, &fieldErrors)
			for j := range fieldErrors {
				fieldErrors[j].Field = strings.TrimSuffix(fmt.Sprintf("items[%d].%s", i, fieldErrors[j].Field), ".")
			}
			return out, fieldErrors
		}
		for j := from; j < len(out); j++ {
			out[j].Item = i + 1
		}
	}
	return out, nil
}

// ignored returns the part for an object that is only reported; nil if it is not reported either.
func ignored(raw []byte) mesh.Part {
	var object map[string]any
	if kjson.UnmarshalCaseSensitivePreserveInts(raw, &object) != nil {
		return nil
	}
	if s := foreign.Read(object); s != nil && s.Name != "" {
		return s
	}
	return nil
}

// decoded returns a function that decodes a T from JSON and converts it by the function part. If that
// function returns a nil pointer, the result is a nil interface.
func decoded[T any, P interface {
	comparable
	mesh.Part
}](part func(*T) (P, error)) func([]byte) (mesh.Part, error) {
	return func(raw []byte) (mesh.Part, error) {
		var object T
		if err := decode(raw, &object); err != nil {
			return nil, err
		}
		var none P
		p, err := part(&object)
		if err != nil || p == none {
			return nil, err
		}
		return p, nil
	}
}

// namespace checks the name of a namespace. Namespaces have no effect on a mesh.
func namespace(n *corev1.Namespace) (*mesh.ServiceSpec, error) {
	var c check
	c.name("metadata.name", n.Name)
	return nil, c.result()
}
