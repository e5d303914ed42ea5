package resource

import (
	"cmp"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	accesslog "github.com/envoyproxy/go-control-plane/envoy/config/accesslog/v3"
	cluster "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpoint "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listener "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	route "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	trace "github.com/envoyproxy/go-control-plane/envoy/config/trace/v3"
	data "github.com/envoyproxy/go-control-plane/envoy/data/accesslog/v3"
	cel "github.com/envoyproxy/go-control-plane/envoy/extensions/access_loggers/filters/cel/v3"
	stats "github.com/envoyproxy/go-control-plane/envoy/extensions/access_loggers/stats/v3"
	stream "github.com/envoyproxy/go-control-plane/envoy/extensions/access_loggers/stream/v3"
	hcm "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	tcp "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"
	detectors "github.com/envoyproxy/go-control-plane/envoy/extensions/tracers/opentelemetry/resource_detectors/v3"
	samplers "github.com/envoyproxy/go-control-plane/envoy/extensions/tracers/opentelemetry/samplers/v3"
	matcher "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	tag "github.com/envoyproxy/go-control-plane/envoy/type/tracing/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/base/telemetry"
	"outrider.dev/internal/core/mesh"
	"outrider.dev/internal/core/xds"
)

// tracingCluster is the cluster of the collector of spans.
const tracingCluster = "tracing"

// Limits of exports to a collector. Envoy makes an export for each five spans, keeps these, some 18 KB,
// until the export has ended, and drops them if it fails.
const (
	exportTimeout = 10 * time.Second
	maxExports    = 100 // at once
)

// Limits of the statistics of one proxy; beyond them nothing is counted. Clients cannot choose the
// value of a label, but servers choose status codes, and there may be any number of peers.
const (
	maxCounters   = 20_000
	maxHistograms = 5_000
)

// observe adds access logs, tracing and request statistics to the filters of a listener, according to
// the settings of the mesh. Services are the services of an inbound listener, by port.
func (b *builder) observe(l *listener.Listener, f features, services map[uint16]telemetry.Service) *listener.Listener {
	o := observer{s: b.config.Telemetry, sampling: f.sampling, outbound: l.TrafficDirection == core.TrafficDirection_OUTBOUND}
	o.s.Metrics = o.s.Metrics && f.relayed // its agent gives Istio's names to the statistics
	if !o.s.Metrics && !o.s.AccessLog.On() && !o.s.Tracing.On() {
		return l
	}
	done := map[*listener.Filter]bool{} // chains for one port share filters
	for _, c := range append(slices.Clone(l.FilterChains), l.DefaultFilterChain) {
		for _, filter := range c.GetFilters() { // a nil chain has none
			if done[filter] {
				continue
			}
			done[filter] = true
			o.filter(filter, services[uint16(c.GetFilterChainMatch().GetDestinationPort().GetValue())])
		}
	}
	return l
}

type observer struct {
	s        telemetry.Settings
	sampling string // of the proxy, see samplingOf
	outbound bool
}

func (o observer) filter(f *listener.Filter, s telemetry.Service) {
	if m := (&hcm.HttpConnectionManager{}); f.GetTypedConfig().MessageIs(m) {
		if f.GetTypedConfig().UnmarshalTo(m) == nil {
			o.http(m, s)
			f.ConfigType = &listener.Filter_TypedConfig{TypedConfig: typed(m)}
		}
		return
	}
	if p := (&tcp.TcpProxy{}); f.GetTypedConfig().MessageIs(p) {
		if f.GetTypedConfig().UnmarshalTo(p) == nil {
			o.bytes(p, s)
			f.ConfigType = &listener.Filter_TypedConfig{TypedConfig: typed(p)}
		}
	}
}

// http observes requests. A request for a service with routes passes two connection managers: the first
// one traces, because it knows when the application made the request; the second one logs and counts,
// because it knows the endpoint. The first one also logs and counts requests that do not reach the
// second.
func (o observer) http(m *hcm.HttpConnectionManager, s telemetry.Service) {
	var once *accesslog.AccessLogFilter
	if o.outbound && m.GetRouteConfig() != nil {
		once = leavesProxy()
	}
	if o.s.AccessLog.On() {
		m.AccessLog = append(m.AccessLog, o.log(once))
	}
	if o.s.Metrics {
		tags := slices.Concat(o.tags(s), tagsOf("response_code", "%RESPONSE_CODE%"))
		http := slices.Concat(tags, tagsOf("request_protocol", "http"))
		grpc := slices.Concat(tags, tagsOf("request_protocol", "grpc", "grpc_response_status", "%GRPC_STATUS_NUMBER%"))
		m.AccessLog = append(m.AccessLog, countRequests(all(once, isGRPC(false)), http), countRequests(all(once, isGRPC(true)), grpc))
	}
	if o.s.Tracing.On() && m.StatPrefix != internalName {
		m.Tracing = o.tracing()
	}
}

// bytes observes connections.
func (o observer) bytes(p *tcp.TcpProxy, s telemetry.Service) {
	var once *accesslog.AccessLogFilter
	if o.outbound && p.OnDemand != nil {
		once = leavesProxy()
	}
	ended := all(once, logged(data.AccessLogType_TcpConnectionEnd))
	if o.s.AccessLog.On() {
		p.AccessLog = append(p.AccessLog, o.log(ended))
	}
	if !o.s.Metrics {
		return
	}
	p.AccessLogOptions = &tcp.TcpProxy_TcpAccessLogOptions{FlushAccessLogOnConnected: true}
	tags := slices.Concat(o.tags(s), tagsOf("request_protocol", "tcp"))
	p.AccessLog = append(p.AccessLog,
		counting(all(once, logged(data.AccessLogType_TcpUpstreamConnected)), nil, counter("tcp_connections_opened_total", "", tags)),
		counting(ended, nil,
			counter("tcp_connections_closed_total", "", tags),
			counter("tcp_sent_bytes_total", "%BYTES_SENT%", tags),
			counter("tcp_received_bytes_total", "%BYTES_RECEIVED%", tags)))
}

// leavesProxy matches everything except traffic to a listener inside of Envoy, which observes it
// itself.
func leavesProxy() *accesslog.AccessLogFilter {
	return &accesslog.AccessLogFilter{FilterSpecifier: &accesslog.AccessLogFilter_ExtensionFilter{ExtensionFilter: &accesslog.ExtensionFilter{
		Name: "envoy.access_loggers.extension_filters.cel",
		ConfigType: &accesslog.ExtensionFilter_TypedConfig{TypedConfig: typed(&cel.ExpressionFilter{
			Expression: `!(has(upstream.address) && upstream.address.startsWith("envoy://"))`,
		})},
	}}}
}

func isGRPC(yes bool) *accesslog.AccessLogFilter {
	return &accesslog.AccessLogFilter{FilterSpecifier: &accesslog.AccessLogFilter_HeaderFilter{HeaderFilter: &accesslog.HeaderFilter{
		Header: &route.HeaderMatcher{
			Name: "content-type", InvertMatch: !yes, TreatMissingHeaderAsEmpty: true,
			HeaderMatchSpecifier: &route.HeaderMatcher_StringMatch{StringMatch: &matcher.StringMatcher{
				MatchPattern: &matcher.StringMatcher_Prefix{Prefix: "application/grpc"},
			}},
		},
	}}}
}

func logged(kind data.AccessLogType) *accesslog.AccessLogFilter {
	return &accesslog.AccessLogFilter{FilterSpecifier: &accesslog.AccessLogFilter_LogTypeFilter{
		LogTypeFilter: &accesslog.LogTypeFilter{Types: []data.AccessLogType{kind}},
	}}
}

// all matches what both filters match; nil matches everything.
func all(a, b *accesslog.AccessLogFilter) *accesslog.AccessLogFilter {
	if a == nil {
		return b
	}
	return both(a, b)
}

// log writes lines to Envoy's standard output, which is also the agent's; no file is opened.
func (o observer) log(which *accesslog.AccessLogFilter) *accesslog.AccessLog {
	format := &core.SubstitutionFormatString{}
	if text := o.s.AccessLog.Text; text != "" {
		format.Format = &core.SubstitutionFormatString_TextFormatSource{TextFormatSource: inline(text)}
	} else {
		object, err := structpb.NewStruct(o.s.AccessLog.JSON)
		if err != nil { // cannot fail: it was parsed from JSON
			object = &structpb.Struct{}
		}
		format.Format = &core.SubstitutionFormatString_JsonFormat{JsonFormat: object}
	}
	return accessLog("envoy.access_loggers.stdout", which, &stream.StdoutAccessLog{
		AccessLogFormat: &stream.StdoutAccessLog_LogFormat{LogFormat: format},
	})
}

func accessLog(name string, which *accesslog.AccessLogFilter, config proto.Message) *accesslog.AccessLog {
	return &accesslog.AccessLog{Name: name, Filter: which, ConfigType: &accesslog.AccessLog_TypedConfig{TypedConfig: typed(config)}}
}

// tags are the labels of counters for requests and for connections. They contain only what this Envoy
// knows: the agent splits the values, and adds labels that are the same for all counters.
func (o observer) tags(s telemetry.Service) []*stats.Config_Tag {
	if o.outbound {
		return tagsOf(
			telemetry.TagReporter, "source",
			telemetry.TagService, "%CLUSTER_METADATA("+telemetry.MetadataNamespace+":"+telemetry.MetadataService+")%",
			telemetry.TagWorkload, "%UPSTREAM_METADATA("+telemetry.MetadataNamespace+":"+telemetry.MetadataWorkload+")%",
			telemetry.TagPrincipal, "%UPSTREAM_PEER_URI_SAN%", "response_flags", "%RESPONSE_FLAGS%")
	}
	out := tagsOf(telemetry.TagReporter, "destination")
	if s != (telemetry.Service{}) {
		out = append(out, tagsOf(telemetry.TagService, s.String())...)
	}
	return append(out, tagsOf(telemetry.TagPrincipal, "%DOWNSTREAM_PEER_URI_SAN%", "response_flags", "%RESPONSE_FLAGS%")...)
}

func tagsOf(pairs ...string) []*stats.Config_Tag {
	var out []*stats.Config_Tag
	for p := range slices.Chunk(pairs, 2) {
		out = append(out, &stats.Config_Tag{Name: p[0], ValueFormat: p[1]})
	}
	return out
}

// countRequests counts requests and their duration.
func countRequests(which *accesslog.AccessLogFilter, tags []*stats.Config_Tag) *accesslog.AccessLog {
	return counting(which, &stats.Config_Histogram{
		Stat: &stats.Config_Stat{Name: "request_duration_milliseconds", Tags: tags},
		Unit: stats.Config_Histogram_Milliseconds, ValueFormat: "%DURATION%",
	}, counter("requests_total", "", tags))
}

// counter adds a value; 1 if the format is empty.
func counter(name, value string, tags []*stats.Config_Tag) *stats.Config_Counter {
	out := &stats.Config_Counter{Stat: &stats.Config_Stat{Name: name, Tags: tags}, ValueFormat: value}
	if value == "" {
		out.ValueFixed = wrapperspb.UInt64(1)
	}
	return out
}

// counting puts statistics into one scope for the whole proxy, so that the limits apply to all of them
// and they outlive a listener.
func counting(which *accesslog.AccessLogFilter, h *stats.Config_Histogram, counters ...*stats.Config_Counter) *accesslog.AccessLog {
	config := &stats.Config{Counters: counters, StatsScope: &typev3.Scope{
		Prefix: telemetry.StatPrefix, SharingName: telemetry.StatPrefix,
		MaxCounters: uint32Value(maxCounters), MaxHistograms: uint32Value(maxHistograms),
	}}
	if h != nil {
		config.Histograms = []*stats.Config_Histogram{h}
	}
	return accessLog("envoy.access_loggers.stats", which, config)
}

// tracing makes one span for each request, and continues the client's trace by the W3C headers. Like
// access logs, the span contains the path without its query. The service's name is in Envoy's
// environment, so that all workloads can share listeners.
func (o observer) tracing() *hcm.HttpConnectionManager_Tracing {
	config := &trace.OpenTelemetryConfig{ResourceDetectors: []*core.TypedExtensionConfig{{
		Name:        "envoy.tracers.opentelemetry.resource_detectors.environment",
		TypedConfig: typed(&detectors.EnvironmentResourceDetectorConfig{}),
	}}}
	t := o.s.Tracing
	if t.Path == "" {
		config.GrpcService = &core.GrpcService{TargetSpecifier: &core.GrpcService_EnvoyGrpc_{
			EnvoyGrpc: &core.GrpcService_EnvoyGrpc{ClusterName: tracingCluster, Authority: t.Authority()},
		}}
	} else {
		config.HttpService = &core.HttpService{HttpUri: &core.HttpUri{
			Uri: "http://" + t.Authority() + t.Path, Timeout: duration(exportTimeout),
			HttpUpstreamType: &core.HttpUri_Cluster{Cluster: tracingCluster},
		}}
	}
	sampling := t.Sampling
	if own, err := strconv.ParseFloat(o.sampling, 64); err == nil {
		sampling = own
	}
	// Without a sampler Envoy decides by its own request ID and ignores the W3C headers.
	config.Sampler = &core.TypedExtensionConfig{
		Name: "envoy.tracers.opentelemetry.samplers.parent_based",
		TypedConfig: typed(&samplers.ParentBasedSamplerConfig{WrappedSampler: &core.TypedExtensionConfig{
			Name:        "envoy.tracers.opentelemetry.samplers.trace_id_ratio_based",
			TypedConfig: typed(&samplers.TraceIdRatioBasedSamplerConfig{SamplingPercentage: ofAMillion(sampling)}),
		}}),
	}
	return &hcm.HttpConnectionManager_Tracing{
		ClientSampling: percent(100), RandomSampling: percent(100), OverallSampling: percent(100), // the sampler decides
		CustomTags: []*tag.CustomTag{{Tag: "http.url", Type: &tag.CustomTag_Value{Value: "%REQ(:SCHEME)%://%REQ(:AUTHORITY)%%PATH(NQ:ORIG_OR_PATH)%"}}},
		Provider: &trace.Tracing_Http{
			Name: "envoy.tracers.opentelemetry", ConfigType: &trace.Tracing_Http_TypedConfig{TypedConfig: typed(config)},
		},
	}
}

func percent(p float64) *typev3.Percent { return &typev3.Percent{Value: p} }

func ofAMillion(percent float64) *typev3.FractionalPercent {
	return &typev3.FractionalPercent{Numerator: uint32(math.Round(percent * 10_000)), Denominator: typev3.FractionalPercent_MILLION}
}

// samplingOf returns the percentage of requests that a proxy wants to be traced; empty: the mesh's. It
// is rounded to integers above 1 and to hundredths below, because proxies choose it and each value
// needs its own set of listeners.
func samplingOf(p *xds.Proxy) string {
	n, err := strconv.ParseFloat(p.Metadata[contract.MetadataSampling], 64)
	switch {
	case err != nil || telemetry.CheckSampling(n) != nil:
		return ""
	case n < 1:
		n = math.Ceil(n*100) / 100
	default:
		n = math.Round(n)
	}
	return strconv.FormatFloat(n, 'f', -1, 64)
}

// tracingBundle returns the cluster of the collector. If that is a service in the mesh, its endpoints
// are included, and mutual TLS is used if they have a proxy. Otherwise it is called in plain text, at
// the address that the pod's DNS returns.
func (v *snapshot) tracingBundle(p *xds.Proxy) (xds.Bundle, bool) {
	t := v.config.Telemetry.Tracing
	f := featuresOf(p)
	if !t.On() || f.grpc {
		return xds.Bundle{}, false
	}
	protocol := mesh.GRPC
	if t.Path != "" {
		protocol = mesh.HTTP
	}
	if s := v.mesh.Resolve(t.Host, p.Namespace); s != nil && s.External == "" {
		if to, ok := v.target(reference{host: s.Host, port: t.Port}, p.Namespace); ok {
			sh := f.forClusters()
			r := v.cache.of(s).getFor(sh, clusterKey{tracingCluster, t.Port, to.family, sh, true}, func() *xds.Resource {
				requests := to
				port := *to.port
				port.Protocol, requests.port = protocol, &port
				c := v.serviceEDS(tracingCluster, requests, true, sh)
				boundExports(c, protocol)
				return serialize(tracingCluster, c)
			})
			return v.withEndpoints(p, r, to), true
		}
	}
	return xds.Bundle{Resource: v.shared(tracingCluster, tracingCluster, func() proto.Message {
		c := newCluster(tracingCluster)
		boundExports(c, protocol)
		externalCluster(c, t.Host, t.Port)
		if _, err := netip.ParseAddr(t.Host); err == nil {
			c.ClusterDiscoveryType = &cluster.Cluster_Type{Type: cluster.Cluster_STATIC}
		}
		return c
	})}, true
}

// boundExports limits exports to a collector that does not answer. Envoy does not apply the timeout of
// a gRPC service to exports, so it is set in the cluster.
func boundExports(c *cluster.Cluster, p mesh.Protocol) {
	t := c.CircuitBreakers.Thresholds[0]
	t.MaxRequests, t.MaxPendingRequests = uint32Value(maxExports), uint32Value(maxExports)
	options := httpOptions(p, nil)
	options.CommonHttpProtocolOptions = &core.HttpProtocolOptions{MaxStreamDuration: duration(exportTimeout)}
	c.TypedExtensionProtocolOptions = packed(options)
}

// withTracing adds the cluster of the collector, if there is one.
func (v *snapshot) withTracing(p *xds.Proxy, out []xds.Bundle) []xds.Bundle {
	if b, ok := v.tracingBundle(p); ok {
		out = append(out, b)
	}
	return out
}

// describeService adds to a cluster the service for which its requests are counted.
func (b *builder) describeService(c *cluster.Cluster, s *mesh.Service) {
	if b.config.Telemetry.Metrics {
		c.Metadata = described(telemetry.MetadataService, serviceOf(s).String())
	}
}

func serviceOf(s *mesh.Service) telemetry.Service {
	return telemetry.Service{Name: s.Name, Namespace: s.Namespace, Host: s.Host}
}

// describeWorkload adds to an endpoint the workload for which its requests are counted.
func (b *builder) describeWorkload(e *endpoint.LbEndpoint, w *mesh.Workload) *endpoint.LbEndpoint {
	if !b.config.Telemetry.Metrics || w == nil {
		return e
	}
	m := described(telemetry.MetadataWorkload, workloadOf(w).String())
	if e.Metadata == nil {
		e.Metadata = m
	} else {
		proto.Merge(e.Metadata, m)
	}
	return e
}

func described(key, value string) *core.Metadata {
	return &core.Metadata{FilterMetadata: map[string]*structpb.Struct{telemetry.MetadataNamespace: fields(map[string]string{key: value})}}
}

// workloadOf returns the names that injection gives a workload: see writeMetadata in
// internal/core/pod/inject.
func workloadOf(w *mesh.Workload) telemetry.Workload {
	l := w.Labels
	name := ownerOf(w)
	return telemetry.Workload{
		Name: name, Namespace: w.Namespace,
		CanonicalName:     cmp.Or(l["service.istio.io/canonical-name"], l["app.kubernetes.io/name"], l["app"], name),
		CanonicalRevision: cmp.Or(l["service.istio.io/canonical-revision"], l["app.kubernetes.io/version"], l["version"], "latest"),
	}
}

// ownerOf returns the name of a pod's owner: its Deployment, without the hashes that Kubernetes
// appends, or its StatefulSet or DaemonSet; or else the pod's own name.
func ownerOf(w *mesh.Workload) string {
	name := w.Name
	if w.Host {
		return name
	}
	i := strings.LastIndexByte(name, '-')
	if hash := w.Labels["pod-template-hash"]; hash != "" && i > 0 {
		if owner, ok := strings.CutSuffix(name[:i], "-"+hash); ok {
			return owner
		}
	}
	_, indexed := w.Labels["apps.kubernetes.io/pod-index"]
	_, revised := w.Labels["controller-revision-hash"]
	if (indexed || revised) && i > 0 {
		return name[:i]
	}
	return name
}

// servicesByPort returns the service for which requests to each port of a workload are counted: the
// first by name. Without statistics it returns nil.
func (v *snapshot) servicesByPort(w *mesh.Workload, f features) map[uint16]telemetry.Service {
	if !v.config.Telemetry.Metrics || !f.relayed || w == nil || len(w.Addresses) == 0 {
		return nil
	}
	services := slices.Clone(v.mesh.ServicesOf(w))
	slices.SortFunc(services, func(a, b *mesh.Service) int { return cmp.Compare(a.Host, b.Host) })
	out := map[uint16]telemetry.Service{}
	for _, s := range services {
		for _, p := range s.Ports {
			for _, a := range w.Addresses {
				at := mesh.Endpoint{PortName: p.Name, Addr: a.Unmap()}
				i, found := slices.BinarySearchFunc(s.Endpoints, at, func(a, b mesh.Endpoint) int {
					return cmp.Or(cmp.Compare(a.PortName, b.PortName), a.Addr.Compare(b.Addr))
				})
				if !found || s.Endpoints[i].Workload != w {
					continue
				}
				if _, there := out[s.Endpoints[i].Port]; !there {
					out[s.Endpoints[i].Port] = serviceOf(s)
				}
			}
		}
	}
	return out
}

func servicesKey(services map[uint16]telemetry.Service) string {
	if len(services) == 0 {
		return ""
	}
	return fmt.Sprint(services) // printed in the order of its keys
}
