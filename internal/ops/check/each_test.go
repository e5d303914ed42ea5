package check

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	ktesting "k8s.io/client-go/testing"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/base/telemetry"
	"outrider.dev/internal/core/agent/readiness"
	"outrider.dev/internal/core/agent/status"
	"outrider.dev/internal/core/controlplane/debugapi"
	"outrider.dev/internal/ops/replicas"
)

// meshed returns a pod whose proxy has been running for an hour.
func meshed(name string, ready bool) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "shop", Labels: map[string]string{"app": name}},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: contract.ProxyContainer, Image: "agent:1"}}},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: []corev1.ContainerStatus{{Name: contract.ProxyContainer, Ready: ready,
			State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(time.Now().Add(-time.Hour))}}}}}}
}

// meshOf returns a survey of a cluster with one replica, which lists these proxies as connected. The agents of all
// pods give the same answers: the text ready to a readiness probe, and the text metrics to a request for metrics.
func meshOf(t *testing.T, proxies, ready, metrics string, pods ...runtime.Object) *survey {
	t.Helper()
	replica := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "outriderd-1", Namespace: own, Labels: map[string]string{"app": "outriderd"}}, Status: corev1.PodStatus{Phase: corev1.PodRunning}}
	s, _ := in(t, append(pods, replica)...)
	answers := map[string]string{"/version": `{"version":"v2","envoy":"1.40.0"}`, "/debug/proxies": proxies, "/healthz/ready": ready, "/metrics": metrics}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { w.Write([]byte(answers[r.URL.Path])) }))
	t.Cleanup(server.Close)
	s.replicaSet.Forward = func(context.Context, string, string, int) (string, func(), error) {
		return strings.TrimPrefix(server.URL, "http://"), func() {}, nil
	}
	return s
}

const (
	readyNow = `{"ready":true,"level":"outbound"}`
	tls13    = "envoy_listener_ssl_versions_TLSv1_3{listener_address=\"0.0.0.0_15006\"} 40\n"
	expiry   = tls13 + "# HELP x\n" + contract.CertificateExpiry + " "
)

// ofProxy returns the checks of pod a, by ID.
func ofProxy(t *testing.T, s *survey) map[string]Check {
	t.Helper()
	all, err := s.proxiesOf(t.Context(), Selection{Pod: "a"})
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]Check{}
	for _, c := range all {
		if c.Object != "shop/a" || c.Link != Pages+"findings/"+c.ID+".md" {
			t.Errorf("%+v", c)
		}
		out[c.ID] = c
	}
	if len(out) != len(topics) {
		t.Errorf("%d checks; want %d", len(out), len(topics))
	}
	return out
}

func TestOneProxy(t *testing.T) {
	const id = `"id":"sidecar~10.0.0.1~a.shop~d","since":"2026-01-01T00:00:00Z","agent":"v2","envoy":"1.40.0"`
	young, gone, crashed, begins := meshed("a", false), meshed("a", false), meshed("a", false), meshed("a", false)
	young.Status.ContainerStatuses[0].State.Running.StartedAt = metav1.Now()
	gone.Status.ContainerStatuses = nil
	crashed.Status.ContainerStatuses[0].State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}}
	begins.Status.ContainerStatuses[0].State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "PodInitializing"}}
	const unready = `{"ready":false,"reasons":[{"code":"no-control-plane","message":"connection refused"}]}`
	for name, tt := range map[string]struct {
		proxies, ready, metrics string
		pod                     *corev1.Pod
		want                    map[string]Result // the results that are not ok
		words                   string            // a part of the reason of one of these results
	}{
		"all is well":                   {"[{" + id + `,"types":[{"type":"Cluster","sent":"7","acked":"7"}]}]`, readyNow, expiry + "43200", meshed("a", true), nil, ""},
		"connected to none":             {"[]", readyNow, expiry + "43200", meshed("a", true), map[string]Result{"proxy-connection": Warning, "proxy-config": Skipped, "proxy-version": Skipped}, "connected to no replica"},
		"it rejected something":         {"[{" + id + `,"types":[{"type":"Cluster","rejected":{"version":"8","reason":"no such field"}}]}]`, readyNow, expiry + "43200", meshed("a", true), map[string]Result{"proxy-config": Failed}, "Cluster: rejected version 8: no such field"},
		"an answer is due":              {"[{" + id + `,"types":[{"type":"Listener","sent":"8","acked":"7","pending":1}]}]`, readyNow, expiry + "43200", meshed("a", true), map[string]Result{"proxy-config": Warning}, "version 8 is not answered yet; accepted is 7"},
		"an object is not enforced":     {"[{" + id + `,"notes":["` + contract.ErrorPrefix + `AuthorizationPolicy shop/deny"]}]`, readyNow, expiry + "43200", meshed("a", true), map[string]Result{"proxy-config": Failed}, "not enforced: AuthorizationPolicy"},
		"of another version":            {`[{"id":"sidecar~10.0.0.1~a.shop~d","agent":"v1"}]`, readyNow, expiry + "43200", meshed("a", true), map[string]Result{"proxy-version": Warning}, "agent v1, control plane v2"},
		"not ready":                     {"[{" + id + "}]", unready, expiry + "43200", meshed("a", false), map[string]Result{"proxy-ready": Failed}, "no-control-plane: connection refused"},
		"not ready, before the kubelet": {"[{" + id + "}]", unready, expiry + "43200", meshed("a", true), map[string]Result{"proxy-ready": Failed}, "no-control-plane"},
		"not ready, and has just begun": {"[{" + id + "}]", unready, expiry + "43200", young, map[string]Result{"proxy-ready": Warning}, "not ready yet"},
		"the kubelet's probe fails":     {"[{" + id + "}]", readyNow, expiry + "43200", meshed("a", false), map[string]Result{"proxy-ready": Failed}, "the kubelet's probe"},
		"the certificate is late":       {"[{" + id + "}]", readyNow, expiry + "600", meshed("a", true), map[string]Result{"proxy-certificate": Warning}, "expires in 10m0s"},
		"the certificate has expired":   {"[{" + id + "}]", readyNow, expiry + "-60", meshed("a", true), map[string]Result{"proxy-certificate": Failed}, "expired 1m0s ago"},
		"there is no certificate":       {"[{" + id + "}]", readyNow, expiry + "0", meshed("a", true), map[string]Result{"proxy-certificate": Failed}, "none yet"},
		"no certificate is requested":   {"[{" + id + "}]", readyNow, "x 1\n", meshed("a", true), map[string]Result{"proxy-certificate": Skipped, "proxy-tls": Skipped}, "requests no certificate"},
		"the agent's answer is no JSON": {"[{" + id + "}]", "what", expiry + "43200", meshed("a", true), map[string]Result{"proxy-certificate": Skipped, "proxy-tls": Skipped}, "GET /healthz/ready"},
		"some clients use TLS 1.2": {"[{" + id + "}]", readyNow, expiry + "43200\n" + strings.Replace(tls13, "3{", "2{", 1) + telemetry.OldTLSCaller + "spiffe://cluster.local/ns/shop/sa/old\"} 3\n" +
			telemetry.OldTLSCaller + "\x1b[31m\"} 3\n", meshed("a", true), map[string]Result{"proxy-tls": Warning}, "40 of 80 connections since it started were by TLS 1.2, from spiffe://cluster.local/ns/shop/sa/old\n"},
		"all clients use TLS 1.2": {"[{" + id + "}]", readyNow, contract.CertificateExpiry + " 43200\n" + strings.Replace(tls13, "3{", "2{", 1), meshed("a", true), map[string]Result{"proxy-tls": Warning}, "40 of 40 connections"},
		"it refuses all clients": {"[{" + id + "}]", readyNow, contract.CertificateExpiry + " 43200\nenvoy_listener_ssl_fail_verify_error{listener_address=\"0.0.0.0_15006\"} 3\n",
			meshed("a", true), map[string]Result{"proxy-tls": Warning}, "it refused the certificate of a client 3 times"},
		"the application counts too": {"[{" + id + "}]", readyNow, expiry + "600\n" + contract.CertificateExpiry + " 43200\n" + contract.CertificateExpiry + " x\n" + strings.Replace(tls13, " 40", " 18446744073709551615", 1),
			meshed("a", true), map[string]Result{"proxy-certificate": Warning}, "expires in 10m0s"},
		"it refuses certificates": {"[{" + id + "}]", readyNow, expiry + "43200\nenvoy_listener_ssl_fail_verify_error{listener_address=\"0.0.0.0_15006\"} 3\n" + strings.Repeat("x", 1<<17),
			meshed("a", true), map[string]Result{"proxy-tls": Warning}, "it refused the certificate of a client 3 times"},
		"it refuses some, and takes TLS 1.2 of others": {"[{" + id + "}]", readyNow, expiry + "43200\n" + strings.Replace(tls13, "3{", "2{", 1) + "envoy_listener_ssl_fail_verify_error{listener_address=\"0.0.0.0_15006\"} 3\n",
			meshed("a", true), map[string]Result{"proxy-tls": Warning}, "a client 3 times since it started; 40 of 80 connections"},
		"it is not started":               {"[]", "", "", gone, map[string]Result{"proxy-connection": Skipped, "proxy-config": Skipped, "proxy-ready": Skipped, "proxy-certificate": Skipped, "proxy-tls": Skipped, "proxy-version": Skipped}, "does not run"},
		"its init containers run":         {"[]", "", "", begins, map[string]Result{"proxy-connection": Skipped, "proxy-config": Skipped, "proxy-ready": Skipped, "proxy-certificate": Skipped, "proxy-tls": Skipped, "proxy-version": Skipped}, "PodInitializing"},
		"it ends again and again":         {"[]", "", "", crashed, map[string]Result{"proxy-connection": Skipped, "proxy-config": Skipped, "proxy-ready": Failed, "proxy-certificate": Skipped, "proxy-tls": Skipped, "proxy-version": Skipped}, "CrashLoopBackOff"},
		"the replica's answer is no JSON": {"what", readyNow, expiry + "43200", meshed("a", true), map[string]Result{"proxy-connection": Skipped, "proxy-config": Skipped, "proxy-version": Skipped}, "replica outriderd-1"},
	} {
		t.Run(name, func(t *testing.T) {
			said := ""
			for id, c := range ofProxy(t, meshOf(t, tt.proxies, tt.ready, tt.metrics, tt.pod)) { // any order: the cases are independent
				want, bad := tt.want[id]
				if !bad {
					want = OK
				}
				answer{c.Result, c.Reason, c.Hint}.is(t, want)
				if want != OK {
					said += c.Reason + "\n"
				}
			}
			if !strings.Contains(said, tt.words) {
				t.Errorf("no %q in\n%s", tt.words, said)
			}
		})
	}
}

// The checks can parse the answers of the agent's real status server.
func TestAgentsAnswers(t *testing.T) {
	board := readiness.New(readiness.Options{Conditions: []readiness.Condition{readiness.Envoy}})
	server, err := status.Listen(status.Options{Board: board, Journal: status.NewJournal(status.JournalOptions{}), Ports: []uint16{0},
		Metrics: []status.Metric{{Name: contract.CertificateExpiry, Value: func() float64 { return 43200.5 }}}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- server.Serve(ctx) }()
	t.Cleanup(func() { cancel(); <-served })
	s, _ := in(t)
	s.replicaSet.Forward = func(_ context.Context, namespace, pod string, port int) (string, func(), error) {
		if want := contract.StatusPort; namespace != "shop" || pod != "a" || port != want {
			t.Errorf("port %d of %s/%s", port, namespace, pod)
		}
		return fmt.Sprintf("127.0.0.1:%d", server.Addresses()[0].(*net.TCPAddr).Port), func() {}, nil
	}
	board.Set(readiness.Envoy, false, "it died")
	a := s.askAgent(t.Context(), meshed("a", true))
	if a.err != nil || a.ready || len(a.reasons) != 1 || a.reasons[0] != "envoy-not-live: it died" || !a.has || a.certificate != 12*time.Hour+500*time.Millisecond {
		t.Errorf("the answer is read as %+v", a)
	}
	board.Set(readiness.Envoy, true, "")
	if a := s.askAgent(t.Context(), meshed("a", true)); a.err != nil || !a.ready {
		t.Errorf("the answer is read as %+v", a)
	}
	s.replicaSet.Forward = func(_ context.Context, _, _ string, port int) (string, func(), error) {
		return "", nil, fmt.Errorf("no port %d", port)
	}
	other := meshed("a", true)
	other.Annotations = map[string]string{contract.StatusPortAnnotation: "16020"}
	if a := s.askAgent(t.Context(), other); a.err == nil || a.err.Error() != "no port 16020" {
		t.Errorf("error %v", a.err)
	}
}

func TestSelection(t *testing.T) {
	other, plain, ended, dotted := meshed("a", true), meshed("plain", true), meshed("ended", true), meshed("a.b", true)
	other.Namespace = "pay"
	plain.Spec.Containers[0].Name = "app"
	ended.Status.Phase = corev1.PodSucceeded
	for name, tt := range map[string]struct {
		which Selection
		want  string
	}{
		"all":                      {Selection{}, "pay/a shop/a shop/a.b shop/b"},
		"a namespace":              {Selection{Namespace: "pay"}, "pay/a"},
		"labels":                   {Selection{Labels: "app=a"}, "pay/a shop/a"},
		"a pod":                    {Selection{Pod: "b"}, "shop/b"},
		"a pod of a namespace":     {Selection{Pod: "a.pay"}, "pay/a"},
		"a pod of another one":     {Selection{Pod: "a", Namespace: "shop"}, "shop/a"},
		"a pod with a dot":         {Selection{Pod: "a.b"}, "shop/a.b"},
		"a pod without a proxy":    {Selection{Pod: "plain"}, `no running pod "plain" has a proxy: outrider describe pod says why`},
		"a pod that has ended":     {Selection{Pod: "ended"}, `no running pod "ended" has a proxy: outrider describe pod says why`},
		"a namespace without pods": {Selection{Namespace: "none"}, "no running pod has a proxy in none"},
	} {
		t.Run(name, func(t *testing.T) {
			s, _ := in(t, meshed("a", true), meshed("b", true), other, plain, ended, dotted)
			pods, err := s.selected(t.Context(), tt.which)
			var is []string
			for _, p := range pods {
				is = append(is, p.Namespace+"/"+p.Name)
			}
			if err != nil {
				is = []string{err.Error()}
			}
			if got := strings.Join(is, " "); got != tt.want {
				t.Errorf("%s; want %s", got, tt.want)
			}
		})
	}
}

// In a large mesh, a run queries only a limited number of agents. It begins with the agents of proxies that have
// problems.
func TestAgentsAreAskedUpToALimit(t *testing.T) {
	var pods []corev1.Pod
	answers := []replicas.Replica{{Name: "r"}}
	for i := range 10_000 {
		name := fmt.Sprintf("p%05d", i)
		pods = append(pods, *meshed(name, true))
		if i != 9_000 { // this proxy is connected to no replica
			answers[0].Proxies = append(answers[0].Proxies, debugapi.Proxy{ID: "sidecar~10.0.0.1~" + name + ".shop~d", Replica: "r"})
		}
	}
	states := statesOf(pods, answers, nil)
	var asked, at, most atomic.Int64
	askAll(t.Context(), states, func(context.Context, *corev1.Pod) agentAnswer {
		asked.Add(1)
		most.Store(max(most.Load(), at.Add(1)))
		at.Add(-1)
		return agentAnswer{ready: true, has: true, certificate: time.Hour * 12, tls: tlsUse{accepted: 1}}
	})
	if asked.Load() != maxAsked || most.Load() > asksAtOnce {
		t.Errorf("%d were asked, %d at once", asked.Load(), most.Load())
	}
	states[9_000].certificate().is(t, OK)
	states[0].certificate().is(t, OK)
	states[9_999].certificate().is(t, Skipped, "100 agents at most")
	states[9_999].readiness().is(t, OK) // its agent was not asked, so this is the state according to the kubelet
	states[9_000].connection().is(t, Warning, "no replica")

	var all []Check
	for _, s := range states {
		for _, topic := range topics {
			all = append(all, topic.about(s.pod.Namespace+"/"+s.pod.Name, topic.of(s)))
		}
	}
	var lines []string
	for _, c := range Summary(all, 20) {
		lines = append(lines, strings.TrimSpace(string(c.Result)+" "+c.ID+" "+c.Object+": "+c.Reason))
	}
	want := []string{
		"ok proxy-connection : 9999 of 10000", "warning proxy-connection shop/p09000: connected to no replica",
		"ok proxy-config : 9999 of 10000", "skipped proxy-config : 1 of 10000: it is not known to be connected",
		"ok proxy-ready : 10000 of 10000",
		"ok proxy-certificate : 100 of 10000", "skipped proxy-certificate : 9900 of 10000: not asked: a run asks 100 agents at most; choose fewer by POD, -n or -l",
		"ok proxy-tls : 100 of 10000", "skipped proxy-tls : 9900 of 10000: not asked: a run asks 100 agents at most; choose fewer by POD, -n or -l",
		"ok proxy-version : 9999 of 10000", "skipped proxy-version : 1 of 10000: it is not known to be connected",
	}
	if !slices.Equal(lines, want) {
		t.Errorf("the summary is\n%s\nwant\n%s", strings.Join(lines, "\n"), strings.Join(want, "\n"))
	}
}

// For each check, the summary lists a limited number of objects that are not ok, the worst first.
func TestSummary(t *testing.T) {
	var all []Check
	for i := range 6 {
		result := []Result{OK, Warning, Failed, Warning, Failed, OK}[i]
		all = append(all, Check{ID: "x", Object: fmt.Sprint(i), Result: result}, Check{ID: "whole"})
	}
	text, _ := json.Marshal(Summary(all, 3)[:5])
	const want = `[{"id":"x","title":"","result":"ok","reason":"2 of 6","link":""},{"id":"x","title":"","object":"2","result":"failed","reason":"","link":""},` +
		`{"id":"x","title":"","object":"4","result":"failed","reason":"","link":""},{"id":"x","title":"","object":"1","result":"warning","reason":"","link":""},` +
		`{"id":"x","title":"","result":"warning","reason":"and 1 more that are not ok","hint":"-o json has all","link":""}]`
	if string(text) != want {
		t.Errorf("%s\nwant\n%s", text, want)
	}
	few := []Check{{ID: "x", Object: "a", Result: OK}, {ID: "x", Object: "b", Result: Failed}}
	if got := Summary(few, 3); !slices.Equal(got, few) {
		t.Errorf("few are %v", got)
	}
}

// Without the permission to list pods, the checks of proxies return an error that says so.
func TestRunProxiesWithoutPermission(t *testing.T) {
	s, core := in(t)
	core.PrependReactor("list", "pods", func(ktesting.Action) (bool, runtime.Object, error) { return true, nil, errors.New("forbidden") })
	if _, err := s.proxiesOf(t.Context(), Selection{}); err == nil || !strings.Contains(err.Error(), "listing pods: forbidden") {
		t.Errorf("error %v", err)
	}
}
