package replicas

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/core/controlplane/debugapi"
)

const own = "outrider-system"

// replica returns a pod of the control plane.
func replica(name string, phase corev1.PodPhase) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: own, Labels: map[string]string{"app": "outriderd", RevisionLabel: "default"}},
		Status:     corev1.PodStatus{Phase: phase},
	}
}

// answers starts a server in place of a replica and returns its address. paths maps each path to its answer.
func answers(t *testing.T, paths map[string]string) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, ok := paths[r.URL.Path]
		if !ok {
			http.NotFound(w, r)
			return
		}
		w.Write([]byte(text))
	}))
	t.Cleanup(s.Close)
	return strings.TrimPrefix(s.URL, "http://")
}

func TestAllReplicasAreAsked(t *testing.T) {
	at := map[string]string{
		"a": answers(t, map[string]string{"/version": `{"version":"v2","envoy":"1.40.0"}`,
			"/debug/proxies": `[{"id":"sidecar~10.0.0.2~b.shop~d","agent":"v1","envoy":"1.39.0","future":[1]}]`}),
		"b": answers(t, map[string]string{"/version": `{"version":"v2","envoy":"1.40.0"}`,
			"/debug/proxies": `[{"id":"sidecar~10.0.0.1~a.shop~d","agent":"v2","envoy":"1.40.0"}]`}),
		"old":  answers(t, map[string]string{"/version": `{"version":"v1"}`, "/debug/proxies": `[{"id":"sidecar~10.0.0.3~c.shop~d"}]`}),
		"sick": answers(t, map[string]string{"/version": `{}`}),
	}
	var stopped []string
	s := &Set{Namespace: own, Core: fake.NewClientset(replica("sick", corev1.PodRunning), replica("b", corev1.PodRunning), replica("a", corev1.PodRunning),
		replica("old", corev1.PodRunning), replica("gone", corev1.PodRunning), replica("ended", corev1.PodFailed)),
		Forward: func(_ context.Context, namespace, pod string, port int) (string, func(), error) {
			if namespace != own || port != contract.MonitoringPort {
				t.Errorf("port %d of %s/%s", port, namespace, pod)
			}
			if at[pod] == "" {
				return "", nil, errors.New("no such pod " + pod)
			}
			return at[pod], func() { stopped = append(stopped, pod) }, nil
		}}
	all, err := s.All(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var is []string
	for _, r := range all {
		is = append(is, r.Name+" "+r.Version.Version+" "+r.Problem)
	}
	if got, want := strings.Join(is, "\n"), "a v2 \nb v2 \ngone  no such pod gone\nold v1 \nsick  the version of sick cannot be read"; got != want {
		t.Errorf("the replicas are\n%s\nwant\n%s", got, want)
	}
	is = nil
	for _, p := range Proxies(all) {
		is = append(is, p.Name()+" at "+p.Replica+": "+p.Skew())
	}
	const want = "a.shop at b: \nb.shop at a: agent v1, control plane v2; Envoy 1.39.0, the control plane is for 1.40.0\nc.shop at old: "
	if got := strings.Join(is, "\n"); got != want {
		t.Errorf("the proxies are\n%s\nwant\n%s", got, want)
	}
	// A proxy printed as JSON can be parsed again without loss.
	var back debugapi.Proxy
	raw := Proxies(all)[1].Raw
	if err := json.Unmarshal(raw, &back); err != nil || back.Skew() != Proxies(all)[1].Skew() || !strings.Contains(string(raw), `"future":[1]`) {
		t.Errorf("%s is read as %+v, %v", raw, back, err)
	}
	s.Close()
	if len(stopped) != 4 {
		t.Errorf("the ports of %v are no longer forwarded; want four", stopped)
	}
}

func TestNoReplicaRuns(t *testing.T) {
	s := &Set{Namespace: own, Core: fake.NewClientset(replica("ended", corev1.PodFailed))}
	if _, err := s.All(t.Context()); !errors.Is(err, ErrNone) || !strings.Contains(err.Error(), own) {
		t.Errorf("error %v", err)
	}
}

// Get limits the size of an answer, and names the path in its errors.
func TestGet(t *testing.T) {
	at := answers(t, map[string]string{"/page": "12345"})
	s := &Set{Namespace: own, Forward: func(context.Context, string, string, int) (string, func(), error) { return at, func() {}, nil }}
	body, header, err := s.Get(t.Context(), "a", "/page", 5)
	if err != nil || string(body) != "12345" || header.Get("Date") == "" {
		t.Errorf("%q, %v, %v", body, header, err)
	}
	if _, _, err := s.Get(t.Context(), "a", "/page", 4); err == nil || !strings.Contains(err.Error(), "a answers GET /page with more than 4 bytes") {
		t.Errorf("error %v", err)
	}
	if _, _, err := s.Get(t.Context(), "a", "/none", 5); err == nil || !strings.Contains(err.Error(), "GET /none with 404") {
		t.Errorf("error %v", err)
	}
}
