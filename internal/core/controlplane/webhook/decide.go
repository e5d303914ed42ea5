package webhook

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"time"

	admission "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kjson "sigs.k8s.io/json"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/core/pod/inject"
	"outrider.dev/internal/core/pod/inject/imagecmd"
	"outrider.dev/internal/core/pod/inject/verdict"
	"outrider.dev/internal/core/pod/validation"
)

// Codes for the outcome of reviews, in addition to those of package verdict.
const (
	Failed      verdict.Code = "failed"       // no AdmissionReview was sent as an answer
	NotAPod     verdict.Code = "not-a-pod"    // allowed: the configuration's rules match more than pods
	NotCreated  verdict.Code = "not-created"  // allowed: containers cannot be added to an existing pod
	BadPod      verdict.Code = "bad-pod"      // refused: the object is not a valid pod
	BadSettings verdict.Code = "bad-settings" // refused: the files with the mesh's configuration are invalid
)

var reviewType = metav1.TypeMeta{APIVersion: admission.SchemeGroupVersion.String(), Kind: "AdmissionReview"}

// review answers the AdmissionReview in body. Environ contains variables from the path, which the proxy gets
// in addition.
func (w *Webhook) review(ctx context.Context, p *place, body []byte, environ map[string]string) ([]byte, verdict.Code, error) {
	var in admission.AdmissionReview
	if err := kjson.UnmarshalCaseSensitivePreserveInts(body, &in); err != nil {
		return nil, Failed, fail(http.StatusBadRequest, metav1.StatusReasonBadRequest, "the body is no AdmissionReview: %v", err)
	}
	switch {
	case in.Kind != reviewType.Kind:
		return nil, Failed, fail(http.StatusBadRequest, metav1.StatusReasonBadRequest, "kind %q: want %s", in.Kind, reviewType.Kind)
	case in.APIVersion != reviewType.APIVersion:
		return nil, Failed, fail(http.StatusBadRequest, metav1.StatusReasonBadRequest,
			"apiVersion %q: only %s is answered; the webhook's configuration needs admissionReviewVersions: [v1]", in.APIVersion, reviewType.APIVersion)
	case in.Request == nil || in.Request.UID == "":
		return nil, Failed, fail(http.StatusBadRequest, metav1.StatusReasonBadRequest, "request.uid is missing: there is nothing to answer")
	}
	out, code := w.decide(ctx, p, in.Request, environ)
	if err := ctx.Err(); err != nil { // the client has disconnected
		return nil, Failed, fail(http.StatusGatewayTimeout, metav1.StatusReasonTimeout, "the client has left, or its time is over: %v", err)
	}
	out.UID = in.Request.UID
	text, err := json.Marshal(admission.AdmissionReview{TypeMeta: reviewType, Response: out})
	return text, code, err
}

// decide returns the answer to a request. The answer has no UID yet.
func (w *Webhook) decide(ctx context.Context, p *place, r *admission.AdmissionRequest, environ map[string]string) (*admission.AdmissionResponse, verdict.Code) {
	switch {
	case r.Kind.Group != "" || r.Kind.Kind != "Pod" || r.SubResource != "":
		return allowed(NotAPod)
	case r.Operation != admission.Create:
		return allowed(NotCreated)
	case r.Namespace == w.o.Namespace:
		return allowed(verdict.IgnoredNamespace)
	}
	var pod corev1.Pod
	if err := checkLists(r.Object.Raw); err != nil {
		return refused(verdict.TooLarge, err.Error(), "")
	}
	if err := decode(r.Object.Raw, &pod); err != nil {
		return refused(BadPod, fmt.Sprintf("the object is no pod: %v", err), "")
	}
	pod.Namespace = cmp.Or(pod.Namespace, r.Namespace) // a new pod may lack its namespace, which the request has
	ns, known := w.o.Namespaces(r.Namespace)
	if !known {
		ns = inject.Namespace{}
	}
	if ns.Name = cmp.Or(r.Namespace, pod.Namespace); ns.Name == w.o.Namespace {
		return allowed(verdict.IgnoredNamespace)
	}
	o := *w.options.Load()
	if len(environ) > 0 {
		all := map[string]string{}
		maps.Copy(all, o.Environ)
		maps.Copy(all, environ)
		o.Environ = all
	}
	o.Interrupted = ctx.Err
	result, err := w.inject(ctx, p, &pod, ns, o)
	var refusal *verdict.Refusal
	switch {
	case errors.As(err, &refusal):
		return refused(refusal.Code, refusal.Sentence, refusal.Hint)
	case ctx.Err() != nil:
		return allowed(Failed) // review sends another answer instead
	case err != nil:
		w.o.Log.Error("pods cannot be injected as the mesh is configured", "error", err)
		return refused(BadSettings, fmt.Sprintf("the mesh's configuration cannot be used: %v", err), "the administrator of outriderd has to change it")
	}
	if result.Injected && w.o.Unenforced != nil {
		result.Warnings = append(w.o.Unenforced(ns.Name, pod.Labels), result.Warnings...)
	}
	return patched(result)
}

// maxObjects is the maximum number of objects in a pod that is decoded: an empty object takes 3 bytes of
// text, but as a volume 250 bytes of memory. A pod with 300 containers and its managedFields has some 20,000.
const maxObjects = 30_000

// checkLists refuses a pod with too many containers or objects before it is decoded.
func checkLists(raw []byte) error {
	if n := bytes.Count(raw, []byte("{")); n > maxObjects {
		return fmt.Errorf("the pod has up to %d objects in its lists: %d are read", n, maxObjects)
	}
	if len(raw) < 3*validation.MaxContainers { // too short for too many containers, as nearly all pods are
		return nil
	}
	var pod struct {
		Spec struct{ Containers, InitContainers, EphemeralContainers []struct{} } `json:"spec"`
	}
	if json.Unmarshal(raw, &pod) != nil {
		return nil // the decoder will report the mistake
	}
	n := len(pod.Spec.Containers) + len(pod.Spec.InitContainers) + len(pod.Spec.EphemeralContainers)
	if most := validation.MaxContainers + len([]string{contract.ProxyContainer, contract.InitContainer}); n > most {
		return fmt.Errorf("the pod has %d containers: %d are read", n, most)
	}
	return nil
}

// decode decodes JSON as the API server does. A duplicate field is an error. An unknown field is ignored,
// because it may be from a newer version of Kubernetes.
func decode(data []byte, into any) error {
	strict, err := kjson.UnmarshalStrict(data, into, kjson.DisallowDuplicateFields)
	return errors.Join(append(strict, err)...)
}

// inject injects a pod. If a gate needs the commands of images, inject looks them up.
func (w *Webhook) inject(ctx context.Context, p *place, pod *corev1.Pod, ns inject.Namespace, o inject.Options) (inject.Result, error) {
	if w.o.Commands == nil {
		return w.injectPod(pod, ns, o)
	}
	return inject.Resolving(pod, ns, o, func(images []string) (found map[string]imagecmd.Command) {
		whole := ctx
		if end, ok := ctx.Deadline(); ok { // half of the time, so that the rest suffices to answer without a gate
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, time.Until(end)/2)
			defer cancel()
		}
		p.without(whole, func() { found = w.o.Commands(ctx, images) }) // then [place.without] checks the deadline
		return found
	})
}

// maxPatch is the maximum size of a patch in bytes: etcd's default limit for a request (--max-request-bytes).
const maxPatch = 3 << 19

func allowed(code verdict.Code) (*admission.AdmissionResponse, verdict.Code) {
	return &admission.AdmissionResponse{Allowed: true, AuditAnnotations: audit(code)}, code
}

// audit returns the annotation that the API server adds to its audit log.
func audit(code verdict.Code) map[string]string { return map[string]string{"injection": string(code)} }

// patched returns the answer that allows a pod with the patch in result. If the patch is too large, the
// answer refuses the pod.
func patched(result inject.Result) (*admission.AdmissionResponse, verdict.Code) {
	out, code := allowed(result.Reason.Code)
	warnings := result.Warnings
	if code == verdict.OtherInjector { // without the other injector, the pod would be injected here
		warnings = append([]string{fmt.Sprintf("not injected (%s): %s", code, result.Reason.Sentence)}, warnings...)
	}
	out.Warnings = fitting(warnings)
	if ops := result.Patch(); len(ops) > 0 {
		var err error
		out.PatchType = new(admission.PatchTypeJSONPatch)
		if out.Patch, err = json.Marshal(ops); err != nil {
			return refused(BadPod, fmt.Sprintf("the pod cannot be written as JSON: %v", err), "")
		}
	}
	if len(out.Patch) > maxPatch {
		return refused(verdict.TooLarge, fmt.Sprintf("injection adds %d bytes to the pod, which then cannot be stored: %d are written", len(out.Patch), maxPatch), "request fewer edges")
	}
	return out, code
}

// statuses maps codes to the HTTP status of a refused pod; other codes mean forbidden.
var statuses = map[verdict.Code]struct {
	code   int32
	reason metav1.StatusReason
}{
	BadPod:                    {http.StatusBadRequest, metav1.StatusReasonBadRequest},
	verdict.InvalidAnnotation: {http.StatusBadRequest, metav1.StatusReasonBadRequest},
	verdict.InvalidGraph:      {http.StatusBadRequest, metav1.StatusReasonBadRequest},
	verdict.InvalidOverride:   {http.StatusBadRequest, metav1.StatusReasonBadRequest},
	BadSettings:               {http.StatusInternalServerError, metav1.StatusReasonInternalError},
}

// refused returns the answer that refuses a pod. The pod's author sees only its message, which consists of
// sentence and hint.
func refused(code verdict.Code, sentence, hint string) (*admission.AdmissionResponse, verdict.Code) {
	s, ok := statuses[code]
	if !ok {
		s.code, s.reason = http.StatusForbidden, metav1.StatusReasonForbidden
	}
	message := prefix + sentence
	if hint != "" {
		message += "; " + hint
	}
	return &admission.AdmissionResponse{
		Result:           &metav1.Status{Status: metav1.StatusFailure, Message: message, Reason: s.reason, Code: s.code},
		AuditAnnotations: audit(code),
	}, code
}
