package webhook

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	admission "k8s.io/api/admission/v1"
	"sigs.k8s.io/yaml"

	"outrider.dev/internal/core/controlplane/ca"
	"outrider.dev/internal/core/pod/inject"
)

// enabled returns a namespace with this name and the label istio-injection=enabled.
func enabled(name string) (inject.Namespace, bool) {
	return inject.Namespace{Name: name, Labels: map[string]string{"istio-injection": "enabled"}}, true
}

func authority(t testing.TB, dir string) *ca.Authority {
	t.Helper()
	a, err := ca.NewAuthority(t.Context(), ca.AuthorityOptions{Store: ca.Directory(dir)})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// serve starts the webhook's server and returns its address.
func serve(t testing.TB, w *Webhook, a *ca.Authority) string {
	t.Helper()
	id := ca.Identity{TrustDomain: "cluster.local", Namespace: "outrider-system", ServiceAccount: "outriderd"}
	serving, err := a.NewServing(id, []string{"localhost"}, 0)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := w.Server(serving.Certificate, nil)
	done := make(chan struct{})
	go func() { defer close(done); s.ServeTLS(l, "", "") }()
	t.Cleanup(func() { s.Close(); <-done })
	return l.Addr().String()
}

// client returns an HTTP client that trusts a bundle, as an API server does. In addition, it allows the
// resumption of TLS sessions.
func client(t testing.TB, bundle []byte, protocols ...string) *http.Client {
	t.Helper()
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(bundle) {
		t.Fatal("no certificate in the bundle")
	}
	transport := &http.Transport{
		TLSClientConfig:   &tls.Config{RootCAs: pool, ServerName: "localhost", NextProtos: protocols, ClientSessionCache: tls.NewLRUClientSessionCache(1)},
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

// reviewOf returns an AdmissionReview as the API server writes it.
func reviewOf(uid, namespace string, object []byte) []byte {
	return fmt.Appendf(nil, `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":%q,"kind":{"group":"","version":"v1","kind":"Pod"},`+
		`"resource":{"group":"","version":"v1","resource":"pods"},"namespace":%q,"operation":"CREATE","userInfo":{},"object":%s,"oldObject":null,"dryRun":false,"options":null}}`, uid, namespace, object)
}

// A reply is the answer to a request: an AdmissionReview or a Status.
type reply struct {
	code     int
	header   http.Header
	body     []byte
	response admission.AdmissionResponse
	message  string // message of the Status
	kind     string
}

func read(t testing.TB, r *http.Response) reply {
	t.Helper()
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		Kind     string
		Message  string
		Response admission.AdmissionResponse
	}
	if err := json.Unmarshal(body, &got); err != nil {
		t.Fatalf("the answer is not JSON: %v\n%s", err, body)
	}
	return reply{r.StatusCode, r.Header, body, got.Response, got.Message, got.Kind}
}

func post(t testing.TB, c *http.Client, url string, body []byte) reply {
	t.Helper()
	r, err := c.Post(url, "application/json", bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	return read(t, r)
}

// handled calls the handler with a body, without a network.
func handled(t testing.TB, w *Webhook, body []byte) reply {
	t.Helper()
	out := httptest.NewRecorder()
	r := httptest.NewRequest("POST", Path, bytes.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	w.ServeHTTP(out, r)
	return read(t, out.Result())
}

// reviewed returns the response to the review of an object, which must have the status 200.
func reviewed(t testing.TB, w *Webhook, namespace string, object []byte) admission.AdmissionResponse {
	t.Helper()
	got := handled(t, w, reviewOf("u1", namespace, object))
	if got.code != 200 {
		t.Fatalf("status %d: %s", got.code, got.body)
	}
	return got.response
}

// patchedBy reviews a pod and applies the patch with the library that the API server uses.
func patchedBy(t testing.TB, w *Webhook, object []byte) []byte {
	t.Helper()
	got := reviewed(t, w, "shop", object)
	if !got.Allowed || len(got.Patch) == 0 {
		t.Fatalf("not injected: %+v", got)
	}
	return applied(t, object, got.Patch)
}

func applied(t testing.TB, object, patch []byte) []byte {
	t.Helper()
	steps, err := jsonpatch.DecodePatch(patch)
	if err == nil {
		object, err = steps.Apply(object)
	}
	if err != nil {
		t.Fatalf("%v\n%s", err, patch)
	}
	return object
}
