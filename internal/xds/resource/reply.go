package resource

import (
	accesslog "github.com/envoyproxy/go-control-plane/envoy/config/accesslog/v3"
	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	route "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	hcm "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	matcher "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/protobuf/types/known/structpb"
)

// Parts of what Envoy says of a request that it answers itself.
const (
	calledHost    = "%REQ(" + hostHeader + "?:AUTHORITY)%" // as the caller wrote it
	calledAddress = "%DOWNSTREAM_LOCAL_ADDRESS%"
	envoysWords   = "%LOCAL_REPLY_BODY%"
)

// A cause is why Envoy answers in another's place, by its flag.
type cause struct {
	flag, words string
	mute        bool // Envoy has no words for it, or too few
}

var (
	unknown = cause{"NC", "the control plane did not say in time where this is; services used before are not affected", true}
	waited  = cause{"SI", "the control plane did not say in time what the routes of this service are", true} // only byService waits
	noRoute = cause{"NR", "no route of this service matches", true}
	late    = cause{"UT", "no answer within the timeout of the route", false}
	empty   = cause{"UH", "no endpoint is ready", false}
	refused = cause{"UF", "no connection to %UPSTREAM_HOST%: " + envoysWords, false}
)

// replies are what Envoy answers itself, with the status that it chose: a line of text, or
// JSON for who wants that. A gRPC client gets the line as its status's message.
func replies(direction string, causes []cause) *hcm.LocalReplyConfig {
	line := func(words string) *core.SubstitutionFormatString {
		return &core.SubstitutionFormatString{Format: &core.SubstitutionFormatString_TextFormatSource{
			TextFormatSource: inline("outrider (" + direction + "): " + calledHost + " at " + calledAddress + ": " + words +
				" (%RESPONSE_FLAGS%, %RESPONSE_CODE_DETAILS%)\n"),
		}}
	}
	object := &core.SubstitutionFormatString{Format: &core.SubstitutionFormatString_JsonFormat{JsonFormat: fields(map[string]string{
		"proxy": direction, "host": calledHost, "address": calledAddress, "upstream": "%UPSTREAM_HOST%",
		"reason": "%RESPONSE_FLAGS_LONG%", "details": "%RESPONSE_CODE_DETAILS%", "message": envoysWords,
	})}}
	out := &hcm.LocalReplyConfig{}
	add := func(m *hcm.ResponseMapper) { out.Mappers = append(out.Mappers, m) } // the first that matches counts
	for _, c := range causes {
		if c.mute {
			add(&hcm.ResponseMapper{Filter: both(wantsJSON(), flagged(c.flag)), Body: inline(c.words), BodyFormatOverride: object})
		}
	}
	add(&hcm.ResponseMapper{Filter: both(wantsJSON(), flagged()), BodyFormatOverride: object})
	for _, c := range causes {
		add(&hcm.ResponseMapper{Filter: flagged(c.flag), BodyFormatOverride: line(c.words)})
	}
	add(&hcm.ResponseMapper{Filter: flagged(), BodyFormatOverride: line(envoysWords)})
	return out
}

// flagged are replies with one of these flags, or with any. A redirect has none, and stays
// as it is.
func flagged(flags ...string) *accesslog.AccessLogFilter {
	return &accesslog.AccessLogFilter{FilterSpecifier: &accesslog.AccessLogFilter_ResponseFlagFilter{
		ResponseFlagFilter: &accesslog.ResponseFlagFilter{Flags: flags},
	}}
}

func both(a, b *accesslog.AccessLogFilter) *accesslog.AccessLogFilter {
	return &accesslog.AccessLogFilter{FilterSpecifier: &accesslog.AccessLogFilter_AndFilter{
		AndFilter: &accesslog.AndFilter{Filters: []*accesslog.AccessLogFilter{a, b}},
	}}
}

func wantsJSON() *accesslog.AccessLogFilter {
	return &accesslog.AccessLogFilter{FilterSpecifier: &accesslog.AccessLogFilter_HeaderFilter{HeaderFilter: &accesslog.HeaderFilter{
		Header: &route.HeaderMatcher{Name: "accept", HeaderMatchSpecifier: &route.HeaderMatcher_StringMatch{
			StringMatch: &matcher.StringMatcher{MatchPattern: &matcher.StringMatcher_Contains{Contains: "application/json"}},
		}},
	}}}
}

func fields(of map[string]string) *structpb.Struct {
	out := &structpb.Struct{Fields: map[string]*structpb.Value{}}
	for name, value := range of {
		out.Fields[name] = structpb.NewStringValue(value)
	}
	return out
}

func inline(s string) *core.DataSource {
	return &core.DataSource{Specifier: &core.DataSource_InlineString{InlineString: s}}
}
