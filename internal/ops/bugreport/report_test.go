package bugreport

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"

	"outrider.dev/internal/base/cli"
	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/ops/kubeclient"
)

// Secrets that are recognised by their form. They must not appear in any file of a report.
const (
	jwt     = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJwbGFudGVkIn0.c2lnbmF0dXJlLXBsYW50ZWQ"
	pemBody = "MIIEplantedprivatekeybodyAAAA"
	pem     = "-----BEGIN RSA PRIVATE KEY-----\n" + pemBody + "\n-----END RSA PRIVATE KEY-----"
)

// planted lists parts of all secrets in the test data. They must not appear in a report.
var planted = []string{
	"planted-env", "planted-ref", "planted-annotation", "planted-arg", "planted-flag", "planted-header", "planted-values", "planted-list", "planted-secret-data",
	"planted-event", "planted-url", "planted-basic", "planted-log", "planted-json", "planted-quoted", "planted-cookie", "planted-served", "cGxhbnRlZA", "eyJzdWIiOiJwbGFudGVkIn0", "MIIEplanted", "AKIAPLANTEDPLANTED12",
	"MIIEcutatthebeginning",
}

var log = strings.Join([]string{
	"2026-01-01T00:00:00Z serving on :8080", "token was " + jwt, pem, "2026-01-01T00:00:00.1Z MIIEcutatthebeginning/+AA\n2026-01-01T00:00:00.1Z MIIEcutatthebeginning==\n2026-01-01T00:00:00.1Z -----END PRIVATE KEY-----",
	"> Authorization: Basic planted-basic", `'authorization', 'Bearer planted-basic'`, `{"headers":{"Cookie":"sid=planted-cookie"},"password":"planted-json","level":"info"}`,
	"connecting to postgres://shop:planted-url@db:5432/shop", "DB_PASSWORD=planted-log", "api_key='planted-quoted part two'", "client-secret: planted-log", "key " + "AKIAPLANTEDPLANTED12",
	"the variable was planted-env-value", "key=" + strings.ReplaceAll(pem, "\n", `\n`), "the last line",
}, "\n") + "\n"

func pod(namespace, name string, made time.Time) *corev1.Pod {
	ran := corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, CreationTimestamp: metav1.NewTime(made), Labels: map[string]string{}, Annotations: map[string]string{
			"kubectl.kubernetes.io/last-applied-configuration": `{"spec":{"containers":[{"name":"app","env":[{"name":"DB_PASSWORD","value":"planted-annotation"}]}]}}`,
			"vault/token": "planted-annotation", "note": "jdbc:postgresql://u:planted-annotation@db/x", "team": "kept-annotation",
		}},
		Spec: corev1.PodSpec{Containers: []corev1.Container{
			{Name: "app", Image: "kept-image", Command: []string{"sh", "-c", "PASSWORD=planted-arg exec app"}, Args: []string{"--password", "planted-flag", "--token=planted-flag", "kept-arg"},
				Env: []corev1.EnvVar{
					{Name: "DB_PASSWORD", Value: "planted-env-value"}, {Name: "SIGNING_KEY", Value: "planted-env"}, {Name: "TLS", Value: pem}, {Name: "URL", Value: "amqp://u:planted-env@mq"}, {Name: "KEPT", Value: "kept-env"},
					{Name: "REFERS", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: "kept-secret-name"}, Key: "password"}}},
				},
				LivenessProbe: &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{HTTPHeaders: []corev1.HTTPHeader{{Name: "Authorization", Value: "Bearer planted-header"}}}}},
			},
			{Name: contract.ProxyContainer, Image: "proxy"},
		}, Volumes: []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "kept-volume-secret"}}}}},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: []corev1.ContainerStatus{
			{Name: "app", State: ran, LastTerminationState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}}}, {Name: contract.ProxyContainer, State: ran},
		}},
	}
}

// world returns options for a cluster with secrets in all places that a report reads.
func world(t *testing.T) Options {
	t.Helper()
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	replica := pod("outrider-system", "outriderd-1", at)
	replica.Labels["app"] = "outriderd"
	replica.Spec.Containers = replica.Spec.Containers[:1]
	core := fake.NewClientset(replica, pod("shop", "old", at), pod("shop", "new", at.Add(time.Hour)), pod("pay", "newest", at.Add(2*time.Hour)),
		&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "plain"}},
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "s"}, Data: map[string][]byte{"password": []byte("planted-secret-data")}},
		&corev1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "e"}, Message: "pulling with password=planted-event failed", LastTimestamp: metav1.NewTime(at)})
	kinds := map[schema.GroupVersionResource]string{}
	for _, l := range listings {
		kinds[l.resource] = "List"
	}
	object := func(apiVersion, kind, namespace, name string, more map[string]any) *unstructured.Unstructured {
		u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": apiVersion, "kind": kind}}
		for key, v := range more {
			u.Object[key] = v
		}
		u.SetNamespace(namespace)
		u.SetName(name)
		u.SetLabels(map[string]string{"app": "outriderd"})
		return u
	}
	dynamic := dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), kinds,
		object("apps/v1", "Deployment", "outrider-system", "outriderd", map[string]any{"spec": map[string]any{"template": map[string]any{"spec": map[string]any{"containers": []any{
			map[string]any{"name": "d", "env": []any{map[string]any{"name": "TOKEN", "value": "planted-env"}}}}}}}}),
		object("v1", "Namespace", "", "shop", map[string]any{"spec": map[string]any{"finalizers": []any{"x"}}}),
		object("v1", "Node", "", "n1", map[string]any{"status": map[string]any{"nodeInfo": map[string]any{"kubeletVersion": "v1.34.4"}, "addresses": []any{}}}),
		object("apiextensions.k8s.io/v1", "CustomResourceDefinition", "", "x.security.istio.io", map[string]any{"spec": map[string]any{"group": "security.istio.io", "versions": []any{map[string]any{"name": "v1", "schema": map[string]any{"big": "schema"}}}}}),
		object("apiextensions.k8s.io/v1", "CustomResourceDefinition", "", "other.example", map[string]any{"spec": map[string]any{"group": "example"}}))
	return Options{
		Client: &kubeclient.Client{Core: core, Dynamic: dynamic, Progress: cli.NewProgress(io.Discard)}, ControlPlane: "outrider-system", Version: "v1", now: at,
		Checks: func(context.Context) (any, error) { return []map[string]string{{"id": "webhook", "result": "ok"}}, nil },
		Values: func(context.Context) (map[string]any, error) {
			return map[string]any{"global": map[string]any{"hub": "kept-hub", "imagePullSecrets": []any{"kept-pull-secret"}}, "registry": map[string]any{"password": "planted-values", "tokens": []any{"planted-list"}}, "authority": map[string]any{"secretName": "kept-authority"}}, nil
		},
		logs: func(_ context.Context, _, pod string, o *corev1.PodLogOptions) (io.ReadCloser, error) {
			if pod == "newest" && o.Previous {
				return nil, errors.New("previous terminated container not found")
			}
			return io.NopCloser(strings.NewReader(log)), nil
		},
		get: func(_ context.Context, _, at string) ([]byte, error) {
			switch {
			case at == "/debug/problems":
				return nil, errors.New("the replica answers 503")
			case at == "/debug/proxies":
				return []byte(`[{"id":"sidecar~10.0.0.1~new.shop~shop.svc.cluster.local","namespace":"shop","token":"planted-served"}]`), nil
			case strings.HasPrefix(at, "/debug/proxy?"):
				return []byte(`[{"type":"Cluster","name":"kept-cluster","version":"1","body":{"x":"planted-served"}}]`), nil
			}
			return []byte(`{"version":"v1"}`), nil
		},
	}
}

func made(t *testing.T, o Options) map[string]string {
	t.Helper()
	var b bytes.Buffer
	if err := Write(t.Context(), &b, o); err != nil {
		t.Fatal(err)
	}
	return unpacked(t, &b)
}

func unpacked(t *testing.T, from io.Reader) map[string]string {
	t.Helper()
	z, err := gzip.NewReader(from)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if err == io.EOF {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		name, inFolder := strings.CutPrefix(h.Name, Folder+"/")
		if _, twice := out[name]; twice || !inFolder || h.Mode != 0o600 {
			t.Errorf("file %s, mode %o, twice %v", h.Name, h.Mode, twice)
		}
		out[name] = string(text)
	}
}

func TestNoSecretIsInAReport(t *testing.T) {
	all := made(t, world(t))
	for name, text := range all {
		for _, secret := range planted {
			if strings.Contains(text, secret) {
				i := strings.Index(text, secret)
				t.Errorf("%s has %s: %q", name, secret, text[max(0, i-60):min(len(text), i+60)])
			}
		}
	}
	for name, kept := range map[string][]string{
		"pods/shop/new/pod.yaml":                          {"kept-annotation", "kept-image", "kept-arg", "kept-env", "kept-secret-name", "kept-volume-secret", "Authorization"},
		"pods/shop/new/app.log":                           {"serving on :8080", "the last line", `"level":"info"`, "@db:5432/shop"},
		"control-plane/values.yaml":                       {"kept-hub", "kept-pull-secret", "kept-authority"},
		"control-plane/deployments.yaml":                  {"outriderd"},
		"cluster/nodes.yaml":                              {"v1.34.4", "n1"},
		"cluster/namespaces.yaml":                         {"shop"},
		"check.json":                                      {"webhook"},
		"version.json":                                    {`"client": "v1"`, "gitVersion"},
		"events/all-namespaces.yaml":                      {"pulling with"},
		"control-plane/pods/outriderd-1/resources/1.json": {"kept-cluster"},
	} {
		for _, k := range kept {
			if !strings.Contains(all[name], k) {
				t.Errorf("%s has no %s:\n%s", name, k, all[name])
			}
		}
	}
	if strings.Contains(all["cluster/customresourcedefinitions.yaml"], "other.example") || strings.Contains(all["cluster/customresourcedefinitions.yaml"], "big") {
		t.Errorf("definitions of others, or schemas:\n%s", all["cluster/customresourcedefinitions.yaml"])
	}
}

// The index names each file, and errors.txt has a line for each read that failed.
func TestIndexAndErrors(t *testing.T) {
	o := world(t)
	o.Pods = 2
	all := made(t, o)
	var index Index
	if err := json.Unmarshal([]byte(all["index.json"]), &index); err != nil {
		t.Fatal(err)
	}
	var named, is []string
	for _, f := range index.Files {
		named = append(named, f.Path)
		if f.Kind == "" || f.Kind == Log && (f.Pod == "" || f.Container == "") {
			t.Errorf("%+v", f)
		}
	}
	for name := range all {
		if name != "index.json" {
			is = append(is, name)
		}
	}
	slices.Sort(named)
	slices.Sort(is)
	if !slices.Equal(named, is) {
		t.Errorf("the index has\n%q\nthe archive\n%q", named, is)
	}
	if want := []string{"pods with a proxy: the newest 2 of 3 are there"}; !slices.Equal(index.LeftOut, want) {
		t.Errorf("left out: %q", index.LeftOut)
	}
	for _, want := range []string{"outriderd-1/debug/problems: the replica answers 503\n", "log of pay/newest, app.previous.log: previous terminated container not found\n"} {
		if !strings.Contains(all["errors.txt"], want) {
			t.Errorf("errors.txt has no %q:\n%s", want, all["errors.txt"])
		}
	}
	if all["pods/pay/newest/app.log"] == "" || all["pods/shop/old/pod.yaml"] != "" || all["pods/shop/plain/pod.yaml"] != "" {
		t.Errorf("pods: %q", is)
	}
}

func TestSizesAreBounded(t *testing.T) {
	o := world(t)
	o.Log = 2000
	o.logs = func(context.Context, string, string, *corev1.PodLogOptions) (io.ReadCloser, error) {
		return io.NopCloser(strings.NewReader(strings.Repeat("a line\n", 1<<16) + "the last line\n")), nil
	}
	all := made(t, o)
	if text := all["pods/shop/new/app.log"]; len(text) > 2000 || !strings.HasPrefix(text, "a line\n") || !strings.HasSuffix(text, "the last line\n") {
		t.Errorf("a log of %d bytes: %q", len(text), text[:20])
	}
	o.Size = 5000
	if all = made(t, o); !strings.Contains(all["index.json"], "the report would have more than") {
		t.Errorf("nothing is left out: %s", all["index.json"])
	}
	text, err := lastOf(strings.NewReader("password="+strings.Repeat("x", 1<<20)+"\nend"), 1000)
	if err != nil || string(text) != "end" {
		t.Errorf("a line that was cut: %q, %v", text, err)
	}
}

// If writing a report is interrupted, its incomplete file is removed.
func TestAnInterruptedReportIsRemoved(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "report.tar.gz")
	ctx, cancel := context.WithCancel(t.Context())
	o := world(t)
	o.Checks = func(context.Context) (any, error) { cancel(); return nil, ctx.Err() }
	if err := Save(name, func(w io.Writer) error { return Write(ctx, w, o) }); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left %v, %v", left, err)
	}
	if err := Save(name, func(w io.Writer) error { return Write(t.Context(), w, world(t)) }); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if all := unpacked(t, f); all["index.json"] == "" {
		t.Error("no index")
	}
	if err := Save(filepath.Join(dir, "none", "x"), func(io.Writer) error { return nil }); err == nil {
		t.Error("no error of a folder that does not exist")
	}
}

// If a read takes too long, the report contains an error in its place, and everything else.
func TestTimeIsBounded(t *testing.T) {
	o := world(t)
	o.Timeout = time.Nanosecond
	o.Checks = func(ctx context.Context) (any, error) { <-ctx.Done(); return nil, ctx.Err() }
	hangs := make(chan struct{})
	t.Cleanup(func() { close(hangs) })
	o.Values = func(context.Context) (map[string]any, error) { <-hangs; return nil, nil } // ignores the context, as Helm does
	o.logs = func(ctx context.Context, _, _ string, _ *corev1.PodLogOptions) (io.ReadCloser, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	all := made(t, o)
	if !strings.Contains(all["errors.txt"], "checks: context deadline exceeded") || !strings.Contains(all["errors.txt"], "the release's values: context deadline exceeded") || all["version.json"] == "" {
		t.Errorf("errors:\n%s", all["errors.txt"])
	}
}
