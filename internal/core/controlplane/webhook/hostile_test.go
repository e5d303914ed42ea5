package webhook

import (
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"testing"

	admission "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	kruntime "k8s.io/apimachinery/pkg/runtime"

	"outrider.dev/internal/base/contract"
)

// No annotation causes a review to take much memory, even if its YAML aliases expand to a long text: without
// a limit the first two cases take a gigabyte and 173 MB.
func TestAnnotationsThatUnfold(t *testing.T) {
	repeated := func(length, times int) string {
		return `x: &a "` + strings.Repeat("y", length) + `"` + "\nzone: [" + strings.Repeat("*a,", times) + "]\n"
	}
	keys := func(n int) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, "k%d: v\n", i)
		}
		return b.String()
	}
	for name, text := range map[string]string{
		"a string, 45,000 times": repeated(90_000, 45_000),
		"59 KB":                  repeated(1000, 19_000),
		"24,000 keys":            keys(24_000),
		"2,000 keys":             keys(2000),
		"as deep as it is long":  strings.Repeat("[", 9000) + strings.Repeat("]", 9000),
	} {
		for _, annotation := range []string{contract.ProxyConfig, contract.DependsOn} {
			t.Run(name+" "+annotation, func(t *testing.T) {
				value, err := json.Marshal(text)
				if err != nil {
					t.Fatal(err)
				}
				pod := fmt.Sprintf(`{"metadata": {"annotations": {%q: %s}}, "spec": {"containers": [{"name": "app", "image": "app:1", "command": ["/app"]}]}}`, annotation, value)
				w := New(Options{Namespaces: enabled})
				body := reviewOf("u1", "shop", []byte(pod))
				var before, after runtime.MemStats
				runtime.ReadMemStats(&before)
				answer, _, err := w.review(t.Context(), &place{}, body, nil)
				runtime.ReadMemStats(&after)
				if err != nil {
					t.Fatal(err)
				}
				if spent := after.TotalAlloc - before.TotalAlloc; spent > 64<<20 {
					t.Errorf("%d KiB for a review of %d KiB", spent>>10, len(body)>>10)
				}
				if refused := strings.Contains(string(answer), "want at most") || strings.Contains(string(answer), "more than"); refused == (name == "2,000 keys") {
					t.Errorf("%.400s", answer)
				}
			})
		}
	}
}

// The namespace is found before the review is decoded. It is taken from the part that the API server wrote,
// not from the part that the pod's author wrote.
func TestNamespaceOfAReview(t *testing.T) {
	review := func(namespace string) []byte {
		body, err := json.Marshal(admission.AdmissionReview{TypeMeta: reviewType, Request: &admission.AdmissionRequest{
			UID: "u1", Namespace: namespace, Name: "web", Operation: admission.Create,
			UserInfo: authenticationv1.UserInfo{Username: `"namespace":"bank"`},
			Object:   kruntime.RawExtension{Raw: podJSON(t, strings.Replace(admitted, "LABELS", `annotations: {a: '"namespace":"bank"'}`, 1))},
		}})
		if err != nil {
			t.Fatal(err)
		}
		return body
	}
	for _, want := range []string{"shop", strings.Repeat("n", 63), ""} {
		if got := namespaceOf(review(want)); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	for body, want := range map[string]string{"": "", `{"namespace":"`: "", `"namespace":"a`: "a", strings.Repeat(" ", 5000) + `"namespace":"a"`: ""} {
		if got := namespaceOf([]byte(body)); got != want {
			t.Errorf("%.20q: %q, want %q", body, got, want)
		}
	}
}
