package mesh

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/core/agent/envoy"
	"outrider.dev/internal/core/capture"
	"outrider.dev/internal/core/capture/setup"
	"outrider.dev/internal/core/controlplane/ca"
	"outrider.dev/internal/core/mesh"
	"outrider.dev/internal/core/mesh/build"
	"outrider.dev/internal/core/xds"
	"outrider.dev/internal/core/xds/resource"
	"outrider.dev/test/ns"
	"outrider.dev/test/process"
)

const (
	proxyUser = 1337
	appUser   = 1000

	namespace = "shop"
	outside   = "203.0.113.1" // an address in no network of the mesh
	resolver  = "10.0.0.53"   // name server of the proxies; only TestNameThatIsNotResolved listens there
)

// TestMain runs more tests in parallel than there are processors, because they mostly wait.
func TestMain(m *testing.M) {
	flag.Set("test.parallel", "6") // a value on the command line overrides this
	os.Exit(m.Run())
}

// A world is a network with pods and a control plane.
type world struct {
	t      testing.TB
	router *ns.Namespace
	dir    string // readable by the proxy's user
	ca     *ca.Authority
	pods   int
	envoys []process.Peer

	proxies []*pod       // pods with an Envoy
	excused atomic.Int64 // number of requests that were retried, see retrying

	source  *source
	server  *grpc.Server
	toServe *xds.Server
	line    line // to the control plane
}

// A source is the mesh that the control plane serves. Tests change it.
type source struct {
	mesh.Feed
	mu      sync.Mutex
	builder *build.Builder
}

func (s *source) change(f func(b *build.Builder)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f(s.builder)
	s.Publish(s.builder.Mesh(), nil)
}

func (s *source) set(parts ...mesh.Part) { s.change(func(b *build.Builder) { b.Set(parts...) }) }

func newWorld(t testing.TB, change ...func(*resource.Source)) *world {
	t.Helper()
	return newWorldOf(t, mesh.Config{}, change...)
}

func newWorldOf(t testing.TB, config mesh.Config, change ...func(*resource.Source)) *world {
	t.Helper()
	envoyBinary(t)
	w := &world{t: t, router: ns.New(t)}
	var err error
	if w.dir, err = os.MkdirTemp("/tmp", "mesh"); err == nil {
		err = os.Chmod(w.dir, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(w.dir) })
	if w.ca, err = ca.NewAuthority(t.Context(), ca.AuthorityOptions{Store: ca.Directory(t.TempDir()), TrustDomain: mesh.DefaultTrustDomain}); err != nil {
		t.Fatal(err)
	}
	w.router.IP("addr", "add", outside+"/32", "dev", "lo")
	w.router.IP("addr", "add", resolver+"/32", "dev", "lo")
	w.router.IP("route", "add", "unreachable", "10.244.255.0/24")
	w.router.Do(func() {
		for key, value := range map[string]string{
			"ipv4/ip_forward": "1", "ipv6/conf/all/forwarding": "1",
			"ipv4/icmp_ratelimit": "0", // without a rate limit each connection to an unreachable address fails at once
		} { // any order: independent settings
			if err := os.WriteFile("/proc/sys/net/"+key, []byte(value), 0); err != nil {
				t.Error(err)
			}
		}
	})
	w.source = &source{builder: build.New(config)}
	w.source.set()
	resources := resource.New(w.source)
	resources.FirstUseTimeout = 10 * time.Second // a second is too short on a busy machine
	for _, f := range change {
		f(resources)
	}
	w.toServe = xds.New(xds.Options{Source: resources, Authenticate: xds.ByClaim})
	w.up()
	t.Cleanup(w.down)
	return w
}

// up starts the control plane.
func (w *world) up() {
	w.t.Helper()
	l, err := net.Listen("unix", w.socket())
	if err == nil {
		err = os.Chown(w.socket(), proxyUser, proxyUser)
	}
	if err != nil {
		w.t.Fatal(err)
	}
	w.server = grpc.NewServer(grpc.StreamInterceptor(w.line.between), grpc.ForceServerCodecV2(xds.Codec()),
		// Envoy pings every 5 s. With its defaults, a gRPC server closes the connection of a client that
		// pings so often; it would do so after 20 s.
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: time.Second, PermitWithoutStream: true}))
	discovery.RegisterAggregatedDiscoveryServiceServer(w.server, w.toServe)
	go w.server.Serve(l)
}

// socket is the path on which the proxies reach the control plane: there are no agents with their relays.
func (w *world) socket() string { return filepath.Join(w.dir, "ads") }

// down stops the control plane and closes all its connections.
func (w *world) down() { w.server.Stop() }

// A pod is a pod of a world.
type pod struct {
	*ns.Namespace
	world     *world
	name      string
	v4, v6    netip.Addr
	spec      mesh.WorkloadSpec
	metadata  map[string]any
	stats     []string                                // patterns of additional Envoy metrics
	env       []string                                // added to the environment of its Envoy
	static    func(certificates, admin string) string // configuration in place of the bootstrap
	envoy     *process.Process                        // nil if the pod has no proxy
	foreign   bool                                    // the bootstrap is not the agent's, and only connects Envoy to the control plane
	certified string                                  // service account in the certificate; default: the pod's own
	trusts    *ca.Authority                           // signs the certificates that its proxy accepts; default: the world's
	admin     *envoy.Admin
	dir       string
}

// pod makes a pod without a proxy; app is the value of its label app.
func (w *world) pod(name, app string) *pod {
	w.t.Helper()
	w.pods++
	p := &pod{Namespace: ns.New(w.t), world: w, name: name}
	p.v4 = netip.MustParseAddr(fmt.Sprintf("10.244.%d.2", w.pods))
	p.v6 = netip.MustParseAddr(fmt.Sprintf("fd44:%d::2", w.pods))
	gateway4, gateway6 := p.v4.Prev(), p.v6.Prev()
	for _, n := range []*ns.Namespace{p.Namespace, w.router} {
		n.Do(func() { // turns duplicate address detection off, during which an address cannot resolve neighbours
			if err := os.WriteFile("/proc/sys/net/ipv6/conf/default/accept_dad", []byte("0"), 0); err != nil {
				w.t.Error(err)
			}
		})
	}
	ns.Connect(p.Namespace, "eth0", []netip.Prefix{netip.PrefixFrom(p.v4, 24), netip.PrefixFrom(p.v6, 64)},
		w.router, fmt.Sprintf("pod%d", w.pods), []netip.Prefix{netip.PrefixFrom(gateway4, 24), netip.PrefixFrom(gateway6, 64)})
	p.IP("route", "add", "default", "via", gateway4.String())
	p.IP("route", "add", "default", "via", gateway6.String())
	for _, gateway := range []netip.Addr{gateway4, gateway6} {
		// Wait until the MAC addresses of neighbours are resolved, which with IPv6 may take a second, so that
		// measurements do not include this.
		w.eventually(w.t, "a neighbour", func() bool {
			var err error
			p.Do(func() { _, err = net.DialTimeout("tcp", netip.AddrPortFrom(gateway, 9).String(), 100*time.Millisecond) }) // time limit: one try of several
			return errors.Is(err, syscall.ECONNREFUSED)
		})
	}
	p.spec = mesh.WorkloadSpec{Ready: true, Workload: mesh.Workload{
		Name: name, Namespace: namespace, ServiceAccount: app, Labels: map[string]string{"app": app},
		Addresses: []netip.Addr{p.v4, p.v6},
	}}
	w.source.set(&p.spec)
	return p
}

// proxied captures a pod's traffic and starts its proxy.
func (p *pod) proxied() *pod {
	t := p.world.t
	t.Helper()
	spec := p.spec
	spec.Proxied = true
	p.spec = spec
	p.world.source.set(&spec)
	p.capture()
	p.start()
	return p
}

// capturing allows one capture at a time, because the nftables library numbers sets by a counter of the process.
var capturing sync.Mutex

func (p *pod) capture() {
	t := p.world.t
	t.Helper()
	capturing.Lock()
	defer capturing.Unlock()
	in := capture.Defaults()
	in.Families = capture.DualStack
	in.OutboundRanges.All, in.InboundPorts.All = true, true
	var err error
	p.Do(func() {
		var backends []setup.Backend
		if backends, err = setup.Backends(capture.NFTables, ""); err == nil {
			_, err = setup.Capture(context.Background(), setup.Options{Intent: in, Backends: backends})
		}
	})
	if err != nil {
		t.Fatal(err)
	}
}

// start starts the pod's Envoy and waits until it listens.
func (p *pod) start() {
	t := p.world.t
	t.Helper()
	p.dir = filepath.Join(p.world.dir, p.name)
	if err := os.MkdirAll(p.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	account, secrets := cmp.Or(p.certified, p.spec.ServiceAccount), ""
	var addresses []string
	for _, a := range p.spec.Addresses {
		addresses = append(addresses, a.String())
	}
	metadata := map[string]any{
		contract.MetadataServiceAccount: p.spec.ServiceAccount, contract.MetadataAddresses: strings.Join(addresses, ","),
	}
	certificates := filepath.Join(p.dir, "certificates")
	if p.foreign || p.static != nil {
		issue(t, p.world.ca, certificates, account)
		metadata[contract.MetadataCertificates] = certificates
	} else {
		secrets = filepath.Join(p.dir, "sds")
		serveSecrets(t, p.world.ca, cmp.Or(p.trusts, p.world.ca), secrets, account)
		metadata[contract.MetadataSecrets] = contract.SecretsCluster
	}
	for k, v := range p.metadata {
		metadata[k] = v
	}
	o := envoy.Options{
		Node:  envoy.Node{ID: fmt.Sprintf("sidecar~%s~%s.%s~x", p.v4, p.name, namespace), Metadata: metadata},
		Relay: p.world.socket(), Secrets: secrets,
		Admin:  envoy.Endpoint{Socket: filepath.Join(p.dir, "admin")},
		Family: envoy.Dual,
		// Enable only these statistics, because with all of them a first use takes three times as long.
		Stats: envoy.Stats{
			Prefixes: []string{"cluster_manager.", "listener_manager."},
			Regexps:  []string{`listener\..*\.(ssl\.handshake|ssl\.no_certificate|downstream_pre_cx_timeout|downstream_cx_total)`, `cluster\..*\.ssl\.fail_verify_san`},
		},
		Extra: json.RawMessage(`{"typed_dns_resolver_config": {"name": "envoy.network.dns_resolver.cares", "typed_config":
			{"@type": "type.googleapis.com/envoy.extensions.network.dns_resolver.cares.v3.CaresDnsResolverConfig",
			"resolvers": [{"socket_address": {"address": "` + resolver + `", "port_value": 53}}],
			"dns_resolver_options": {"no_default_search_domain": true}}}}`),
	}
	o.Stats.Regexps = append(o.Stats.Regexps, p.stats...)
	raw, err := o.Bootstrap()
	if err != nil {
		t.Fatal(err)
	}
	if p.foreign {
		raw = withoutPassthrough(t, raw)
	}
	if p.static != nil {
		raw = []byte(p.static(certificates, o.Admin.Socket))
	}
	config := filepath.Join(p.dir, "envoy.json")
	if err := os.WriteFile(config, raw, 0o644); err != nil {
		t.Fatal(err)
	}
	os.Chown(p.dir, proxyUser, proxyUser)
	binary, err := os.Open(envoyBinary(t))
	if err != nil {
		t.Fatal(err)
	}
	defer binary.Close()
	cmd := exec.Command("/proc/self/fd/3", o.Args(config)...)
	cmd.Env = append(os.Environ(), p.env...)
	cmd.ExtraFiles = []*os.File{binary}
	access, err := os.Create(filepath.Join(p.dir, "access"))
	if err != nil {
		t.Fatal(err)
	}
	defer access.Close()
	cmd.Stdout = access
	p.envoy = process.Start(t, cmd, process.Options{In: p.Do, Log: filepath.Join(p.dir, "log"), User: proxyUser})
	p.world.envoys = append(p.world.envoys, p.envoy)
	p.admin = envoy.NewAdmin(o, process.Patience)
	p.world.proxies = append(p.world.proxies, p)
	t.Cleanup(p.admin.Close)
	p.world.eventually(t, p.name+" listens", func() bool {
		live, _, err := p.admin.Ready(context.Background())
		if err != nil {
			return false
		}
		out, err := p.admin.Get(context.Background(), "/listeners", "")
		return err == nil && strings.Contains(string(out), "virtualInbound::") && strings.Contains(string(out), "virtualOutbound::") && live
	})
}

// stat returns the sum of the counters and gauges of the pod's Envoy whose names match a regular expression.
func (p *pod) stat(name string) uint64 {
	p.world.t.Helper()
	all, err := p.admin.Stats(context.Background(), "^"+name+"$")
	if err != nil {
		p.world.t.Fatal(err)
	}
	var sum uint64
	for _, n := range all {
		sum += n
	}
	return sum
}

// stalled matches the counters of waits for first bytes that ended without any bytes.
const stalled = `listener\..*\.downstream_pre_cx_timeout`

// stalls returns the number of waits of the pod's Envoy for first bytes that ended without any bytes.
func (p *pod) stalls() uint64 {
	p.world.t.Helper()
	return p.stat(stalled)
}

// dial connects as the pod's application.
func (p *pod) dial(ctx context.Context, _, to string) (net.Conn, error) {
	var c net.Conn
	var err error
	if p.envoy != nil { // if Envoy has ended, the dial fails; the capture rules would park the connection for the next Envoy
		alive, cancel := context.WithCancel(ctx)
		defer cancel()
		go func() {
			select {
			case <-p.envoy.Done():
				cancel()
			case <-alive.Done():
			}
		}()
		ctx = alive
	}
	p.As(appUser, appUser, func() { c, err = (&net.Dialer{}).DialContext(ctx, "tcp", to) })
	return c, err
}

// listen opens a port of the pod's application, on all addresses.
func (p *pod) listen(port uint16) net.Listener {
	t := p.world.t
	t.Helper()
	var l net.Listener
	var err error
	p.As(appUser, appUser, func() { l, err = net.Listen("tcp", fmt.Sprintf(":%d", port)) })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// service adds a service for the pods of an app.
func (w *world) service(name, vip, app string, ports ...mesh.PortSpec) *mesh.ServiceSpec {
	s := &mesh.ServiceSpec{Name: name, Namespace: namespace, Selector: map[string]string{"app": app}, Ports: ports}
	for _, a := range strings.Fields(vip) {
		s.Addresses = append(s.Addresses, netip.MustParseAddr(a))
	}
	s.Headless = vip == ""
	w.source.set(s)
	return s
}

// port returns a service port with the same target port.
func port(number uint16, p mesh.Protocol) mesh.PortSpec {
	return mesh.PortSpec{Port: mesh.Port{Name: fmt.Sprintf("p%d", number), Number: number, Protocol: p}, Target: number}
}

// other returns a service port of another transport than TCP, which leads to a port at which nothing listens.
func other(number uint16, p mesh.Protocol) mesh.PortSpec {
	return mesh.PortSpec{Port: mesh.Port{Name: fmt.Sprintf("%s%d", p, number), Number: number, Protocol: p}, Target: 9}
}

// envoyBinary returns the path of the real Envoy, or skips the test.
func envoyBinary(t testing.TB) string {
	t.Helper()
	ns.RequireRoot(t)
	path, err := filepath.Abs(cmp.Or(os.Getenv("ENVOY"), filepath.Join("..", "..", ".cache", "envoy", "envoy")))
	if err == nil {
		_, err = os.Stat(path)
	}
	if err != nil {
		t.Skipf("no Envoy (make deps): %v", err)
	}
	return path
}

// eventually waits until a condition holds, and fails at once if an Envoy of the world exits.
func (w *world) eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	process.Eventually(t, what, holds, w.envoys...)
}
