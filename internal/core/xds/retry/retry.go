// Package retry determines which connections and requests are tried again, how often and where. Requests and bytes
// that no application has begun to read are sent again, to another endpoint if there is one. A request that an
// application may have read is sent again only if its method is safe ([Safe]): at most twice if the application ended
// the connection, and as often as a connection if the endpoint's proxy did ([WhenEnded]).
package retry

import (
	"slices"
	"strconv"
	"strings"
	"time"

	cluster "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	mutation "github.com/envoyproxy/go-control-plane/envoy/config/common/mutation_rules/v3"
	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	route "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	previous "github.com/envoyproxy/go-control-plane/envoy/extensions/retry/host/previous_hosts/v3"
	priorities "github.com/envoyproxy/go-control-plane/envoy/extensions/retry/priority/previous_priorities/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"outrider.dev/internal/core/xds/message"
)

const (
	// UnreachedHeader is set in a response by an inbound proxy that could not connect to its
	// application: no byte of the request reached the application, so the request may be sent to
	// another endpoint, whatever its method. Both proxies remove it from the responses of applications,
	// and clients do not get it. It is sent and accepted with mutual TLS only, because a server without
	// a proxy may pass on the header from a server that it has called.
	UnreachedHeader = "x-outrider-unreached"

	// UnansweredHeader is set in a response by an inbound proxy whose connection to the application ended after the
	// request was sent and before a byte of the answer came, if the method of the request is safe. It is removed,
	// sent and accepted as UnreachedHeader is.
	UnansweredHeader = "x-outrider-unanswered"

	// unanswered is the last attempt of a request that is followed by another one because of UnansweredHeader. So
	// three applications get a request at most, as with Istio's two retries: a request may be the reason why
	// an application ends.
	unanswered = 2

	// Tries is the maximum number of attempts for a connection or a request. Envoy chooses each pause between
	// attempts at random, from zero to a bound; together the pauses last 5.3 s on average, and more than 2.5 s in
	// 999 of 1,000 requests. In that time a proxy or an application restarts, and a failing endpoint is ejected.
	// If there is only one endpoint and it does not answer, Envoy gives up after 37 s; with Istio that takes half
	// a minute, 3 attempts of 10 s.
	Tries                    = 16
	FirstPause, LongestPause = 25 * time.Millisecond, time.Second
)

// Default retries requests that no application has begun to read, on another endpoint if there
// is one. If there are two endpoints, a single selection chooses the failed one again half of the time;
// with up to ten selections, one retry in a thousand does.
//
// A failed connection ends one attempt of each request that waits for a connection to that endpoint, including
// requests that arrived after the connection was begun. Without pauses, many requests would use up their attempts
// within milliseconds.
//
// With TLS 1.3 a request is sent together with the client's certificate. If the server refuses that, Envoy sees a
// connection that ended after the request was sent, and sends it again only if it is safe: see [WhenEnded].
func Default() *route.RetryPolicy {
	p := On("connect-failure,refused-stream,reset-before-request,retriable-headers")
	p.RetryHostPredicate = []*route.RetryPolicy_RetryHostPredicate{{
		Name:       "envoy.retry_host_predicates.previous_hosts",
		ConfigType: &route.RetryPolicy_RetryHostPredicate_TypedConfig{TypedConfig: message.Typed(&previous.PreviousHostsPredicate{})},
	}}
	p.HostSelectionRetryMaxAttempts = 10
	// The near endpoints have a separate priority, which is given up after an attempt there has failed: see
	// Endpoints in package clusters.
	p.RetryPriority = &route.RetryPolicy_RetryPriority{
		Name:       "envoy.retry_priorities.previous_priorities",
		ConfigType: &route.RetryPolicy_RetryPriority_TypedConfig{TypedConfig: message.Typed(&priorities.PreviousPrioritiesConfig{UpdateFrequency: 1})},
	}
	return p
}

// On returns a policy that retries on these conditions, at any endpoint.
func On(on string) *route.RetryPolicy {
	return &route.RetryPolicy{
		RetryOn:      on,
		NumRetries:   wrapperspb.UInt32(Tries - 1),
		RetryBackOff: &route.RetryPolicy_RetryBackOff{BaseInterval: durationpb.New(FirstPause), MaxInterval: durationpb.New(LongestPause)},
		RetriableHeaders: []*route.HeaderMatcher{
			message.HeaderMatch(UnreachedHeader, message.Prefixed("TLS")),
			message.HeaderMatch(UnansweredHeader, message.Regex("TLS.* [1-"+strconv.Itoa(unanswered)+"] ("+safe()+")")),
		},
	}
}

// safeMethods are the safe methods of RFC 9110, section 9.2.1, without TRACE, which is for debugging. The section after
// it allows proxies to repeat PUT and DELETE too. They are not repeated here: the client can see the difference if the
// application had carried the first one out (the second DELETE is answered by 404, the second PUT undoes the change that
// another client has made meanwhile).
var safeMethods = []string{"GET", "HEAD", "OPTIONS"}

// safe returns the regular expression of the safe methods.
func safe() string { return strings.Join(safeMethods, "|") }

// Safe matches the requests that may be sent again although an application may have read them.
func Safe() *route.HeaderMatcher { return message.HeaderMatch(":method", message.Regex(safe())) }

// Private returns the names of the headers that no client and no application must get or set.
func Private() []string { return []string{UnreachedHeader, UnansweredHeader} }

// Checked returns the changes of an endpoint's response that give its private headers their values for the conditions
// of [On]: the TLS version of the connection to the endpoint, the number of the attempt and the method of the request. So
// an endpoint that breaks the rules has no other request repeated. Without TLS the first header is removed, and the
// other one matches nothing.
func Checked() []*mutation.HeaderMutation {
	var out []*mutation.HeaderMutation
	for _, h := range [][2]string{{UnreachedHeader, "%UPSTREAM_TLS_VERSION%"}, {UnansweredHeader, "%UPSTREAM_TLS_VERSION% %UPSTREAM_REQUEST_ATTEMPT_COUNT% %REQ(:METHOD)%"}} {
		out = append(out, &mutation.HeaderMutation{Action: &mutation.HeaderMutation_Append{
			Append: message.Header(h[0], h[1], core.HeaderValueOption_OVERWRITE_IF_EXISTS),
		}})
	}
	return out
}

// onReset is the condition that a connection ended, or a stream was reset, before a byte of the answer came.
const onReset = "reset"

// The metadata of a cluster with the conditions on which its safe requests are tried again, besides those of the route.
const (
	metadataNamespace = "outrider"
	metadataKey       = "safe-retry-on"
)

// WhenEnded has the safe requests to a cluster tried again if the connection to the endpoint ends, or the endpoint resets
// the stream, before a byte of the answer came. It is for clusters whose endpoints have proxies that answer for their
// application if that ends a connection: then only the end of such a proxy, or its refusal of the client's certificate,
// ends the connection to it. Otherwise a request by which applications crash would reach [Tries] of them.
func WhenEnded(c *cluster.Cluster) {
	if c.Metadata == nil {
		c.Metadata = &core.Metadata{FilterMetadata: map[string]*structpb.Struct{}}
	}
	c.Metadata.FilterMetadata[metadataNamespace] = message.Fields(map[string]string{metadataKey: onReset})
}

// Routes puts before each route one for its safe requests, which are tried again on the conditions in the metadata of
// their cluster too. Neither a route nor a cluster can have conditions that depend on the method of a request, but Envoy
// reads further ones from a request header, which it removes.
func Routes(of ...*route.Route) []*route.Route {
	var out []*route.Route
	for _, r := range of {
		if a := r.GetRoute(); a != nil && r.Match.Grpc == nil && !slices.Contains(strings.Split(a.GetRetryPolicy().GetRetryOn(), ","), onReset) {
			one := proto.Clone(r).(*route.Route)
			one.Match.Headers = append(one.Match.Headers, Safe())
			one.RequestHeadersToAdd = append(one.RequestHeadersToAdd, message.Header("x-envoy-retry-on",
				"%CLUSTER_METADATA("+metadataNamespace+":"+metadataKey+")%", core.HeaderValueOption_APPEND_IF_EXISTS_OR_ADD))
			out = append(out, one)
		}
		out = append(out, r)
	}
	return out
}
