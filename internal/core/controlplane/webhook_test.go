package controlplane

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "github.com/opencontainers/image-spec/specs-go/v1"

	"outrider.dev/internal/core/pod/lookup"
	"outrider.dev/test/process"
	"outrider.dev/test/registry"
)

// Namespaces are read from the manifests in the folder. Injection uses a changed values file if it is valid.
func TestPodsAreReviewedByTheCurrentFiles(t *testing.T) {
	folder, state, values := t.TempDir(), t.TempDir(), filepath.Join(t.TempDir(), "values.yaml")
	hub := func(name string) string { return "global: {hub: " + name + ", tag: t1}" }
	put(t, values, hub("first.test"))
	put(t, filepath.Join(folder, "shop.yaml"), "{apiVersion: v1, kind: Namespace, metadata: {name: shop, labels: {istio-injection: enabled}}}")
	put(t, filepath.Join(folder, "quiet.yaml"), "{apiVersion: v1, kind: Namespace, metadata: {name: quiet}}")

	shop := registry.New(t)
	shop.Tag("shop", "1", shop.Image("linux/amd64", v1.ImageConfig{Cmd: []string{"/shop"}}).Digest)
	images, err := lookup.New(lookup.Options{Transport: shop.Server.Client().Transport, Timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	at := started(t, Options{Folder: folder, State: state, Webhook: "127.0.0.1:0", Injection: Injection{Values: values, Images: images, ControlPlane: "outriderd-canary.mesh.svc:15012"}})
	config := clientTLS(t, state)
	config.NextProtos = []string{"http/1.1"}
	transport := &http.Transport{TLSClientConfig: config}
	defer transport.CloseIdleConnections()
	var warnings string // warnings of the last review
	review := func(namespace, container string) string {
		t.Helper()
		body := fmt.Sprintf(`{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"u","kind":{"version":"v1","kind":"Pod"},"namespace":%q,"operation":"CREATE","object":{"spec":{"containers":[%s]}}}}`, namespace, container)
		r, err := (&http.Client{Transport: transport}).Post("https://"+at.Webhook+"/inject?timeout=10s", "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		defer r.Body.Close()
		var got struct {
			Response struct {
				Allowed bool   `json:"allowed"`
				Patch   []byte `json:"patch"`

				Warnings []string `json:"warnings"`
			} `json:"response"`
		}
		if err := json.NewDecoder(r.Body).Decode(&got); err != nil || !got.Response.Allowed {
			t.Fatalf("%s: %d, %v, %+v", namespace, r.StatusCode, err, got)
		}
		warnings = strings.Join(got.Response.Warnings, "\n")
		return string(got.Response.Patch)
	}
	patch := func(namespace string) string {
		t.Helper()
		return review(namespace, `{"name":"a","image":"a","command":["/a"]}`)
	}
	if p := patch("shop"); !strings.Contains(p, "first.test") || !strings.Contains(p, "outriderd-canary.mesh.svc:15012") {
		t.Errorf("shop is labelled, and its proxy has an address of the control plane: %s", p)
	}
	for _, namespace := range []string{"quiet", "outrider-system", "kube-system"} {
		if p := patch(namespace); p != "" {
			t.Errorf("%s is not labelled: %s", namespace, p)
		}
	}
	put(t, values, hub("second.test"))
	process.Eventually(t, "the second hub", func() bool { return strings.Contains(patch("shop"), "second.test") })
	put(t, values, "global: [")
	put(t, filepath.Join(folder, "quiet.yaml"), "{apiVersion: v1, kind: Namespace, metadata: {name: quiet, labels: {istio-injection: enabled}}}")
	process.Eventually(t, "the label of quiet, with the values that could be used last", func() bool { return strings.Contains(patch("quiet"), "second.test") })
	put(t, values, hub("third.test"))
	process.Eventually(t, "the third hub", func() bool { return strings.Contains(patch("shop"), "third.test") })

	// The review is larger than the limit for clients without an identity.
	if p := review("shop", fmt.Sprintf(`{"name":"a","image":"a","command":["/a"],"args":[%q]}`, strings.Repeat("x", 500<<10))); p == "" {
		t.Error("a large pod is not injected")
	}
	if p := review("shop", fmt.Sprintf(`{"name":"a","image":"%s/shop:1"}`, shop.Host)); !strings.Contains(p, `"--","/shop"]`) {
		t.Errorf("the command of an image is not looked up: %s", p)
	}

	put(t, filepath.Join(folder, "deny.yaml"), "{apiVersion: security.istio.io/v1, kind: RequestAuthentication, metadata: {name: deny-all, namespace: shop}}")
	process.Eventually(t, "the policy", func() bool {
		patch("shop")
		return strings.Contains(warnings, "outrider: RequestAuthentication shop/deny-all is not enforced by Outrider: ")
	})
	if patch("quiet"); warnings != "" {
		t.Errorf("another namespace: %s", warnings)
	}
	if problems := fetched(t, "http://"+at.HTTP+"/debug/problems"); !strings.Contains(problems, `"error: deny.yaml:1: RequestAuthentication shop/deny-all: is not enforced`) {
		t.Errorf("problems: %s", problems)
	}

	text := fetched(t, "http://"+at.HTTP+"/metrics")
	for _, want := range []string{`outriderd_webhook_reviews_total{code="injected"}`, `outriderd_webhook_reviews_total{code="ignored-namespace"} 2`, "outriderd_webhook_review_seconds_count",
		`outriderd_mesh_unenforced{kind="RequestAuthentication"} 1`, "outriderd_image_lookups_total 1", "outriderd_roots 1", "outriderd_authority_expiry_timestamp_seconds ", "outriderd_image_lookup_failures_total 0"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s in the metrics", want)
		}
	}
}

func fetched(t *testing.T, url string) string {
	t.Helper()
	r, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	var text bytes.Buffer
	if _, err := text.ReadFrom(r.Body); err != nil {
		t.Fatal(err)
	}
	return text.String()
}
