// Package retry determines which connections and requests are tried again, how often and where. Only requests and
// bytes that no application has begun to read are sent again, to another endpoint if there is one.
package retry

import (
	"time"

	route "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	previous "github.com/envoyproxy/go-control-plane/envoy/extensions/retry/host/previous_hosts/v3"
	priorities "github.com/envoyproxy/go-control-plane/envoy/extensions/retry/priority/previous_priorities/v3"
	"google.golang.org/protobuf/types/known/durationpb"
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
		RetriableHeaders: []*route.HeaderMatcher{{
			Name: UnreachedHeader, HeaderMatchSpecifier: &route.HeaderMatcher_StringMatch{StringMatch: message.Prefixed("TLS")},
		}},
	}
}
