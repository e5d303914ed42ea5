package webhook

import (
	"encoding/json"
	"errors"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kjson "sigs.k8s.io/json"
)

// The names and versions of admission (k8s.io/api/admission/v1).
const (
	reviewKind    = "AdmissionReview"
	reviewVersion = "admission.k8s.io/v1"
)

// A review is an incoming AdmissionReview, without the fields that are not used here.
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
	SubResource string          `json:"subResource"`
	Namespace   string          `json:"namespace"`
	Operation   string          `json:"operation"`
	Object      json.RawMessage `json:"object"`
}

// decode reads JSON with the API server's own decoder. A duplicate field is an error; an
// unknown field is one of a newer Kubernetes and is ignored.
func decode(data []byte, into any) error {
	strict, err := kjson.UnmarshalStrict(data, into, kjson.DisallowDuplicateFields)
	return errors.Join(append(strict, err)...)
}

// An answer is an outgoing AdmissionReview.
type answer struct {
	APIVersion string   `json:"apiVersion"`
	Kind       string   `json:"kind"`
	Response   response `json:"response"`
}

type response struct {
	UID       string   `json:"uid"`
	Allowed   bool     `json:"allowed"`
	Status    *status  `json:"status,omitempty"`
	Patch     []byte   `json:"patch,omitempty"`
	PatchType string   `json:"patchType,omitempty"`
	Audit     audit    `json:"auditAnnotations,omitzero"`
	Warnings  []string `json:"warnings,omitempty"`
}

// audit is what the API server writes into its audit log.
type audit struct {
	Injection string `json:"injection,omitempty"`
}

// A status is a metav1.Status without its unused fields.
type status struct {
	Kind       string              `json:"kind,omitempty"`
	APIVersion string              `json:"apiVersion,omitempty"`
	Status     string              `json:"status"`
	Message    string              `json:"message"`
	Reason     metav1.StatusReason `json:"reason"`
	Code       int32               `json:"code"`
}
