package webhook

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"outrider.dev/internal/controlplane/ca"
	"outrider.dev/internal/pod/inject"
)

const serverName = "outriderd.outrider-system.svc"

// enabled are namespaces that all have istio-injection=enabled.
func enabled(name string) (inject.Namespace, bool) {
	return inject.Namespace{Name: name, Labels: map[string]string{"istio-injection": "enabled"}}, true
}

func authority(t testing.TB, dir string) *ca.Authority {
	t.Helper()
	a, err := ca.NewAuthority(ca.AuthorityOptions{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// serve starts a server of the webhook and returns its address.
func serve(t testing.TB, w *Webhook, a *ca.Authority, life time.Duration) string {
	t.Helper()
	id := ca.Identity{TrustDomain: "cluster.local", Namespace: "outrider-system", ServiceAccount: "outriderd"}
	serving, err := a.NewServing(id, ca.ServingNames("outrider-system", "cluster.local"), life)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := w.Server(serving.Certificate)
	done := make(chan struct{})
	go func() { defer close(done); s.ServeTLS(l, "", "") }()
	t.Cleanup(func() { s.Close(); <-done })
	return l.Addr().String()
}

// client is an API server's: it trusts a bundle and uses the service's name.
func client(t testing.TB, bundle []byte, protocols ...string) *http.Client {
	t.Helper()
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(bundle) {
		t.Fatal("no certificate in the bundle")
	}
	transport := &http.Transport{
		TLSClientConfig:   &tls.Config{RootCAs: pool, ServerName: serverName, NextProtos: protocols},
		ForceAttemptHTTP2: len(protocols) > 0 && protocols[0] == "h2",
	}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: time.Minute}
}

func podJSON(t testing.TB, text string) []byte {
	t.Helper()
	raw, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// reviewOf is an AdmissionReview as the API server writes it.
func reviewOf(uid, namespace string, object []byte) []byte {
	return fmt.Appendf(nil, `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":%q,"kind":{"group":"","version":"v1","kind":"Pod"},`+
		`"resource":{"group":"","version":"v1","resource":"pods"},"namespace":%q,"operation":"CREATE","userInfo":{},"object":%s,"oldObject":null,"dryRun":false,"options":null}}`, uid, namespace, object)
}

// A reply is the answer to a review.
type reply struct {
	code     int
	header   http.Header
	response response
	message  string // of a Status
	kind     string
}

func read(t testing.TB, code int, header http.Header, body []byte) reply {
	t.Helper()
	var got struct {
		answer
		Message string `json:"message"`
	}
	if err := json.Unmarshal(body, &got); err != nil {
		t.Fatalf("the answer is no JSON: %v\n%s", err, body)
	}
	return reply{code, header, got.Response, got.Message, got.Kind}
}

func post(t testing.TB, c *http.Client, url string, body []byte) reply {
	t.Helper()
	r, err := c.Post(url, "application/json", bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return read(t, r.StatusCode, r.Header, text)
}

// decided reviews an object without a connection.
func decided(t testing.TB, w *Webhook, namespace string, object []byte) response {
	t.Helper()
	text, _, err := w.review(context.Background(), reviewOf("u", namespace, object), nil)
	if err != nil {
		t.Fatal(err)
	}
	return read(t, 200, nil, text).response
}

// applied applies a JSON patch with the API server's library.
func applied(t testing.TB, object, patch []byte) []byte {
	t.Helper()
	if len(patch) == 0 {
		return object
	}
	steps, err := jsonpatch.DecodePatch(patch)
	if err == nil {
		object, err = steps.Apply(object)
	}
	if err != nil {
		t.Fatalf("%v\n%s", err, patch)
	}
	return object
}

// checkPod checks that no name is there twice.
func checkPod(t testing.TB, object []byte) corev1.Pod {
	t.Helper()
	var pod corev1.Pod
	if err := json.Unmarshal(object, &pod); err != nil {
		t.Fatal(err)
	}
	names, volumes := map[string]int{}, map[string]int{}
	for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for _, c := range list {
			names[c.Name]++
			mounts, env := map[string]int{}, map[string]int{}
			for _, m := range c.VolumeMounts {
				mounts[m.MountPath]++
			}
			for _, e := range c.Env {
				env[e.Name]++
			}
			once(t, "mount of "+c.Name, mounts)
			once(t, "variable of "+c.Name, env)
		}
	}
	for _, v := range pod.Spec.Volumes {
		volumes[v.Name]++
	}
	once(t, "container", names)
	once(t, "volume", volumes)
	return pod
}

func once(t testing.TB, what string, count map[string]int) {
	t.Helper()
	for name, n := range count {
		if n > 1 {
			t.Errorf("%s %s is there %d times", what, name, n)
		}
	}
}

// exchange writes files over an authority's.
func exchange(t testing.TB, a *ca.Authority, dir string, files map[string][]byte) {
	t.Helper()
	for name, data := range files {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := a.Reload(); err != nil {
		t.Fatal(err)
	}
}
