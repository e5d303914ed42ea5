package agent

import (
	"crypto/tls"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"outrider.dev/internal/core/controlplane/ca"
	"outrider.dev/test/agent/harness"
	"outrider.dev/test/process"
)

const istiodName = "istiod.istio-system.svc"

// An agent that is configured with istiod's address exits with an error before it sends its token: its Envoy
// lacks Istio's filters and would never be ready. On machines without Istio, a server stands in for istiod
// ("twin"). Its certificate is signed by the same root and has istiod's names.
func TestAgentAtIstiod(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		start func(*testing.T, *harness.Pod) (tokens func() int64)
		env   []string
	}{
		"twin":                        {istiodTwin, nil},
		"istiod":                      {istiod, nil},
		"certificates from elsewhere": {istiodTwin, []string{"CA_ADDR=" + harness.Discovery}},
	} {
		t.Run(name, func(t *testing.T) {
			w := harness.New(t)
			w.Serve("--name", istiodName) // creates the authority, and signs istiod's certificate in the last case
			server := w.Machine("istiod")
			server.User = 0 // so that it can read the authority's key
			tokens := tt.start(t, server)
			p := w.Pod("app")
			p.Plane, p.Env = server.Address.String()+":15012", append(tt.env, "ISTIOD_SAN="+istiodName)
			got := p.Agent().Unready("identity-refused", "and no outriderd: outrider-agent takes its configuration from outriderd only; with istiod use Istio's proxy")
			if !strings.Contains(got.Message, istiodName) {
				t.Errorf("%s; want the name of what answers", got.Message)
			}
			if n := tokens(); n != 0 {
				t.Errorf("%d tokens are sent; want none", n)
			}
		})
	}
}

func istiodTwin(t *testing.T, p *harness.Pod) (tokens func() int64) {
	authority, err := ca.NewAuthority(t.Context(), ca.AuthorityOptions{Store: ca.Directory(filepath.Join(p.World.State(), "ca"))})
	if err != nil {
		t.Fatal(err)
	}
	serving, err := authority.NewServing(ca.Identity{TrustDomain: "cluster.local", Namespace: "istio-system", ServiceAccount: "istiod"}, []string{istiodName}, 0)
	if err != nil {
		t.Fatal(err)
	}
	var sent atomic.Int64
	l := tls.NewListener(harness.Listen(p.World, p.Namespace, 0, ":15012"), serving.TLS())
	s := &http.Server{Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "" {
			sent.Add(1)
		}
	})}
	go s.Serve(l)
	t.Cleanup(func() { s.Close() })
	return sent.Load
}

// istiod runs Istio's control plane, with an empty cluster.
func istiod(t *testing.T, p *harness.Pod) (tokens func() int64) {
	binary := istioBin(t, "pilot-discovery")
	api := &emptyCluster{}
	l := harness.Listen(p.World, p.Namespace, 0, "127.0.0.1:8443")
	s := &http.Server{Handler: api}
	go s.Serve(l)
	t.Cleanup(func() { s.Close() })

	authority := filepath.Join(p.World.State(), "ca")
	cacerts := filepath.Join(p.Dir, "cacerts")
	for file, from := range map[string]string{"root-cert.pem": "root-cert.pem", "ca-cert.pem": "ca-cert.pem", "ca-key.pem": "ca-key.pem", "cert-chain.pem": "ca-cert.pem"} {
		copyFile(t, filepath.Join(authority, from), filepath.Join(cacerts, file), 0o600)
	}
	config, err := json.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "Config", "current-context": "x",
		"clusters": []any{map[string]any{"name": "x", "cluster": map[string]any{"server": "http://127.0.0.1:8443"}}},
		"contexts": []any{map[string]any{"name": "x", "context": map[string]any{"cluster": "x", "user": "x"}}},
		"users":    []any{map[string]any{"name": "x", "user": map[string]any{}}},
	})
	if err == nil {
		err = os.WriteFile(filepath.Join(p.Dir, "kubeconfig"), config, 0o600)
	}
	// Let Istio read its configuration from a folder instead of the cluster.
	folder := filepath.Join(p.Dir, "mesh")
	if err == nil {
		err = os.Mkdir(folder, 0o755)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(folder, "server.yaml"), []byte(`apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: server, namespace: shop}
spec: {hosts: [server.shop.svc.cluster.local], addresses: [10.96.0.10], ports: [{number: 80, name: http, protocol: HTTP}], resolution: STATIC, endpoints: [{address: 10.244.9.9}]}
`), 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	server := p.Program("istiod", "env", "-i", "-C", p.Dir, "POD_NAMESPACE=istio-system", "POD_NAME=istiod", "ROOT_CA_DIR="+cacerts,
		binary, "discovery", "--configDir", folder, "--kubeconfig", filepath.Join(p.Dir, "kubeconfig"))
	process.Eventually(t, "istiod is ready", func() bool {
		c := harness.NewClient(p.Namespace, 0)
		defer c.Close()
		return c.Get("http://127.0.0.1:8080/ready").Status == 200
	}, server)
	return api.reviews.Load
}

// An emptyCluster is an API server without objects. It implements only the requests that istiod needs to start.
type emptyCluster struct{ reviews atomic.Int64 }

// kinds maps resource names to the list kinds that istiod decodes.
var kinds = map[string]string{
	"endpointslices": "EndpointSlice", "ingresses": "Ingress", "ingressclasses": "IngressClass", "leases": "Lease", "customresourcedefinitions": "CustomResourceDefinition",
	"mutatingwebhookconfigurations": "MutatingWebhookConfiguration", "validatingwebhookconfigurations": "ValidatingWebhookConfiguration",
}

func (e *emptyCluster) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	version := "v1"
	if path[0] == "apis" && len(path) > 2 {
		version = path[1] + "/" + path[2]
	}
	answer := func(status int, body any) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		json.NewEncoder(w).Encode(body)
	}
	resource := path[len(path)-1]
	switch {
	case resource == "tokenreviews":
		e.reviews.Add(1)
		answer(http.StatusCreated, map[string]any{"kind": "TokenReview", "apiVersion": version, "status": map[string]any{}})
	case r.Method != http.MethodGet: // answer a write with the object that was written
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusCreated)
		io.Copy(w, r.Body)
	case r.URL.Path == "/version":
		answer(http.StatusOK, map[string]any{"major": "1", "minor": "34", "gitVersion": "v1.34.4"})
	case r.URL.Query().Get("sendInitialEvents") == "true": // refused, so that the client sends a list request instead
		answer(http.StatusUnprocessableEntity, map[string]any{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Invalid", "code": 422})
	case r.URL.Query().Has("watch"):
		w.Header().Set("Content-Type", "application/json")
		http.NewResponseController(w).Flush()
		<-r.Context().Done()
	case kinds[resource] != "" || path[0] == "api" && (len(path) == 3 || len(path) == 5):
		answer(http.StatusOK, map[string]any{"kind": kinds[resource] + "List", "apiVersion": version, "metadata": map[string]any{"resourceVersion": "1"}, "items": []any{}})
	case len(path) < 4:
		answer(http.StatusOK, map[string]any{"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": strings.Join(path[1:], "/"), "resources": []any{}})
	default:
		answer(http.StatusNotFound, map[string]any{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404})
	}
}
