package webhook

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"unicode/utf8"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	admission "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	kjson "sigs.k8s.io/json"

	"outrider.dev/internal/core/pod/inject"
	"outrider.dev/internal/core/pod/inject/verdict"
	"outrider.dev/internal/core/pod/patch"
)

const plain = `{metadata: {generateName: shop-, labels: {app: shop}}, spec: {containers: [{name: app, image: shop, command: [/app]}]}}`

func TestWhatIsAnswered(t *testing.T) {
	a := authority(t, t.TempDir())
	w := New(Options{Namespaces: enabled, Limits: Limits{MaxBody: 64 << 10}})
	url := "https://" + serve(t, w, a)
	pod := func(text string) []byte { return reviewOf("u1", "shop", podJSON(t, text)) }
	edit := func(body []byte, old, new string) []byte {
		if !bytes.Contains(body, []byte(old)) {
			t.Fatalf("nothing to edit: %s", old)
		}
		return bytes.Replace(body, []byte(old), []byte(new), 1)
	}
	tests := map[string]struct {
		path, method, media string // default: /inject, POST, application/json
		body                []byte
		status              int
		allowed             bool
		injection           verdict.Code
		patch               string // text that the patch must contain; empty: no patch
		message             string // text that the message must contain
		code                int32  // code of a refusal
	}{
		"a pod is injected":                       {body: pod(plain), status: 200, allowed: true, injection: verdict.Injected, patch: "outrider-proxy"},
		"a dry run is a run":                      {body: edit(pod(plain), `"dryRun":false`, `"dryRun":true`), status: 200, allowed: true, injection: verdict.Injected, patch: "outrider-proxy"},
		"a timeout in the path":                   {path: "/inject?timeout=10s", body: pod(plain), status: 200, allowed: true, injection: verdict.Injected, patch: "outrider-proxy"},
		"cluster and network come by the path":    {path: "/inject/cluster/north--slash--1/net/n1", body: pod(plain), status: 200, allowed: true, injection: verdict.Injected, patch: `{"name":"ISTIO_META_CLUSTER_ID","value":"north/1"},{"name":"ISTIO_META_NETWORK","value":"n1"}`},
		"other variables do too":                  {path: "/inject/:ENV:net=n2:ENV:my_var=x", body: pod(plain), status: 200, allowed: true, injection: verdict.Injected, patch: `{"name":"MY_VAR","value":"x"}`},
		"a charset of JSON":                       {media: "application/json; charset=utf-8", body: pod(plain), status: 200, allowed: true, injection: verdict.Injected, patch: "outrider-proxy"},
		"a field of a newer Kubernetes is let be": {body: pod(`{spec: {brandNew: {a: 1}, containers: [{name: app, image: shop, command: [/app], alsoNew: 2}]}}`), status: 200, allowed: true, injection: verdict.Injected, patch: "outrider-proxy"},
		"a pod of the node's network is left":     {body: pod(`{spec: {hostNetwork: true, containers: [{name: app, image: shop}]}}`), status: 200, allowed: true, injection: verdict.HostNetwork},
		"a pod with inject: false is left alone":  {body: pod(`{metadata: {labels: {sidecar.istio.io/inject: "false"}}, spec: {containers: [{name: app, image: shop}]}}`), status: 200, allowed: true, injection: verdict.PodOptsOut},
		"kube-system is left, though it is labelled": {
			body: edit(pod(plain), `"namespace":"shop"`, `"namespace":"kube-system"`), status: 200, allowed: true, injection: verdict.IgnoredNamespace},
		"the control plane's own pods are left, whatever their labels": {
			body:   reviewOf("u1", "outrider-system", podJSON(t, `{metadata: {labels: {sidecar.istio.io/inject: "true"}}, spec: {containers: [{name: app, image: shop}]}}`)),
			status: 200, allowed: true, injection: verdict.IgnoredNamespace},
		"a pod of the control plane that cannot be read is left": {
			body: reviewOf("u1", "outrider-system", []byte(`{"spec":7}`)), status: 200, allowed: true, injection: verdict.IgnoredNamespace},
		"what is no pod is left":      {body: edit(pod(plain), `"kind":"Pod"`, `"kind":"Service"`), status: 200, allowed: true, injection: NotAPod},
		"a pod that is there is left": {body: edit(pod(plain), `"CREATE"`, `"UPDATE"`), status: 200, allowed: true, injection: NotCreated},
		"a wrong annotation refuses the pod with what would be valid": {
			body:   pod(`{metadata: {annotations: {outrider.dev/start: soon}}, spec: {containers: [{name: app, image: shop}]}}`),
			status: 200, injection: verdict.InvalidAnnotation, code: 400, message: `outrider: annotation outrider.dev/start: "soon" is none of gate, native, hold, off`},
		"a pod that is none is refused":          {body: reviewOf("u1", "shop", []byte(`{"spec":{"containers":7}}`)), status: 200, injection: BadPod, code: 400, message: "the object is no pod"},
		"a pod with a field twice is refused":    {body: reviewOf("u1", "shop", []byte(`{"spec":{"hostNetwork":true,"hostNetwork":false}}`)), status: 200, injection: BadPod, code: 400, message: "duplicate"},
		"an older version gets a sentence":       {body: edit(pod(plain), "admission.k8s.io/v1", "admission.k8s.io/v1beta1"), status: 400, message: "admissionReviewVersions: [v1]"},
		"another kind is no review":              {body: []byte(`{"kind":"Pod","apiVersion":"v1"}`), status: 400, message: `kind "Pod"`},
		"a review without a request is none":     {body: []byte(`{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1"}`), status: 400, message: "request.uid"},
		"half a body is refused":                 {body: pod(plain)[:200], status: 400, message: "no AdmissionReview"},
		"more than a body is refused":            {body: append(pod(plain), "{}"...), status: 400, message: "no AdmissionReview"},
		"no body is refused":                     {body: []byte{}, status: 400, message: "empty"},
		"too long a body is refused":             {body: bytes.Repeat([]byte(" "), 64<<10+1), status: 413, message: "at most 65536"},
		"another type is refused":                {media: "application/yaml", body: pod(plain), status: 415, message: "application/json"},
		"GET is refused":                         {method: "GET", status: 405, message: "POST"},
		"another path is not here":               {path: "/validate", body: pod(plain), status: 404, message: "/inject"},
		"a path that begins alike is not here":   {path: "/injector", body: pod(plain), status: 404, message: "/inject"},
		"a variable without a value is not here": {path: "/inject/cluster", body: pod(plain), status: 404, message: "no value"},
		"a variable without a name is not here":  {path: "/inject/a-b/c", body: pod(plain), status: 404, message: "no variable"},
		"a timeout that is none is refused":      {path: "/inject?timeout=soon", body: pod(plain), status: 400, message: "10s"},
	}
	for _, protocol := range [][]string{{"http/1.1"}, {"h2", "http/1.1"}} {
		c := client(t, a.RootsPEM(), protocol...)
		for name, tt := range tests {
			t.Run(protocol[0]+": "+name, func(t *testing.T) {
				r, err := http.NewRequest(cmp.Or(tt.method, "POST"), url+cmp.Or(tt.path, Path), bytes.NewReader(tt.body))
				if err != nil {
					t.Fatal(err)
				}
				r.Header.Set("Content-Type", cmp.Or(tt.media, "application/json"))
				answer, err := c.Do(r)
				if err != nil {
					t.Fatal(err)
				}
				got := read(t, answer)
				if got.code != tt.status || got.header.Get("Content-Type") != "application/json" {
					t.Fatalf("status %d %s, want %d; %s", got.code, got.header.Get("Content-Type"), tt.status, got.body)
				}
				if want := got.code >= 400 && got.code < 500; answer.Close != want {
					t.Errorf("status %d: the connection ends: %v, want %v", got.code, answer.Close, want)
				}
				if got.code != 200 {
					if !strings.Contains(got.message, tt.message) || got.kind != "Status" {
						t.Errorf("%s %q: want a Status with %q", got.kind, got.message, tt.message)
					}
					return
				}
				checkResponse(t, got.response, tt.allowed, tt.injection, tt.patch, tt.message, tt.code)
			})
		}
	}
}

func checkResponse(t *testing.T, got admission.AdmissionResponse, allowed bool, injection verdict.Code, patch, message string, code int32) {
	t.Helper()
	if got.UID != "u1" || got.Allowed != allowed || got.AuditAnnotations["injection"] != string(injection) {
		t.Errorf("uid %q, allowed %v, %q: want u1, %v, %q", got.UID, got.Allowed, got.AuditAnnotations["injection"], allowed, injection)
	}
	if (len(got.Patch) > 0) != (patch != "") || !strings.Contains(string(got.Patch), patch) || (len(got.Patch) > 0) != (got.PatchType != nil && *got.PatchType == admission.PatchTypeJSONPatch) {
		t.Errorf("patch %s: want %q in it", got.Patch, patch)
	}
	if allowed {
		return
	}
	if got.Result == nil || got.Result.Code != code || !strings.Contains(got.Result.Message, message) {
		t.Errorf("status %+v: want %d and %q", got.Result, code, message)
	}
}

func TestAPanicIsOneAnswerAndNotTheEnd(t *testing.T) {
	w := New(Options{Namespaces: enabled})
	w.injectPod = func(*corev1.Pod, inject.Namespace, inject.Options) (inject.Result, error) { panic("by a test") }
	review := func() reply { return handled(t, w, reviewOf("u1", "shop", podJSON(t, plain))) }
	if got := review(); got.code != 500 || !strings.Contains(got.message, "a mistake in it and not in the pod") || strings.Contains(got.message, "by a test") {
		t.Errorf("%d %q: want 500 without what is for the log", got.code, got.message)
	}
	w.injectPod = func(*corev1.Pod, inject.Namespace, inject.Options) (inject.Result, error) {
		return inject.Result{}, errors.New("values: hub: wrong")
	}
	if got := review(); got.code != 200 || got.response.Allowed || got.response.Result.Code != 500 || !strings.Contains(got.response.Result.Message, "values: hub: wrong") {
		t.Errorf("%+v: want a pod that is refused with what is wrong", got)
	}
	w.injectPod = inject.Pod
	if got := review(); !got.response.Allowed || len(got.response.Patch) == 0 {
		t.Errorf("%+v: want the next pod to be injected", got)
	}
	if w.ordinary.places.Free() != int64(w.o.Limits.Concurrency) || w.ordinary.bytes.Free() != ordinaryBytes {
		t.Errorf("places or bytes are still taken: %+v", w.ordinary)
	}
}

func TestOtherOptionsHoldFromTheNextReview(t *testing.T) {
	w := New(Options{Namespaces: enabled})
	pod := podJSON(t, plain)
	before := reviewed(t, w, "shop", pod)
	o := inject.Options{}
	o.Values.Global.Hub, o.Values.Global.Tag = "example.test/hub", "t1"
	w.Use(o)
	if after := reviewed(t, w, "shop", pod); !strings.Contains(string(after.Patch), "example.test/hub") || bytes.Equal(before.Patch, after.Patch) {
		t.Errorf("the patch has not the new hub: %s", after.Patch)
	}
}

// The API server calls the webhook again after a later webhook has changed the pod. During an upgrade the
// second call may be answered by a replica with other options.
func TestASecondReview(t *testing.T) {
	w := New(Options{Namespaces: enabled})
	given := podJSON(t, plain)
	injected := patchedBy(t, w, given)
	if again := reviewed(t, w, "shop", injected); !again.Allowed || len(again.Patch) > 0 {
		t.Errorf("nothing was changed since: %s", again.Patch)
	}
	more := patchedBy(t, w, applied(t, injected, []byte(`[{"op":"add","path":"/spec/containers/-","value":{"name":"late","image":"late","command":["/late"]}}]`)))
	if !strings.Contains(string(more), `"--","/late"]`) {
		t.Errorf("the container that was added since has no gate: %s", more)
	}
	var other inject.Options
	other.Values.Pilot.Env = map[string]any{"ENABLE_NATIVE_SIDECARS": "true"}
	w.Use(other)
	if once, twice := patchedBy(t, w, given), patchedBy(t, w, injected); !jsonpatch.Equal(once, twice) {
		t.Errorf("by other options:\n%s\nand not\n%s", twice, once)
	}
}

func TestWarningsFitIntoTheAnswerOfTheAPIServer(t *testing.T) {
	long := strings.Repeat("wörter und ", 60)
	many := make([]string, 40)
	for i := range many {
		many[i] = fmt.Sprint(i, " ", long)
	}
	tests := map[string]struct {
		in   []string
		want int
		has  string
	}{
		"none":                             {nil, 0, ""},
		"a short one is itself":            {[]string{"a b"}, 1, "outrider: a b"},
		"lines become one":                 {[]string{"a\nb\x00c\xff"}, 1, "outrider: a b c?"},
		"a long one ends at a word":        {[]string{long}, 1, "und …"},
		"of many the last counts the rest": {many, 16, "25 more warnings"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got := fitting(tt.in)
			total := 0
			for _, w := range got {
				n := utf8.RuneCountInString(w)
				total += n
				if n > oneWarning || strings.ContainsAny(w, "\n\x00") || !utf8.ValidString(w) {
					t.Errorf("%q: %d characters, want one line of %d", w, n, oneWarning)
				}
			}
			if len(got) != tt.want || total > allWarnings || tt.want > 0 && !strings.HasSuffix(got[len(got)-1], tt.has) && !strings.Contains(got[len(got)-1], tt.has) {
				t.Errorf("%d warnings, %d characters: %q; want %d, the last with %q", len(got), total, got, tt.want, tt.has)
			}
		})
	}
}

// The answer to any body is JSON. The answer to a review contains its UID.
func FuzzBody(f *testing.F) {
	for _, text := range []string{plain, `{spec: {hostNetwork: true}}`, `{metadata: {annotations: {outrider.dev/start: x}}}`, `{spec: {containers: null}}`, `{}`} {
		f.Add(reviewOf("u1", "shop", podJSON(f, text)))
	}
	f.Add([]byte(`{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"a","kind":{"kind":"Pod"},"operation":"CREATE","object":null}}`))
	f.Add([]byte(`[]`))
	w := New(Options{Namespaces: enabled})
	f.Fuzz(func(t *testing.T, body []byte) {
		got := handled(t, w, body)
		if got.code == 500 {
			t.Fatalf("a body made the webhook fail: %s", got.body)
		}
		if got.code != 200 {
			return
		}
		var sent admission.AdmissionReview
		if err := kjson.UnmarshalCaseSensitivePreserveInts(body, &sent); err != nil || sent.Request == nil {
			t.Fatalf("a body that is no review was answered: %v", err)
		}
		if got.response.UID != sent.Request.UID || got.kind != reviewType.Kind {
			t.Errorf("uid %q, want %q", got.response.UID, sent.Request.UID)
		}
		if !got.response.Allowed && (got.response.Result == nil || got.response.Result.Message == "") {
			t.Error("refused without a message")
		}
		if len(got.response.Patch) > 0 {
			var ops []patch.Operation
			if err := json.Unmarshal(got.response.Patch, &ops); err != nil || len(ops) == 0 {
				t.Errorf("the patch is none: %v", err)
			}
		}
	})
}

// If Istio's labels belong to another injector, a pod for which only they request injection gets a warning.
// Other pods that are not injected get none.
func TestAPodOfAnotherInjectorGetsAWarning(t *testing.T) {
	w := New(Options{Namespaces: func(name string) (inject.Namespace, bool) {
		ns, _ := enabled(name)
		if name == "quiet" {
			ns.Labels = map[string]string{}
		}
		return ns, true
	}})
	w.Use(inject.Options{OwnLabels: true})
	for _, tt := range []struct {
		namespace, pod string
		code           verdict.Code
		warned         bool
	}{
		{"shop", plain, verdict.OtherInjector, true},
		{"quiet", plain, verdict.NotRequested, false},
		{"shop", `{metadata: {labels: {outrider.dev/inject: "true"}}, spec: {containers: [{name: app, image: shop, command: [/app]}]}}`, verdict.Injected, false},
	} {
		got := reviewed(t, w, tt.namespace, podJSON(t, tt.pod))
		warned := len(got.Warnings) == 1 && strings.HasPrefix(got.Warnings[0], "outrider: not injected (other-injector): ") && strings.Contains(got.Warnings[0], "outrider.dev/inject=true")
		if !got.Allowed || got.AuditAnnotations["injection"] != string(tt.code) || warned != tt.warned || (len(got.Patch) > 0) != (tt.code == verdict.Injected) {
			t.Errorf("%s: %+v, want %s", tt.namespace, got, tt.code)
		}
	}
}
