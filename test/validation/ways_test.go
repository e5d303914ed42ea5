package validation

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http/httptest"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"
	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	admission "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kubernetes/pkg/apis/core"
	"sigs.k8s.io/yaml"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/base/finding"
	"outrider.dev/internal/core/controlplane/webhook"
	"outrider.dev/internal/core/pod/inject"
	"outrider.dev/internal/core/pod/offline"
	"outrider.dev/internal/doctor/lint"
	"outrider.dev/test/corpus"
	"outrider.dev/test/tier"
)

// byFile injects an object of a file as the command does, and returns the API server's verdict on the result. It
// returns false if injection is refused.
func byFile(t *testing.T, of subject, object []byte, s setting, o inject.Options) (verdict, bool) {
	t.Helper()
	text, err := yaml.JSONToYAML(object)
	if err != nil {
		t.Fatal(err)
	}
	r, err := offline.Inject([]offline.File{{Name: of.File, Data: text}}, offline.Options{Inject: o, Namespace: namespace, Labels: s.namespace().Labels}, func(offline.Message) {})
	if err != nil {
		t.Fatalf("%s: %v", of, err)
	}
	raw, err := yaml.YAMLToJSON(r.Files[0].Data)
	if err != nil {
		t.Fatalf("%s: %v", of, err)
	}
	v, err := judge(raw)
	if err != nil {
		t.Fatalf("%s: %v", of, err)
	}
	return v, r.Refused == 0
}

// byWebhook applies the webhook's patch to a pod, and returns the API server's verdict on the result. It returns false
// if injection is refused.
func byWebhook(t *testing.T, of subject, was verdict, s setting, o inject.Options) (verdict, bool) {
	t.Helper()
	pod := external(was.pod)
	if of.Kind != "Pod" {
		pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: of.APIVersion, Kind: of.Kind, Name: of.Name, UID: "1", Controller: new(true)}}
	}
	object, err := json.Marshal(pod)
	if err != nil {
		t.Fatal(err)
	}
	w := webhook.New(webhook.Options{Inject: o, Namespaces: func(name string) (inject.Namespace, bool) { return s.namespace(), true }})
	body := fmt.Appendf(nil, `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"u","kind":{"group":"","version":"v1","kind":"Pod"},`+
		`"resource":{"group":"","version":"v1","resource":"pods"},"namespace":%q,"operation":"CREATE","userInfo":{},"object":%s}}`, namespace, object)
	out, request := httptest.NewRecorder(), httptest.NewRequest("POST", webhook.Path, bytes.NewReader(body))
	request.Header.Set("Content-Type", "application/json")
	w.ServeHTTP(out, request)
	var review admission.AdmissionReview
	if err := json.Unmarshal(out.Body.Bytes(), &review); err != nil || review.Response == nil {
		t.Fatalf("%s: %v: %s", of, err, out.Body)
	}
	if !review.Response.Allowed {
		return verdict{}, false
	}
	if len(review.Response.Patch) > 0 {
		steps, err := jsonpatch.DecodePatch(review.Response.Patch)
		if err == nil {
			object, err = steps.Apply(object)
		}
		if err != nil {
			t.Fatalf("%s: %v\n%s", of, err, review.Response.Patch)
		}
	}
	v, err := judge(object)
	if err != nil {
		t.Fatalf("%s: %v", of, err)
	}
	return v, true
}

// The webhook's patch and the command result in the same valid pod.
func TestTheWebhookAgrees(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	subjects := sane(t)
	same, refused := 0, 0
	for range tier.Times(25, 2500) {
		of, s := subjects[rng.IntN(len(subjects))], cases[rng.IntN(len(cases))]
		pod, o := s.written(&of.Pod), s.options(t)
		if s.commands {
			o.Commands = commandsOf(pod)
		}
		if len(of.Claims) > 0 && pod.Annotations["sidecar.istio.io/userVolumeMount"] == "" { // mount a volume of a claim template, which only the pod lists
			pod.Annotations["sidecar.istio.io/userVolumeMount"] = fmt.Sprintf(`{%q: {"mountPath": "/extra"}}`, of.Claims[0])
		}
		file, ok := byFile(t, of, of.with(t, pod), s, o)
		hook, allowed := byWebhook(t, of, of.judged(t, pod), s, o)
		if ok != allowed {
			t.Errorf("%s: %s: by file %t, by the webhook %t", s.name, of, ok, allowed)
			continue
		}
		if !ok {
			refused++
			continue
		}
		for _, e := range slices.Concat(file.errors, hook.errors) {
			t.Errorf("%s: %s: %s", s.name, of, e)
		}
		if diff := cmp.Diff(comparable(t, file.pod), comparable(t, hook.pod)); diff != "" {
			t.Errorf("%s: %s: (-file +webhook):\n%s", s.name, of, diff)
		}
		same++
	}
	t.Logf("%d pods are the same by the command and by the webhook's patch, and %d are refused by both", same, refused)
}

// comparable returns a pod without the expected differences between command and webhook. These differences arise
// because the API server sets defaults before the webhook sees the pod: in field references of Outrider's variables,
// and in the author's containers.
func comparable(t *testing.T, pod *core.Pod) (out any) {
	t.Helper()
	slices.SortFunc(pod.Spec.Volumes, func(a, b core.Volume) int { return strings.Compare(a.Name, b.Name) })
	delete(pod.Annotations, contract.Overrides)
	text, err := json.Marshal([]any{external(pod).Spec, pod.Labels, pod.Annotations})
	if err != nil {
		t.Fatal(err)
	}
	text = defaults.ReplaceAll(text, nil)
	if err := json.Unmarshal(text, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

var defaults = regexp.MustCompile(`,\\*"(protocol\\*":\\*"TCP\\*"|scheme\\*":\\*"HTTP\\*"|(timeoutSeconds|successThreshold)\\*":1\b|periodSeconds\\*":10\b|failureThreshold\\*":3\b|service\\*":(null|\\*"\\*"))`)

// A valid pod is still valid after lint's fixes have been applied to it, and after it is then injected.
func TestFixes(t *testing.T) {
	archives, err := corpus.Twins()
	if err != nil {
		t.Fatal(err)
	}
	files, fixed, invalid, all := 0, 0, 0, newCounts()
	for _, a := range archives {
		for _, f := range txtar.Parse(a.Data).Files {
			if !strings.HasPrefix(f.Name, "bad") {
				continue
			}
			files++
			name := path.Join(a.Name, f.Name)
			out, err := lint.Fix([]lint.File{{Name: name, Data: f.Data}}, lint.Options{Injected: true}, func(finding.Finding) bool { return true })
			if err != nil || len(out.Changed) == 0 {
				continue
			}
			fixed++
			before := map[string]bool{}
			for _, of := range subjectsOf(t, name, f.Data) {
				v, err := judge(of.with(t, &of.Pod))
				before[of.Object.String()] = err == nil && len(v.errors) == 0
			}
			for _, of := range subjectsOf(t, name, out.Changed[0].Data) {
				if !before[of.Object.String()] {
					invalid++
					continue
				}
				all.injects(t, setting{}, setting{}.options(t), of)
			}
		}
	}
	t.Logf("%d bad twins, %d of them fixed, in which %d pods were not valid before: %v", files, fixed, invalid, all)
}
