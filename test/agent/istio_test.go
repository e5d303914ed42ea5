package agent

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/core/agent/identity"
	"outrider.dev/internal/core/controlplane/ca"
	"outrider.dev/test/agent/harness"
	"outrider.dev/test/process"
	"outrider.dev/test/secretserver"
)

// istioBin returns the path of a file of Istio: pilot-agent, pilot-discovery or the bootstrap template
// envoy_bootstrap.json. It skips the test if the file does not exist. docs/interop.md names the runs with
// these files.
func istioBin(t testing.TB, name string) string {
	t.Helper()
	dir := os.Getenv("ISTIO_BIN")
	if dir == "" {
		t.Skip("ISTIO_BIN is not set: a directory with Istio's binaries")
	}
	path := filepath.Join(dir, name)
	if _, err := os.Stat(path); err != nil {
		t.Fatal(err)
	}
	return path
}

// foreignVIP is the Service address of the app behind the Istio proxy.
const foreignVIP = "10.96.0.20"

// foreignPod makes a pod of the mesh in which the caller starts an Istio proxy.
func foreignPod(w *harness.World) *harness.Pod {
	w.T.Helper()
	p := w.Machine("foreign")
	w.Service("foreign", foreignVIP, "foreign", ports...)
	w.Manifest("pod-foreign", fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: foreign, namespace: %s, labels: {app: foreign, security.istio.io/tlsMode: istio}}
spec: {serviceAccountName: foreign, containers: [{name: app, image: x}, {name: istio-proxy, image: x}]}
status: {podIP: "%s"}
`, harness.Namespace, p.Address))
	p.Token = w.Token(harness.Namespace, "foreign")
	p.Capture()
	app(p)
	return p
}

// An istio is the means by which pilot-agent proves its identity: a token or certificates.
type istio struct {
	token        bool
	certificates string // directory, relative to the agent's working directory
	metadata     map[string]any
}

// pilotAgent starts Istio's agent with Outrider's Envoy, and waits until it is ready. Paths are
// relative to the agent's working directory.
func pilotAgent(p *harness.Pod, by istio, env ...string) *process.Process {
	t := p.World.T
	t.Helper()
	agent, template := istioBin(t, "pilot-agent"), istioBin(t, "envoy_bootstrap.json")
	dir := filepath.Join(p.Dir, "istio")
	binary := filepath.Join(p.World.Dir, "pilot-agent")
	for from, to := range map[string]string{agent: binary, template: filepath.Join(dir, "var/lib/istio/envoy/envoy_bootstrap_tmpl.json")} {
		copyFile(t, from, to, 0o755)
	}
	copyFile(t, p.World.Roots(), filepath.Join(dir, "var/run/secrets/istio/root-cert.pem"), 0o644)
	if by.token {
		copyFile(t, p.Token, filepath.Join(dir, "var/run/secrets/tokens/istio-token"), 0o644)
	}
	if by.certificates != "" {
		certificates := filepath.Join(dir, by.certificates)
		copyFile(t, p.World.Roots(), filepath.Join(certificates, "root-cert.pem"), 0o644)
		chain, key := certificateOf(p)
		for name, raw := range map[string][]byte{"cert-chain.pem": chain, "key.pem": key} {
			if err := os.WriteFile(filepath.Join(certificates, name), raw, 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := os.MkdirAll(filepath.Join(dir, "etc/istio/proxy"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		if err == nil {
			err = os.Lchown(path, int(p.User), int(p.User))
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	config, err := json.Marshal(map[string]any{"discoveryAddress": p.Plane, "binaryPath": p.Envoy, "proxyMetadata": by.metadata})
	if err != nil {
		t.Fatal(err)
	}
	env = append([]string{"POD_NAME=" + p.Name, "POD_NAMESPACE=" + harness.Namespace, "SERVICE_ACCOUNT=" + p.Name, "INSTANCE_IP=" + p.Address.String(),
		"PROXY_CONFIG=" + string(config), "ISTIOD_SAN=" + harness.PlaneName, "ISTIO_META_CLUSTER_ID=Kubernetes", "ISTIO_META_WORKLOAD_NAME=" + p.Name}, env...)
	// unshare and the shell make Envoy exit with the agent, even if the agent is killed.
	user := fmt.Sprint(p.User)
	command := append([]string{"unshare", "--pid", "--fork", "--kill-child", "sh", "-c", `"$@" & wait`, "sh",
		"setpriv", "--reuid", user, "--regid", user, "--clear-groups", "env", "-C", dir, "-i"}, env...)
	as := *p
	as.User = 0
	out := as.Program("pilot-agent", append(command, binary, "proxy", "sidecar", "--concurrency", "1")...)
	process.Eventually(t, "pilot-agent is ready", func() bool {
		c := harness.NewClient(p.Namespace, harness.AppUser)
		defer c.Close()
		return c.Get("http://127.0.0.1:15021/healthz/ready").Status == 200
	}, out)
	return out
}

func copyFile(t testing.TB, from, to string, mode os.FileMode) {
	t.Helper()
	raw, err := os.ReadFile(from)
	if err == nil {
		err = os.MkdirAll(filepath.Dir(to), 0o755)
	}
	if err == nil {
		err = os.WriteFile(to, raw, mode)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// certificateOf signs a certificate for a pod, as PEM.
func certificateOf(p *harness.Pod) (chain, key []byte) {
	t := p.World.T
	t.Helper()
	authority, err := ca.NewAuthority(t.Context(), ca.AuthorityOptions{Store: ca.Directory(filepath.Join(p.World.State(), "ca")), TrustDomain: "cluster.local"})
	if err != nil {
		t.Fatal(err)
	}
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	signed, err := authority.Sign(private.Public(), ca.Identity{TrustDomain: "cluster.local", Namespace: harness.Namespace, ServiceAccount: p.Name}, 0)
	if err != nil {
		t.Fatal(err)
	}
	return []byte(strings.Join(signed.Chain, "")), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
}

// An Istio proxy and an Outrider proxy call each other over mutual TLS, and the Istio proxy reaches addresses
// outside the mesh. On machines without Istio, an Envoy whose bootstrap has the same form stands in for
// pilot-agent ("twin"): it sends a token on each stream and has no client certificate, it reads the secrets "default"
// and "ROOTCA" from a socket, and it has none of Outrider's own clusters.
func TestIstioProxy(t *testing.T) {
	t.Parallel()
	mounted := map[string]any{}
	for name, file := range map[string]string{"CERT_CHAIN": "cert-chain", "KEY": "key", "ROOT_CERT": "root-cert"} {
		mounted["ISTIO_META_TLS_CLIENT_"+name] = "./etc/certs/" + file + ".pem"
	}
	tests := map[string]func(*harness.Pod) *process.Process{
		"twin":               twin,
		"pilot-agent, token": func(p *harness.Pod) *process.Process { return pilotAgent(p, istio{token: true}) },
		"pilot-agent, PROV_CERT": func(p *harness.Pod) *process.Process {
			return pilotAgent(p, istio{certificates: "prov"}, "PROV_CERT=./prov")
		},
		"pilot-agent, FILE_MOUNTED_CERTS": func(p *harness.Pod) *process.Process {
			return pilotAgent(p, istio{certificates: "etc/certs", metadata: mounted}, "FILE_MOUNTED_CERTS=true")
		},
		"pilot-agent, token, DNS_CAPTURE": func(p *harness.Pod) *process.Process {
			return pilotAgent(p, istio{token: true}, "ISTIO_META_DNS_CAPTURE=true")
		},
	}
	for name, start := range tests {
		t.Run(name, func(t *testing.T) {
			w := harness.New(t)
			w.Service("server", vip, "server", ports...)
			w.Serve("--max-connection-age", "2s") // ends a stream with a token after 2 s, and one with a certificate after 12 s
			outsider, ours := w.Machine("outsider"), w.Pod("server")
			app(outsider)
			app(ours)
			foreign := foreignPod(w)
			w.Known(2, 2)
			own := ours.Agent()
			own.Ready()
			other := start(foreign)

			is := func(what string, from *harness.Pod, url, want string) {
				t.Helper()
				var last error
				process.Eventually(t, what, func() bool {
					err := fresh(from, url, want)()
					if err != nil && (last == nil || err.Error() != last.Error()) {
						t.Logf("%s: %v", what, err)
					}
					last = err
					return err == nil
				}, w.Plane(), own, other)
			}
			both := func(mode string) {
				t.Helper()
				is(mode+": Istio's to ours", foreign, "http://"+vip+"/", "server HTTP/1.1")
				is(mode+": ours to Istio's", ours, "http://"+foreignVIP+"/", "foreign HTTP/1.1")
				for to, pods := range map[string][2]*harness.Pod{vip: {foreign, ours}, foreignVIP: {ours, foreign}} { // any order: each pair is checked
					// A busy client may send its request more than 200 ms after it has connected. The proxy
					// then treats the connection as TCP, and adds no header to the request.
					want := "URI=spiffe://cluster.local/ns/shop/sa/" + pods[0].Name
					process.Eventually(t, fmt.Sprintf("%s: %s sees the client %s", mode, pods[1].Name, want), func() bool {
						c := harness.NewClient(pods[0].Namespace, harness.AppUser)
						defer c.Close()
						return strings.Contains(c.Get("http://"+to+"/peer").Body, want)
					}, w.Plane(), own, other)
				}
			}
			both("PERMISSIVE")
			direct := "http://" + foreign.Address.String() + "/"
			is("PERMISSIVE: an outsider", outsider, direct, "foreign HTTP/1.1")
			is("an outside address", foreign, "http://"+outsider.Address.String()+"/", "outsider HTTP/1.1")

			w.Manifest("strict", strict)
			process.Eventually(t, "an outsider is refused", func() bool { return fresh(outsider, direct, "foreign HTTP/1.1")() != nil }, w.Plane(), own, other)
			both("STRICT")
			is("an outside address", foreign, "http://"+outsider.Address.String()+"/", "outsider HTTP/1.1")

			// Make connections while configuration streams end and are opened again.
			out := harness.NewLoad(1, pause, fresh(foreign, "http://"+vip+"/", "server HTTP/1.1"))
			in := harness.NewLoad(1, pause, fresh(ours, "http://"+foreignVIP+"/", "foreign HTTP/1.1"))
			const connected = `"msg":"proxy connected","proxy":"sidecar~`
			from := connected + foreign.Address.String() + "~foreign.shop~"
			before := strings.Count(w.Plane().Log(), from)
			process.Eventually(t, "the next stream of the foreign proxy", func() bool { return strings.Count(w.Plane().Log(), from) > before }, w.Plane(), own, other)
			for what, load := range map[string]*harness.Load{"out": out, "in": in} { // any order: each load is checked
				if made, _, failed := load.Stop(); made == 0 || len(failed) > 0 {
					t.Errorf("%s: %d calls, failed %v", what, made, failed)
				}
			}
			if proxies := w.Proxies(); strings.Contains(proxies, `"reason"`) || strings.Contains(w.Plane().Log(), "rejected its configuration") {
				t.Errorf("%s; want no rejection", proxies)
			}
		})
	}
}

// twin starts Envoy with a bootstrap of the form that Istio's agent writes, without that agent.
func twin(p *harness.Pod) *process.Process {
	t := p.World.T
	t.Helper()
	chain, key := certificateOf(p)
	roots, err := os.ReadFile(p.World.Roots())
	if err != nil {
		t.Fatal(err)
	}
	token, err := os.ReadFile(p.Token)
	if err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(p.Dir, "sds")
	secrets := secretserver.Serve(t, socket, func(r identity.Rejection) { t.Errorf("%v: %s", r.Names, r.Reason) })
	if err := os.Chown(socket, int(p.User), int(p.User)); err != nil {
		t.Fatal(err)
	}
	secrets.Set(contract.IstioWorkloadSecret, identity.CertificateSecret(chain, key))
	secrets.Set(contract.IstioRootsSecret, identity.RootsSecret(roots))
	host, port, _ := strings.Cut(p.Plane, ":")
	config := filepath.Join(p.Dir, "twin.json")
	text := fmt.Sprintf(`{
"node": {"id": "sidecar~%[1]s~foreign.shop~shop.svc.cluster.local", "cluster": "foreign.shop", "metadata": {"ISTIO_VERSION": "1.32", "NAMESPACE": "shop", "SERVICE_ACCOUNT": "foreign", "INSTANCE_IPS": "%[1]s"}},
"layered_runtime": {"layers": [{"name": "global", "static_layer": {"re2.max_program_size.error_level": 32768}}]},
"bootstrap_extensions": [{"name": "envoy.bootstrap.internal_listener", "typed_config": {"@type": "type.googleapis.com/envoy.extensions.bootstrap.internal_listener.v3.InternalListener"}}],
"dynamic_resources": {
  "lds_config": {"ads": {}, "initial_fetch_timeout": "0s", "resource_api_version": "V3"},
  "cds_config": {"ads": {}, "initial_fetch_timeout": "0s", "resource_api_version": "V3"},
  "ads_config": {"api_type": "DELTA_GRPC", "set_node_on_first_message_only": true, "transport_api_version": "V3", "grpc_services": [
    {"envoy_grpc": {"cluster_name": "xds-grpc"}, "initial_metadata": [{"key": "authorization", "value": "Bearer %[2]s"}, {"key": "clusterid", "value": "Kubernetes"}]}]}},
"static_resources": {"clusters": [
  {"name": "sds-grpc", "type": "STATIC", "connect_timeout": "1s", "typed_extension_protocol_options": %[7]s,
   "load_assignment": {"cluster_name": "sds-grpc", "endpoints": [{"lb_endpoints": [{"endpoint": {"address": {"pipe": {"path": "%[3]s"}}}}]}]}},
  {"name": "xds-grpc", "type": "STATIC", "connect_timeout": "1s", "max_requests_per_connection": 1, "typed_extension_protocol_options": %[7]s,
   "load_assignment": {"cluster_name": "xds-grpc", "endpoints": [{"lb_endpoints": [{"endpoint": {"address": {"socket_address": {"address": "%[4]s", "port_value": %[5]s}}}}]}]},
   "transport_socket": {"name": "envoy.transport_sockets.tls", "typed_config": {"@type": "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext",
     "sni": "outriderd.test", "common_tls_context": {"alpn_protocols": ["h2"], "validation_context": {"trusted_ca": {"filename": "%[6]s"}}}}}}
]}}`, p.Address, strings.TrimSpace(string(token)), socket, host, port, p.World.Roots(),
		`{"envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {"@type": "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions", "explicit_http_config": {"http2_protocol_options": {}}}}`)
	if err := os.WriteFile(config, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return p.Program("envoy", p.Envoy, "-c", config, "--concurrency", "1", "--use-dynamic-base-id")
}
