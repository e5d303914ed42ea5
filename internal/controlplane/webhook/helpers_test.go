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
	"strconv"
	"strings"
	"testing"
	"time"

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

// serve is a webhook behind its own server; it returns the address.
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

// client trusts a bundle, as an API server does: one protocol, by the service's name.
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

// asked is what a review was answered.
type asked struct {
	code     int
	header   http.Header
	response response
	message  string // of a Status
	kind     string
}

func read(t testing.TB, code int, header http.Header, body []byte) asked {
	t.Helper()
	var got struct {
		answer
		Message string `json:"message"`
	}
	if err := json.Unmarshal(body, &got); err != nil {
		t.Fatalf("the answer is no JSON: %v\n%s", err, body)
	}
	return asked{code, header, got.Response, got.Message, got.Kind}
}

func post(t testing.TB, c *http.Client, url string, body []byte) asked {
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

// decided asks without a connection.
func decided(t testing.TB, w *Webhook, namespace string, object []byte) response {
	t.Helper()
	text, _, err := w.review(context.Background(), reviewOf("u", namespace, object), Path, nil)
	if err != nil {
		t.Fatal(err)
	}
	return read(t, 200, nil, text).response
}

// applied is a document after a JSON patch (RFC 6902), as the API server applies it: of
// add, remove, replace and move, each of which fails where there is nothing to do it to.
func applied(t testing.TB, object, patch []byte) []byte {
	t.Helper()
	if len(patch) == 0 {
		return object
	}
	var ops []inject.Operation
	var doc any
	if err := json.Unmarshal(patch, &ops); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(object, &doc); err != nil {
		t.Fatal(err)
	}
	for _, op := range ops {
		var err error
		if op.Op == "move" { // a remove and an add
			op.Value = at(t, doc, stepsOf(op.From))
			if doc, err = step(doc, stepsOf(op.From), inject.Operation{Op: "remove"}); err != nil {
				t.Fatalf("%s %s: %v", op.Op, op.From, err)
			}
			op.Op = "add"
		}
		if doc, err = step(doc, stepsOf(op.Path), op); err != nil {
			t.Fatalf("%s %s: %v", op.Op, op.Path, err)
		}
	}
	out, err := json.Marshal(doc)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func stepsOf(path string) []string {
	steps := strings.Split(path, "/")[1:]
	for i := range steps {
		steps[i] = strings.NewReplacer("~1", "/", "~0", "~").Replace(steps[i])
	}
	return steps
}

// at is what stands at a path.
func at(t testing.TB, doc any, path []string) any {
	t.Helper()
	for _, key := range path {
		switch d := doc.(type) {
		case map[string]any:
			doc = d[key]
		case []any:
			i, err := strconv.Atoi(key)
			if err != nil || i < 0 || i >= len(d) {
				t.Fatalf("%q: no element %s of %d", path, key, len(d))
			}
			doc = d[i]
		}
	}
	return doc
}

func step(doc any, path []string, op inject.Operation) (any, error) {
	last := len(path) == 1
	switch d := doc.(type) {
	case map[string]any:
		below, there := d[path[0]]
		switch {
		case !there && (!last || op.Op != "add"):
			return nil, fmt.Errorf("there is no %q", path[0])
		case !last:
			next, err := step(below, path[1:], op)
			d[path[0]] = next
			return d, err
		case op.Op == "remove":
			delete(d, path[0])
		default:
			d[path[0]] = op.Value
		}
		return d, nil
	case []any:
		i, err := strconv.Atoi(path[0])
		if path[0] == "-" {
			i, err = len(d), nil
		}
		switch {
		case err != nil || i < 0 || i > len(d) || i == len(d) && (!last || op.Op != "add"):
			return nil, fmt.Errorf("no element %q of %d", path[0], len(d))
		case !last:
			d[i], err = step(d[i], path[1:], op)
			return d, err
		case op.Op == "remove":
			return append(d[:i:i], d[i+1:]...), nil
		case op.Op == "replace":
			d[i] = op.Value
			return d, nil
		}
		return append(d[:i:i], append([]any{op.Value}, d[i:]...)...), nil
	}
	return nil, fmt.Errorf("%q is in no object", path[0])
}

// checkPod has the rules that an injected pod breaks when it is injected twice.
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

// exchange copies an authority's files over another's.
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
