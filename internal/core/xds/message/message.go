// Package message makes the small messages of Envoy's API of which resources consist: filters and other
// extensions with their typed configuration, addresses, headers, matchers of texts.
package message

import (
	"math"
	"net/netip"
	"time"

	accesslog "github.com/envoyproxy/go-control-plane/envoy/config/accesslog/v3"
	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listener "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	route "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	hcm "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	matcher "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// TransportSocket returns a transport socket; its name has Envoy's prefix.
func TransportSocket(name string, config proto.Message) *core.TransportSocket {
	return &core.TransportSocket{Name: "envoy.transport_sockets." + name, ConfigType: &core.TransportSocket_TypedConfig{TypedConfig: Typed(config)}}
}

// Typed returns a message with its type, or nil if a string is not UTF-8. The same message has the same
// bytes in each process.
func Typed(m proto.Message) *anypb.Any {
	out := &anypb.Any{}
	if err := anypb.MarshalFrom(out, m, proto.MarshalOptions{Deterministic: true}); err != nil {
		return nil
	}
	return out
}

// ADS returns a config source that takes a resource from the proxy's only ADS stream. The timeout limits the wait
// for the first version of the resource; 0 means no limit.
func ADS(timeout time.Duration) *core.ConfigSource {
	return &core.ConfigSource{
		ResourceApiVersion:    core.ApiVersion_V3,
		ConfigSourceSpecifier: &core.ConfigSource_Ads{Ads: &core.AggregatedConfigSource{}},
		InitialFetchTimeout:   durationpb.New(timeout),
	}
}

// SocketAddress returns Envoy's form of an IP address or host name and a TCP port.
func SocketAddress(host string, port uint16) *core.Address {
	return &core.Address{Address: &core.Address_SocketAddress{SocketAddress: &core.SocketAddress{
		Address: host, PortSpecifier: &core.SocketAddress_PortValue{PortValue: uint32(port)},
	}}}
}

// CIDR returns a range of addresses.
func CIDR(p netip.Prefix) *core.CidrRange {
	return &core.CidrRange{AddressPrefix: p.Addr().String(), PrefixLen: wrapperspb.UInt32(uint32(p.Bits()))}
}

// Anything matches all requests.
func Anything() *route.RouteMatch {
	return &route.RouteMatch{PathSpecifier: &route.RouteMatch_Prefix{Prefix: "/"}}
}

// HTTPFilter returns a filter of requests.
func HTTPFilter(name string, config proto.Message) *hcm.HttpFilter {
	return &hcm.HttpFilter{Name: name, ConfigType: &hcm.HttpFilter_TypedConfig{TypedConfig: Typed(config)}}
}

// ListenerFilter returns a filter of new connections.
func ListenerFilter(name string, config proto.Message) *listener.ListenerFilter {
	return &listener.ListenerFilter{Name: name, ConfigType: &listener.ListenerFilter_TypedConfig{TypedConfig: Typed(config)}}
}

// NetworkFilter returns a filter of a chain.
func NetworkFilter(name string, config proto.Message) *listener.Filter {
	return &listener.Filter{Name: name, ConfigType: &listener.Filter_TypedConfig{TypedConfig: Typed(config)}}
}

// Header returns an option that sets a header, or appends to it.
func Header(name, value string, how core.HeaderValueOption_HeaderAppendAction) *core.HeaderValueOption {
	return &core.HeaderValueOption{Header: &core.HeaderValue{Key: name, Value: value}, AppendAction: how}
}

// Both returns a filter that matches what both a and b match.
func Both(a, b *accesslog.AccessLogFilter) *accesslog.AccessLogFilter {
	return &accesslog.AccessLogFilter{FilterSpecifier: &accesslog.AccessLogFilter_AndFilter{
		AndFilter: &accesslog.AndFilter{Filters: []*accesslog.AccessLogFilter{a, b}},
	}}
}

// HeaderFilter returns a filter that matches what h matches.
func HeaderFilter(h *route.HeaderMatcher) *accesslog.AccessLogFilter {
	return &accesslog.AccessLogFilter{FilterSpecifier: &accesslog.AccessLogFilter_HeaderFilter{HeaderFilter: &accesslog.HeaderFilter{Header: h}}}
}

// HeaderMatch matches requests, or responses, with a header whose value v matches.
func HeaderMatch(name string, v *matcher.StringMatcher) *route.HeaderMatcher {
	return &route.HeaderMatcher{Name: name, HeaderMatchSpecifier: &route.HeaderMatcher_StringMatch{StringMatch: v}}
}

// Fields returns an object whose values are strings.
func Fields(of map[string]string) *structpb.Struct {
	out := &structpb.Struct{Fields: map[string]*structpb.Value{}}
	for name, value := range of {
		out.Fields[name] = structpb.NewStringValue(value)
	}
	return out
}

// Inline returns a data source that contains s itself.
func Inline(s string) *core.DataSource {
	return &core.DataSource{Specifier: &core.DataSource_InlineString{InlineString: s}}
}

// Exactly matches one text.
func Exactly(v string) *matcher.StringMatcher {
	return &matcher.StringMatcher{MatchPattern: &matcher.StringMatcher_Exact{Exact: v}}
}

// Prefixed matches texts that begin with v.
func Prefixed(v string) *matcher.StringMatcher {
	return &matcher.StringMatcher{MatchPattern: &matcher.StringMatcher_Prefix{Prefix: v}}
}

// Regex matches a text if the regular expression v matches the whole of it.
func Regex(v string) *matcher.StringMatcher {
	return &matcher.StringMatcher{MatchPattern: &matcher.StringMatcher_SafeRegex{SafeRegex: &matcher.RegexMatcher{Regex: v}}}
}

// Extension returns the configuration of an extension.
func Extension(name string, config proto.Message) *core.TypedExtensionConfig {
	return &core.TypedExtensionConfig{Name: name, TypedConfig: Typed(config)}
}

// Share converts a percentage to a fraction, rounded to millionths.
func Share(percent float64) *typev3.FractionalPercent {
	return &typev3.FractionalPercent{Numerator: uint32(math.Round(percent * 10_000)), Denominator: typev3.FractionalPercent_MILLION}
}
