package envoy

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"strconv"
	"strings"
	"time"
)

// Names in the bootstrap that others refer to.
const (
	// ControlPlaneCluster is the cluster of the control plane: Istio's name.
	ControlPlaneCluster = "xds-grpc"
	// PassthroughCluster sends a connection to where it was going: Istio's name.
	PassthroughCluster = "PassthroughCluster"

	metrics = "prometheus_stats" // the admin interface as a cluster, and the listener that shows a part of it
	typeURL = "type.googleapis.com/"
)

// Bootstrap returns the configuration that Envoy starts with, as JSON: the same in YAML
// takes Envoy twice as long to read when there is much of it.
func (o Options) Bootstrap() ([]byte, error) {
	if err := o.Check(); err != nil {
		return nil, err
	}
	if len(o.Extra) == 0 {
		return o.own()
	}
	return o.merged()
}

// own is the bootstrap without what the user adds.
func (o Options) own() ([]byte, error) {
	o = o.withDefaults()
	b := bootstrap{
		Node:       nodeOf(o.Node),
		Admin:      admin{Address: o.adminAddress(0o600), IgnoreConnectionCap: true},
		Static:     static{Clusters: []cluster{passthrough(), o.controlPlane()}},
		Dynamic:    ads(),
		Stats:      statsOf(o.Stats),
		Runtime:    runtimeOf(o.Runtime),
		Overload:   overloadOf(o.Limits),
		Extensions: []map[string]any{internalListeners()},
	}
	if !o.ControlPlane.Plaintext {
		b.Static.Clusters = append(b.Static.Clusters, secrets(o.ControlPlane.Secrets))
	}
	if !o.NoPrometheus {
		b.Static.Clusters = append(b.Static.Clusters, cluster{
			Name: metrics, Type: "STATIC", ConnectTimeout: seconds(time.Second),
			Assignment: assign(metrics, o.adminAddress(0)),
		})
		b.Static.Listeners = []listener{o.prometheus()}
	}
	out, err := json.Marshal(b)
	if err != nil {
		return nil, fmt.Errorf("writing Envoy's bootstrap: %w", err)
	}
	return out, nil
}

// internalListeners lets the control plane send listeners inside of Envoy, through which
// requests for a service with routes go. Envoy takes the extension at start only.
func internalListeners() map[string]any {
	const kind = "envoy.extensions.bootstrap.internal_listener.v3.InternalListener"
	return map[string]any{"name": "envoy.bootstrap.internal_listener", "typed_config": map[string]any{"@type": typeURL + kind}}
}

func nodeOf(n Node) node {
	out := node{ID: n.ID, Cluster: n.Cluster, Metadata: n.Metadata}
	if l := (locality{Region: n.Region, Zone: n.Zone, SubZone: n.SubZone}); l != (locality{}) {
		out.Locality = &l
	}
	return out
}

// seconds is a duration as protobuf's JSON wants it.
func seconds(d time.Duration) string {
	return strconv.FormatFloat(d.Seconds(), 'f', -1, 64) + "s"
}

func (o Options) adminAddress(mode uint32) address {
	if o.Admin.Socket != "" {
		return address{Pipe: &pipe{Path: o.Admin.Socket, Mode: mode}}
	}
	return address{Socket: &socketAddress{Address: o.Family.loopback().String(), Port: o.Admin.Port}}
}

func assign(name string, addresses ...address) *assignment {
	var group localityGroup
	for _, a := range addresses {
		group.LB = append(group.LB, lbEndpoint{endpoint{a}})
	}
	return &assignment{Cluster: name, Endpoints: []localityGroup{group}}
}

func passthrough() cluster {
	return cluster{Name: PassthroughCluster, Type: "ORIGINAL_DST", LBPolicy: "CLUSTER_PROVIDED", ConnectTimeout: "2s"}
}

// ads subscribes to everything on one delta stream. Delta, because on-demand discovery needs
// it. No initial fetch timeout: without its configuration a proxy is not ready, however
// long that takes. The back-off is what makes a proxy follow a control plane that comes
// back within 50 ms instead of up to 25 s.
func ads() dynamic {
	service := envoyGRPC{Cluster: ControlPlaneCluster}
	service.Retry.BackOff = backOff{Base: "0.1s", Max: "1s"}
	source := configSource{ADS: &struct{}{}, Version: "V3", FetchTimeout: "0s"}
	return dynamic{
		ADS: apiSource{Type: "DELTA_GRPC", Version: "V3", NodeOnce: true, GRPCServices: []grpcService{{service}}},
		LDS: source, CDS: source,
	}
}

func (o Options) controlPlane() cluster {
	cp := o.ControlPlane
	ping := map[string]any{"interval": seconds(cp.KeepAlive), "timeout": seconds(cp.KeepAlive)}
	out := cluster{
		Name: ControlPlaneCluster, Type: "STATIC", ConnectTimeout: seconds(cp.ConnectTimeout),
		Protocols: http2(map[string]any{"connection_keepalive": ping}),
		Upstream:  map[string]any{"tcp_keepalive": map[string]any{"keepalive_time": 300}},
	}
	var addresses []address
	for _, a := range cp.Addresses {
		host, port, _ := splitAddress(a) // Check has seen it
		addresses = append(addresses, address{Socket: &socketAddress{Address: host, Port: port}})
		if _, err := netip.ParseAddr(host); err != nil {
			out.Type = "STRICT_DNS"
		}
	}
	out.Assignment = assign(ControlPlaneCluster, addresses...)
	if out.Type == "STRICT_DNS" {
		out.DNSFamily, out.DNSRefresh = dnsFamily(o.Family), "5s"
		// A pod's network may be a moment late: by default the next question comes after 5 s.
		out.DNSFailure = &backOff{Base: "0.1s", Max: "1s"}
	}
	if !cp.Plaintext {
		out.Transport = mutualTLS(cp)
	}
	return out
}

// http2 is spoken with a cluster, and nothing else.
func http2(options map[string]any) map[string]map[string]any {
	const http = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"
	if options == nil {
		options = map[string]any{}
	}
	return map[string]map[string]any{http: {
		"@type":                typeURL + http,
		"explicit_http_config": map[string]any{"http2_protocol_options": options},
	}}
}

func dnsFamily(f Family) string {
	switch f {
	case IPv6:
		return "V6_ONLY"
	case Dual:
		return "ALL"
	}
	return "V4_ONLY"
}

// mutualTLS presents the workload's certificate and wants the control plane's to be
// signed by our root and to name one of its identities: any workload has a certificate
// of the same root.
func mutualTLS(cp ControlPlane) *extension {
	var names []map[string]any
	for _, id := range cp.Identity {
		kind := "DNS"
		if strings.Contains(id, "://") {
			kind = "URI"
		}
		names = append(names, map[string]any{"san_type": kind, "matcher": stringMatcher{Exact: id}})
	}
	const tls = "envoy.extensions.transport_sockets.tls.v3."
	validation := map[string]any{
		"default_validation_context":           map[string]any{"match_typed_subject_alt_names": names},
		"validation_context_sds_secret_config": secret(RootsName),
	}
	config := map[string]any{
		"@type": typeURL + tls + "UpstreamTlsContext",
		"common_tls_context": map[string]any{
			"alpn_protocols":                     []string{"h2"},
			"tls_params":                         map[string]any{"tls_minimum_protocol_version": "TLSv1_2"},
			"tls_certificate_sds_secret_configs": []any{secret(SecretName)},
			"combined_validation_context":        validation,
		},
	}
	if cp.SNI != "" {
		config["sni"] = cp.SNI
	}
	return &extension{Name: "envoy.transport_sockets.tls", Config: config}
}

// prometheus shows one path of the admin interface to the network.
func (o Options) prometheus() listener {
	const hcm = "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager"
	route := map[string]any{"match": map[string]any{"prefix": "/stats/prometheus"}, "route": map[string]any{"cluster": metrics}}
	filter := extension{Name: "envoy.filters.network.http_connection_manager", Config: map[string]any{
		"@type":       typeURL + hcm,
		"stat_prefix": "stats",
		"route_config": map[string]any{"virtual_hosts": []any{
			map[string]any{"name": "backend", "domains": []string{"*"}, "routes": []any{route}},
		}},
		"http_filters": []any{extension{Name: "envoy.filters.http.router", Config: map[string]any{
			"@type": typeURL + "envoy.extensions.filters.http.router.v3.Router",
		}}},
	}}
	wildcard := socketAddress{Address: "0.0.0.0", Port: o.Prometheus}
	if o.Family != IPv4 {
		wildcard.Address, wildcard.IPv4Compat = "::", o.Family == Dual
	}
	return listener{
		Name: metrics, Address: address{Socket: &wildcard}, IgnoreConnectionCap: true,
		Chains: []filterChain{{Filters: []extension{filter}}},
	}
}

// runtimeOf is one static layer, and above it what is set through the admin interface.
func runtimeOf(flags map[string]any) layeredRuntime {
	all := map[string]any{
		// A route's regular expression may be that large; Envoy's default of 100 rejects
		// common ones. Istio's value.
		"re2.max_program_size.error_level": 32768,
	}
	maps.Copy(all, flags)
	return layeredRuntime{Layers: []layer{{Name: "outrider", Static: all}, {Name: "admin", Admin: &struct{}{}}}}
}

func overloadOf(l Limits) overload {
	const monitor = "envoy.resource_monitors."
	const kind = typeURL + "envoy.extensions.resource_monitors."
	out := overload{Refresh: "0.25s", Monitors: []extension{{
		Name: monitor + "global_downstream_max_connections",
		Config: map[string]any{
			"@type":                             kind + "downstream_connections.v3.DownstreamConnectionsConfig",
			"max_active_downstream_connections": l.Connections,
		},
	}}}
	if l.Heap == 0 {
		return out
	}
	const heap = monitor + "fixed_heap"
	out.Monitors = append(out.Monitors, extension{Name: heap, Config: map[string]any{
		"@type": kind + "fixed_heap.v3.FixedHeapConfig", "max_heap_size_bytes": l.Heap,
	}})
	for _, a := range []struct{ name, at string }{{"shrink_heap", "0.95"}, {"stop_accepting_requests", "0.98"}} {
		trigger := overloadTrigger{Name: heap}
		trigger.Threshold.Value = json.Number(a.at)
		out.Actions = append(out.Actions, overloadAction{Name: "envoy.overload_actions." + a.name, Triggers: []overloadTrigger{trigger}})
	}
	return out
}
