// Package observe adds access logs, traces and statistics of requests to listeners. To clusters and endpoints it
// adds the service and the workload for which requests are counted. It promises that each request and connection
// is logged and counted once, although it may pass two listeners of a proxy.
package observe

import (
	"slices"
	"strconv"
	"time"

	accesslog "github.com/envoyproxy/go-control-plane/envoy/config/accesslog/v3"
	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listener "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	trace "github.com/envoyproxy/go-control-plane/envoy/config/trace/v3"
	data "github.com/envoyproxy/go-control-plane/envoy/data/accesslog/v3"
	cel "github.com/envoyproxy/go-control-plane/envoy/extensions/access_loggers/filters/cel/v3"
	stats "github.com/envoyproxy/go-control-plane/envoy/extensions/access_loggers/stats/v3"
	stream "github.com/envoyproxy/go-control-plane/envoy/extensions/access_loggers/stream/v3"
	hcm "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	tcp "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"
	detectors "github.com/envoyproxy/go-control-plane/envoy/extensions/tracers/opentelemetry/resource_detectors/v3"
	samplers "github.com/envoyproxy/go-control-plane/envoy/extensions/tracers/opentelemetry/samplers/v3"
	tag "github.com/envoyproxy/go-control-plane/envoy/type/tracing/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"outrider.dev/internal/base/telemetry"
	"outrider.dev/internal/core/xds/message"
	"outrider.dev/internal/core/xds/names"
)

// ExportTimeout limits one export of spans to a collector.
const ExportTimeout = 10 * time.Second

// Limits of the statistics of one proxy; beyond them nothing is counted. Clients cannot choose the
// value of a label, but servers choose status codes, and there may be any number of peers.
const (
	maxCounters   = 20_000
	maxHistograms = 5_000
	maxOldTLS     = 100 // clients that use TLS 1.2
)

// Listener adds access logs, tracing and request statistics to the filters of a listener. Sampling is the
// proxy's own percentage of traced requests, or empty. Services are the services of an inbound listener,
// by port.
func Listener(l *listener.Listener, s telemetry.Settings, sampling string, services map[uint16]telemetry.Service) *listener.Listener {
	o := observer{s: s, sampling: sampling, outbound: l.TrafficDirection == core.TrafficDirection_OUTBOUND}
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

// OldTLS counts the connections by mutual TLS 1.2, by the identity of the client, when they end.
func OldTLS() *accesslog.AccessLog {
	return accessLog("envoy.access_loggers.stats", matching(`has(connection.tls_version) && connection.tls_version == "TLSv1.2"`), &stats.Config{
		StatsScope: &typev3.Scope{Prefix: telemetry.OldTLS, SharingName: telemetry.OldTLS, MaxCounters: wrapperspb.UInt32(maxOldTLS)},
		Counters:   []*stats.Config_Counter{counter(telemetry.OldTLSTotal, "", tagsOf(telemetry.TagPrincipal, "%DOWNSTREAM_PEER_URI_SAN%"))},
	})
}

type observer struct {
	s        telemetry.Settings
	sampling string // of the proxy, see features.samplingOf
	outbound bool
}

func (o observer) filter(f *listener.Filter, s telemetry.Service) {
	if m := (&hcm.HttpConnectionManager{}); f.GetTypedConfig().MessageIs(m) {
		if f.GetTypedConfig().UnmarshalTo(m) == nil {
			o.http(m, s)
			f.ConfigType = &listener.Filter_TypedConfig{TypedConfig: message.Typed(m)}
		}
		return
	}
	if p := (&tcp.TcpProxy{}); f.GetTypedConfig().MessageIs(p) {
		if f.GetTypedConfig().UnmarshalTo(p) == nil {
			o.bytes(p, s)
			f.ConfigType = &listener.Filter_TypedConfig{TypedConfig: message.Typed(p)}
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
	if o.s.Tracing.On() && m.StatPrefix != names.Internal {
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

// leavesProxy matches everything except traffic to a listener inside of Envoy: that listener observes the
// traffic itself.
func leavesProxy() *accesslog.AccessLogFilter {
	return matching(`!(has(upstream.address) && upstream.address.startsWith("envoy://"))`)
}

// matching matches what a CEL expression is true for.
func matching(expression string) *accesslog.AccessLogFilter {
	return &accesslog.AccessLogFilter{FilterSpecifier: &accesslog.AccessLogFilter_ExtensionFilter{ExtensionFilter: &accesslog.ExtensionFilter{
		Name: "envoy.access_loggers.extension_filters.cel",
		ConfigType: &accesslog.ExtensionFilter_TypedConfig{TypedConfig: message.Typed(&cel.ExpressionFilter{
			Expression: expression,
		})},
	}}}
}

func isGRPC(yes bool) *accesslog.AccessLogFilter {
	h := message.HeaderMatch("content-type", message.Prefixed("application/grpc"))
	h.InvertMatch, h.TreatMissingHeaderAsEmpty = !yes, true
	return message.HeaderFilter(h)
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
	return message.Both(a, b)
}

// log writes lines to Envoy's standard output, which is also the agent's standard output; no file is opened.
func (o observer) log(which *accesslog.AccessLogFilter) *accesslog.AccessLog {
	format := &core.SubstitutionFormatString{}
	if text := o.s.AccessLog.Text; text != "" {
		format.Format = &core.SubstitutionFormatString_TextFormatSource{TextFormatSource: message.Inline(text)}
	} else {
		object, err := structpb.NewStruct(o.s.AccessLog.JSON)
		if err != nil { // the conversion cannot fail: the object was parsed from JSON
			object = &structpb.Struct{}
		}
		format.Format = &core.SubstitutionFormatString_JsonFormat{JsonFormat: object}
	}
	return accessLog("envoy.access_loggers.stdout", which, &stream.StdoutAccessLog{
		AccessLogFormat: &stream.StdoutAccessLog_LogFormat{LogFormat: format},
	})
}

func accessLog(name string, which *accesslog.AccessLogFilter, config proto.Message) *accesslog.AccessLog {
	return &accesslog.AccessLog{Name: name, Filter: which, ConfigType: &accesslog.AccessLog_TypedConfig{TypedConfig: message.Typed(config)}}
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

// counter returns a counter that adds the value of a format; 1 if the format is empty.
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
		MaxCounters: wrapperspb.UInt32(maxCounters), MaxHistograms: wrapperspb.UInt32(maxHistograms),
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
	const tracer = "envoy.tracers.opentelemetry"
	config := &trace.OpenTelemetryConfig{ResourceDetectors: []*core.TypedExtensionConfig{
		message.Extension(tracer+".resource_detectors.environment", &detectors.EnvironmentResourceDetectorConfig{}),
	}}
	t := o.s.Tracing
	if t.Path == "" {
		config.GrpcService = &core.GrpcService{TargetSpecifier: &core.GrpcService_EnvoyGrpc_{
			EnvoyGrpc: &core.GrpcService_EnvoyGrpc{ClusterName: names.Tracing, Authority: t.Authority()},
		}}
	} else {
		config.HttpService = &core.HttpService{HttpUri: &core.HttpUri{
			Uri: "http://" + t.Authority() + t.Path, Timeout: durationpb.New(ExportTimeout),
			HttpUpstreamType: &core.HttpUri_Cluster{Cluster: names.Tracing},
		}}
	}
	sampling := t.Sampling
	if own, err := strconv.ParseFloat(o.sampling, 64); err == nil {
		sampling = own
	}
	// Without a sampler Envoy decides by its own request ID and ignores the W3C headers.
	ratio := message.Extension(tracer+".samplers.trace_id_ratio_based", &samplers.TraceIdRatioBasedSamplerConfig{SamplingPercentage: message.Share(sampling)})
	config.Sampler = message.Extension(tracer+".samplers.parent_based", &samplers.ParentBasedSamplerConfig{WrappedSampler: ratio})
	all := &typev3.Percent{Value: 100} // the sampler decides
	return &hcm.HttpConnectionManager_Tracing{
		ClientSampling: all, RandomSampling: all, OverallSampling: all,
		CustomTags: []*tag.CustomTag{{Tag: "http.url", Type: &tag.CustomTag_Value{Value: "%REQ(:SCHEME)%://%REQ(:AUTHORITY)%%PATH(NQ:ORIG_OR_PATH)%"}}},
		Provider:   &trace.Tracing_Http{Name: tracer, ConfigType: &trace.Tracing_Http_TypedConfig{TypedConfig: message.Typed(config)}},
	}
}
