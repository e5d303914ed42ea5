package inject

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/core/pod/inject/containers"
	"outrider.dev/internal/core/pod/inject/verdict"
)

// The kubelet's requests contain a key that other pods cannot guess. If the API server calls the webhook again
// for the same pod, the key does not change. A pod of a new rollout gets a new key.
func TestKeyOfTheProbes(t *testing.T) {
	text := `{metadata: {name: shop, annotations: {outrider.dev/start: "off"}}, spec: {containers: [{name: app, image: a,
		readinessProbe: {httpGet: {path: /ready, port: 8080}}, lifecycle: {preStop: {httpGet: {path: /stop, port: 8080}}}}]}}`
	ns := Namespace{Name: "shop"}
	paths := func(o Options, given string) (ready, stop, key string, pod string) {
		t.Helper()
		r, err := Pod(podOf(t, given), ns, o)
		if err != nil || !r.Injected {
			t.Fatalf("%+v, %v", r.Reason, err)
		}
		c := containers.Find(r.Pod, "app")
		raw, err := asJSON(r.Pod)
		if err != nil {
			t.Fatal(err)
		}
		return c.ReadinessProbe.HTTPGet.Path, c.Lifecycle.PreStop.HTTPGet.Path, valueOf(r.Pod, contract.ProbeKey), raw
	}
	random, plain := Options{Manual: true, ProbeKey: RandomProbeKey}, Options{Manual: true}
	derived := Options{Manual: true, ProbeKey: DerivedProbeKey([]byte("a secret of the operator"))}

	ready, stop, key, injected := paths(random, text)
	if !contract.ValidProbeKey(key) || ready != "/app-health/app/readyz/"+key || stop != "/app-lifecycle/app/prestopz/"+key {
		t.Errorf("key %q, paths %s %s", key, ready, stop)
	}
	for name, o := range map[string]Options{"the webhook again": random, "the command line": plain, "another secret": derived} {
		if _, _, again, pod := paths(o, injected); again != key {
			t.Errorf("%s replaces the key %s by %s", name, key, again)
		} else if diff := cmp.Diff(injected, pod); diff != "" {
			t.Errorf("%s (-was +is):\n%s", name, diff)
		}
	}
	if stripped, err := Stripped(podOf(t, injected)); err != nil || containers.Find(stripped, "app").ReadinessProbe.HTTPGet.Path != "/ready" {
		t.Errorf("stripped: %v, %+v", err, stripped)
	}
	if _, _, other, _ := paths(random, text); other == key {
		t.Error("two pods have one key")
	}

	if ready, _, key, was := paths(plain, text); key != "" || ready != "/app-health/app/readyz" {
		t.Errorf("without a key: %s, %q", ready, key)
	} else if _, _, added, _ := paths(random, was); added == "" {
		t.Error("the webhook gives no key to a pod that was injected without one")
	}
	_, _, one, _ := paths(derived, text)
	_, _, same, _ := paths(derived, text)
	_, _, other, _ := paths(derived, strings.Replace(text, "name: shop", "name: cart", 1))
	if one != same || one == other || !contract.ValidProbeKey(one) {
		t.Errorf("derived keys: %s, again %s, of another workload %s", one, same, other)
	}

	own := strings.Replace(text, `annotations: {`, `annotations: {proxy.istio.io/config: "{proxyMetadata: {OUTRIDER_PROBE_KEY: the-key-of-the-author}}", `, 1)
	if ready, _, key, _ := paths(random, own); key != "the-key-of-the-author" || ready != "/app-health/app/readyz/"+key {
		t.Errorf("the author's key: %q, %s", key, ready)
	}
	var refusal *verdict.Refusal
	if _, err := Pod(podOf(t, strings.Replace(own, "the-key-of-the-author", "../../drain?xxxxxxxx", 1)), ns, random); !errors.As(err, &refusal) || strings.Contains(err.Error(), "drain") {
		t.Errorf("a key that is no part of a path: %v", err)
	}
}
