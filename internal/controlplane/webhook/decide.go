package webhook

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"outrider.dev/internal/pod/inject"
)

// Codes of reviews besides those of [inject.Code].
const (
	Failed      inject.Code = "failed"       // no review was answered
	NotAPod     inject.Code = "not-a-pod"    // allowed: the webhook's rules are wider than they should be
	NotCreated  inject.Code = "not-created"  // allowed: a pod that is there cannot get a container
	BadPod      inject.Code = "bad-pod"      // refused: the object is no pod that can be read
	BadSettings inject.Code = "bad-settings" // refused: what the mesh says cannot be used
)

// review answers the review in body.
func (w *Webhook) review(ctx context.Context, body []byte, path string, environ map[string]string) ([]byte, inject.Code, error) {
	var in review
	if err := envelope(body, &in); err != nil {
		return nil, Failed, fail(http.StatusBadRequest, metav1.StatusReasonBadRequest, "the body is no AdmissionReview: %v", err)
	}
	switch {
	case in.Kind != reviewKind:
		return nil, Failed, fail(http.StatusBadRequest, metav1.StatusReasonBadRequest, "kind %q: want %s", in.Kind, reviewKind)
	case in.APIVersion != reviewVersion:
		return nil, Failed, fail(http.StatusBadRequest, metav1.StatusReasonBadRequest,
			"apiVersion %q: only %s is answered; the webhook's configuration needs admissionReviewVersions: [v1]", in.APIVersion, reviewVersion)
	case in.Request == nil || in.Request.UID == "":
		return nil, Failed, fail(http.StatusBadRequest, metav1.StatusReasonBadRequest, "request.uid is missing: there is nothing to answer")
	}
	out, code := w.decide(ctx, in.Request, path, environ)
	out.UID = in.Request.UID
	text, err := answer{reviewVersion, reviewKind, out}.text()
	return text, code, err
}

// decide is the answer to a request, all but its name.
func (w *Webhook) decide(ctx context.Context, r *request, path string, environ map[string]string) (response, inject.Code) {
	switch {
	case r.Kind.Group != "" || r.Kind.Kind != "Pod" || r.SubResource != "":
		return allowed(NotAPod), NotAPod
	case r.Operation != "CREATE":
		return allowed(NotCreated), NotCreated
	case r.Namespace == w.o.Namespace:
		return allowed(inject.IgnoredNamespace), inject.IgnoredNamespace
	}
	ns, known := w.o.Namespaces(r.Namespace)
	if !known {
		ns = inject.Namespace{}
	}
	ns.Name = r.Namespace
	settings := w.settings.Load()
	question := ask(r.Object, path, ns, settings.unread)
	if out, code, ok := settings.memo.answer(question); ok {
		w.remembered.Add(1)
		return out, code
	}
	out, code := w.pod(ctx, r.Object, ns, settings.options, environ)
	return settings.memo.remember(question, out, code), code
}

func allowed(code inject.Code) response {
	return response{Allowed: true, Audit: audit{string(code)}}
}

// pod reads and injects one.
func (w *Webhook) pod(ctx context.Context, object []byte, ns inject.Namespace, o inject.Options, environ map[string]string) (response, inject.Code) {
	var pod corev1.Pod
	if err := decode(object, &pod); err != nil {
		return refused(BadPod, fmt.Sprintf("the object is no pod: %v", err), ""), BadPod
	}
	if pod.Namespace == "" {
		pod.Namespace = ns.Name // what the pod itself need not say, the request does
	}
	if ns.Name == "" {
		ns.Name = pod.Namespace
	}
	if ns.Name == w.o.Namespace {
		return allowed(inject.IgnoredNamespace), inject.IgnoredNamespace
	}
	if len(environ) > 0 {
		o.Environ = maps.Clone(o.Environ)
		if o.Environ == nil {
			o.Environ = map[string]string{}
		}
		maps.Copy(o.Environ, environ)
	}
	result, until, err := w.injected(ctx, &pod, ns, o)
	var refusal *inject.Refusal
	switch {
	case errors.As(err, &refusal):
		return refused(refusal.Code, refusal.Sentence, refusal.Hint), refusal.Code
	case err != nil:
		w.o.Log.Error("pods cannot be injected as the mesh is configured", "error", err)
		return refused(BadSettings, fmt.Sprintf("the mesh's configuration cannot be used: %v", err), "this is for who runs outriderd"), BadSettings
	}
	out, code := patched(result)
	out.Until = until
	return out, code
}

// injected injects a pod. It says how long that counts, if images were looked up for it: a
// name may stand for another image soon, and a registry may answer that did not.
func (w *Webhook) injected(ctx context.Context, pod *corev1.Pod, ns inject.Namespace, o inject.Options) (result inject.Result, until time.Time, err error) {
	if w.o.Commands == nil {
		result, err = w.inject(pod, ns, o)
		return result, until, err
	}
	result, err = inject.Resolving(pod, ns, o, func(images []string) map[string]inject.ImageCommand {
		if end, ok := ctx.Deadline(); ok { // an answer without a gate is better than none
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, time.Until(end)/2)
			defer cancel()
		}
		<-w.slots // who waits for a registry needs no processor
		defer func() { w.slots <- struct{}{} }()
		answers := w.o.Commands(ctx, images)
		until = soonest(answers)
		return answers
	})
	return result, until, err
}

// soonest is until when all of the answers count; now, if one of them is none.
func soonest(answers map[string]inject.ImageCommand) time.Time {
	var out time.Time
	for _, a := range answers {
		switch {
		case a.Why != "":
			return time.Now()
		case out.IsZero() || !a.Until.IsZero() && a.Until.Before(out):
			out = a.Until
		}
	}
	return out
}

// patched is the answer with a result's patch.
func patched(result inject.Result) (response, inject.Code) {
	code := result.Reason.Code
	out := allowed(code)
	warnings := result.Warnings
	if code == inject.OtherInjector { // asked for in words that mean us where no other injector is
		warnings = append([]string{fmt.Sprintf("not injected (%s): %s", code, result.Reason.Sentence)}, warnings...)
	}
	out.Warnings = fitting(warnings)
	ops, err := result.Patch()
	if err == nil && len(ops) > 0 {
		out.PatchType = "JSONPatch"
		out.Patch, err = json.Marshal(ops)
	}
	if err != nil {
		return refused(BadPod, fmt.Sprintf("the pod cannot be written as JSON: %v", err), ""), BadPod
	}
	return out, code
}

// statuses are those of pods that are refused: a bad request is one that has to be
// written otherwise; what is not here is well written, and not allowed.
var statuses = map[inject.Code]struct {
	code   int32
	reason metav1.StatusReason
}{
	BadPod:               {http.StatusBadRequest, metav1.StatusReasonBadRequest},
	inject.BadAnnotation: {http.StatusBadRequest, metav1.StatusReasonBadRequest},
	inject.BadGraph:      {http.StatusBadRequest, metav1.StatusReasonBadRequest},
	inject.BadOverride:   {http.StatusBadRequest, metav1.StatusReasonBadRequest},
	BadSettings:          {http.StatusInternalServerError, metav1.StatusReasonInternalError},
}

// refused is the answer that keeps a pod out. Its message is all that the author sees.
func refused(code inject.Code, sentence, hint string) response {
	s, ok := statuses[code]
	if !ok {
		s.code, s.reason = http.StatusForbidden, metav1.StatusReasonForbidden
	}
	message := "outrider: " + sentence
	if hint != "" {
		message += "; " + hint
	}
	return response{
		Status: &status{Status: metav1.StatusFailure, Message: message, Reason: s.reason, Code: s.code},
		Audit:  audit{string(code)},
	}
}
