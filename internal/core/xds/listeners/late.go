package listeners

import (
	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listener "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	"google.golang.org/protobuf/types/known/durationpb"

	"outrider.dev/internal/core/xds/features"
	"outrider.dev/internal/core/xds/names"
)

// A listener for a port number waits sniffTimeout for the first bytes of a connection, because the
// server may be the one that speaks first. If the service declares HTTP, a connection that stays silent
// goes on to an internal listener, which waits for the bytes without connecting to the server.

// Late serves the application's silent connections to ports that declare HTTP. It waits without
// a limit; the connections end with the application.
func (b Builder) Late(sh features.Features) *listener.Listener {
	l := internal(names.Late, core.TrafficDirection_OUTBOUND)
	l.ListenerFilters = []*listener.ListenerFilter{originalDestination(), httpInspector()}
	l.ListenerFiltersTimeout = durationpb.New(0)
	l.FilterChains = append([]*listener.FilterChain{b.httpByAddress(b.firstUse(sh))}, b.bytesByAddress(names.Raw, b.firstUse(sh))...)
	return l
}
