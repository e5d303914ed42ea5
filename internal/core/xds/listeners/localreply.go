package listeners

import (
	accesslog "github.com/envoyproxy/go-control-plane/envoy/config/accesslog/v3"
	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	hcm "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	matcher "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"

	"outrider.dev/internal/core/xds/message"
	"outrider.dev/internal/core/xds/retry"
	"outrider.dev/internal/core/xds/routes"
)

// Variables in the responses that Envoy creates itself.
const (
	calledHost    = "%REQ(" + routes.HostHeader + "?:AUTHORITY)%" // as the client sent it
	calledAddress = "%DOWNSTREAM_LOCAL_ADDRESS%"
	envoyMessage  = "%LOCAL_REPLY_BODY%"
)

// A localReply is the text for one of Envoy's response flags.
type localReply struct {
	flag, message string
	replaceBody   bool   // Envoy has no text for the flag, or too short a text
	again         string // private header by which the caller's proxy tries again; empty: it must not
	safe          bool   // the text and the header are for safe methods only
}

var (
	noCluster = localReply{flag: "NC", message: "the control plane sent no cluster for this address in time; services used before are not affected", replaceBody: true}
	// The agent's stand-in cluster sets this flag, see [snapshot.Away].
	noControlPlane = localReply{flag: "UDO", message: "the control plane is away, and this proxy has not used this service before", replaceBody: true}
	noVirtualHost  = localReply{flag: "SI", message: "the control plane sent no routes of this service in time", replaceBody: true} // only in httpRouteByService
	noRoute        = localReply{flag: "NR", message: "no route of this service matches", replaceBody: true}
	timedOut       = localReply{flag: "UT", message: "no response within the timeout of the route"}
	noEndpoint     = localReply{flag: "UH", message: "no endpoint is ready"}
	refused        = localReply{flag: "UF", message: "no connection to %UPSTREAM_HOST%: " + envoyMessage}
	unreached      = localReply{flag: refused.flag, message: refused.message, again: retry.UnreachedHeader} // for inbound requests
	unanswered     = localReply{flag: "UC", message: "the application ended the connection before it answered", again: retry.UnansweredHeader, safe: true}
	// With TLS 1.3 a server refuses the client's certificate after the client has connected and sent its request, so
	// Envoy knows nothing of it but the end of the connection.
	ended = localReply{flag: "UC", message: "%UPSTREAM_HOST% (TLS: %UPSTREAM_TLS_VERSION%) ended the connection before it answered: " + envoyMessage} // for outbound requests
)

// localReplies sets the body of responses that Envoy creates itself: a line of text, or JSON if the
// client accepts that. A gRPC client gets the line as its status message.
func localReplies(direction string, replies []localReply) *hcm.LocalReplyConfig {
	line := func(what string) *core.SubstitutionFormatString {
		return &core.SubstitutionFormatString{Format: &core.SubstitutionFormatString_TextFormatSource{
			TextFormatSource: message.Inline("outrider (" + direction + "): " + calledHost + " at " + calledAddress + ": " + what +
				" (%RESPONSE_FLAGS%, %RESPONSE_CODE_DETAILS%)\n"),
		}}
	}
	object := &core.SubstitutionFormatString{Format: &core.SubstitutionFormatString_JsonFormat{JsonFormat: message.Fields(map[string]string{
		"proxy": direction, "host": calledHost, "address": calledAddress, "upstream": "%UPSTREAM_HOST%",
		"reason": "%RESPONSE_FLAGS_LONG%", "details": "%RESPONSE_CODE_DETAILS%", "message": envoyMessage,
	})}}
	out := &hcm.LocalReplyConfig{}
	add := func(m *hcm.ResponseMapper) { out.Mappers = append(out.Mappers, m) } // the first match is used
	for _, c := range replies {
		m := &hcm.ResponseMapper{Filter: message.Both(wantsJSON(), c.filter()), HeadersToAdd: c.headers(), BodyFormatOverride: object}
		if c.replaceBody {
			m.Body = message.Inline(c.message)
		}
		if c.replaceBody || c.again != "" {
			add(m)
		}
	}
	add(&hcm.ResponseMapper{Filter: message.Both(wantsJSON(), flagged()), BodyFormatOverride: object})
	for _, c := range replies {
		add(&hcm.ResponseMapper{Filter: c.filter(), HeadersToAdd: c.headers(), BodyFormatOverride: line(c.message)})
	}
	add(&hcm.ResponseMapper{Filter: flagged(), BodyFormatOverride: line(envoyMessage)})
	return out
}

func (r localReply) headers() []*core.HeaderValueOption {
	if r.again == "" {
		return nil
	}
	return []*core.HeaderValueOption{message.Header(r.again, "%DOWNSTREAM_TLS_VERSION%", core.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD)}
}

func (r localReply) filter() *accesslog.AccessLogFilter {
	if r.safe {
		return message.Both(flagged(r.flag), message.HeaderFilter(retry.Safe()))
	}
	return flagged(r.flag)
}

// flagged matches responses with one of these flags or, without arguments, with any flag. Redirects have no flag.
func flagged(flags ...string) *accesslog.AccessLogFilter {
	return &accesslog.AccessLogFilter{FilterSpecifier: &accesslog.AccessLogFilter_ResponseFlagFilter{
		ResponseFlagFilter: &accesslog.ResponseFlagFilter{Flags: flags},
	}}
}

func wantsJSON() *accesslog.AccessLogFilter {
	return message.HeaderFilter(message.HeaderMatch("accept", &matcher.StringMatcher{MatchPattern: &matcher.StringMatcher_Contains{Contains: "application/json"}}))
}
