package webhook

import (
	"encoding/base64"
	"encoding/json"
	"time"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The names and versions of admission (k8s.io/api/admission/v1).
const (
	reviewKind    = "AdmissionReview"
	reviewVersion = "admission.k8s.io/v1"
)

// A review is an AdmissionReview as it comes, as far as it is of use here. The object
// stays as it is written until somebody wants it.
type review struct {
	APIVersion string   `json:"apiVersion"`
	Kind       string   `json:"kind"`
	Request    *request `json:"request"`
}

type request struct {
	UID  string `json:"uid"`
	Kind struct {
		Group   string `json:"group"`
		Version string `json:"version"`
		Kind    string `json:"kind"`
	} `json:"kind"`
	SubResource string         `json:"subResource"`
	Namespace   string         `json:"namespace"`
	Operation   string         `json:"operation"`
	Object      jsontext.Value `json:"object"`
}

// JSON is read as the API server does, by a decoder that takes half of its time:
// decode_test.go holds them together. Names are in their own case and none is there twice,
// what is no UTF-8 is replaced, and fields that are not known are a newer Kubernetes'.

// decode reads an object.
func decode(data []byte, into any) error {
	return jsonv2.Unmarshal(data, into, jsontext.AllowInvalidUTF8(true))
}

// envelope reads what is around an object. A name that is there twice in the object is an
// answer to its author, who made that; the API server makes none around it.
func envelope(data []byte, into *review) error {
	return jsonv2.Unmarshal(data, into, jsontext.AllowInvalidUTF8(true), jsontext.AllowDuplicateNames(true))
}

// An answer is an AdmissionReview as it goes.
type answer struct {
	APIVersion string   `json:"apiVersion"`
	Kind       string   `json:"kind"`
	Response   response `json:"response"`
}

// text is the answer as JSON. The patch, which is nearly all of it, is put in as it is:
// base64 has nothing to escape.
func (a answer) text() ([]byte, error) {
	patch, encoded := a.Response.Patch, a.Response.Encoded
	a.Response.Patch = nil
	text, err := json.Marshal(a)
	if err != nil || len(patch)+len(encoded) == 0 {
		return text, err
	}
	out := make([]byte, 0, len(text)+len(encoded)+base64.StdEncoding.EncodedLen(len(patch))+16)
	out = append(out, text[:len(text)-2]...) // without the ends of response and review
	out = append(out, `,"patch":"`...)
	out = append(out, encoded...)
	out = base64.StdEncoding.AppendEncode(out, patch)
	return append(out, `"}}`...), nil
}

type response struct {
	UID       string   `json:"uid"`
	Allowed   bool     `json:"allowed"`
	Status    *status  `json:"status,omitempty"`
	Patch     []byte   `json:"patch,omitempty"`
	PatchType string   `json:"patchType,omitempty"`
	Audit     audit    `json:"auditAnnotations,omitzero"`
	Warnings  []string `json:"warnings,omitempty"`

	Encoded []byte `json:"-"` // the patch as base64, in the place of Patch

	Until time.Time `json:"-"` // it is to be remembered; zero: for good
}

// audit is what the API server writes into its audit log.
type audit struct {
	Injection string `json:"injection,omitempty"`
}

// A status is a metav1.Status without the fields that nobody sets.
type status struct {
	Kind       string              `json:"kind,omitempty"`
	APIVersion string              `json:"apiVersion,omitempty"`
	Status     string              `json:"status"`
	Message    string              `json:"message"`
	Reason     metav1.StatusReason `json:"reason"`
	Code       int32               `json:"code"`
}
