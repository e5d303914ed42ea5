package resource_test

import (
	"testing"

	"outrider.dev/test/mutants"
)

// The test mutates each line of the rules in Diff.
func TestMutantsOfDiff(t *testing.T) {
	mutants.Run(t, "TestDiffOfAnyHistory", map[string]mutants.Mutant{
		"a service's addresses are forgotten":      {File: "diff.go", From: `d.name(xds.ClusterType, names.Address{Prefix: prefix, To: to}.String())`, To: ``},
		"a service's clusters are forgotten":       {File: "diff.go", From: `d.name(xds.ClusterType, name)`, To: ``},
		"a service's endpoints are forgotten":      {File: "diff.go", From: `d.name(xds.EndpointType, name)`, To: ``},
		"endpoints' addresses are forgotten":       {File: "diff.go", From: `d.addresses.add(e.Addr)`, To: ``},
		"the old service is forgotten":             {File: "diff.go", From: `d.service(c.Old)`, To: ``},
		"the new service is forgotten":             {File: "diff.go", From: `d.service(c.New)`, To: ``},
		"routes are forgotten":                     {File: "diff.go", From: `!sameRoutes(c.Old, c.New)`, To: `false`},
		"others' faults are forgotten":             {File: "diff.go", From: `!mesh.SameFaults(c.Old, c.New)`, To: `false`},
		"backends of others' routes are forgotten": {File: "diff.go", From: `!sameForRoutes(c.Old, c.New)`, To: `false`},
		"own virtual hosts are forgotten":          {File: "diff.go", From: `d.name(xds.VirtualHostType, names.Target{Service: s, Port: &s.Ports[i], Family: f}.VirtualHost())`, To: ``},
		"own route configurations are forgotten":   {File: "diff.go", From: `d.name(xds.RouteType, names.Service(s, s.Ports[i].Number, names.Primary))`, To: ``},
		"listeners do not follow fronts":           {File: "diff.go", From: `frontend || len(workloads) > 0`, To: `len(workloads) > 0`},
		"listeners do not follow workloads":        {File: "diff.go", From: `frontend || len(workloads) > 0`, To: `frontend`},
		"listeners do not follow counted services": {File: "diff.go", From: `len(services) > 0 && t.Metrics`, To: `false`, Tests: "TestDiffWhereRequestsAreCounted"},
		"listeners do not follow policies":         {File: "diff.go", From: `!v.mesh.SameAuthorization(o.mesh)`, To: `false`},
		"endpoints do not follow nodes":            {File: "diff.go", From: `!v.mesh.SameNodes(o.mesh)`, To: `false`, Tests: "TestDiffOfAZoneOfANode"},
		"endpoints do not follow moved clients":    {File: "diff.go", From: `slices.ContainsFunc(workloads, moved)`, To: `false`},
		"the set of clusters is forgotten":         {File: "diff.go", From: `clusters.Wildcard = frontend`, To: ``},
		"networks are forgotten":                   {File: "diff.go", From: `!o.serviceNetworks().Equal(v.serviceNetworks())`, To: `!o.serviceNetworks().Equal(o.serviceNetworks())`},
		"the collector is forgotten":               {File: "diff.go", From: `d.name(xds.ClusterType, names.Tracing)`, To: ``},
		"a workload's old address is forgotten":    {File: "diff.go", From: `d.workload(c.Old)`, To: ``},
		"a workload's new address is forgotten":    {File: "diff.go", From: `d.workload(c.New)`, To: ``},
		"a service's protocol counts for nothing":  {File: "diff.go", From: `slices.Equal(a.Ports, b.Ports)`, To: `true`},
		"visibility counts for nothing":            {File: "diff.go", From: `slices.Equal(a.ExportTo, b.ExportTo)`, To: `true`},
		"External counts for nothing":              {File: "diff.go", From: `a.External == b.External`, To: `true`},
		"the primary family counts for nothing":    {File: "diff.go", From: `names.PrimaryOf(a) == names.PrimaryOf(b)`, To: `true`},
		"addresses count for nothing":              {File: "diff.go", From: `slices.Equal(a.Addresses, b.Addresses)`, To: `true`},
	})
}

// The test mutates what the builders put into each kind of resource.
func TestMutantsOfBuilders(t *testing.T) {
	mutants.Run(t, "TestGolden", map[string]mutants.Mutant{
		// Outbound listeners.
		"captured connections go to another port":    {File: "../listeners/outbound.go", From: `sh.Wildcards(contract.OutboundPort)`, To: `sh.Wildcards(contract.InboundPort)`},
		"connections stay in the first listener":     {File: "../listeners/outbound.go", From: `l.UseOriginalDst = wrapperspb.Bool(true)`, To: ``},
		"the proxy's own ports are not closed":       {File: "../listeners/outbound.go", From: `append(rejectOwnPorts(), b.bytesByAddress(names.TCP, b.firstUse(sh))...)`, To: `b.bytesByAddress(names.TCP, b.firstUse(sh))`},
		"early connections wait as long as others":   {File: "../listeners/outbound.go", From: `max(b.firstUse(sh), earlyFirstUseTimeout)`, To: `b.firstUse(sh)`},
		"a header is read after it was inspected":    {File: "../listeners/outbound.go", From: `detect(l, sniffTimeout, proxyProtocol(), inspect)`, To: `detect(l, sniffTimeout, inspect, proxyProtocol())`},
		"a listener for a port number binds it":      {File: "../listeners/outbound.go", In: "sh.Wildcards(port)...)\n\tl.BindToPort = wrapperspb.Bool(false)", From: `l.BindToPort = wrapperspb.Bool(false)`, To: ``},
		"Envoy's timeout of 15 s for first bytes":    {File: "../listeners/outbound.go", From: `l.ListenerFiltersTimeout = durationpb.New(timeout)`, To: ``},
		"a silent connection is closed":              {File: "../listeners/outbound.go", From: `l.ContinueOnListenerFiltersTimeout = true`, To: ``},
		"HTTP is not detected in ranges of services": {File: "../listeners/outbound.go", From: `append(cidrs(b.networksWithoutServices()), cidrs(b.Ranges)...)`, To: `cidrs(b.networksWithoutServices())`},
		"connections to services are tried once":     {File: "../listeners/outbound.go", From: `p.MaxConnectAttempts = wrapperspb.UInt32(retry.Tries)`, To: ``},
		"idle connections are closed":                {File: "../listeners/outbound.go", In: `IdleTimeout:      durationpb.New(0)`, From: `durationpb.New(0)`, To: `durationpb.New(time.Hour)`},
		"a first use has no timeout":                 {File: "../listeners/outbound.go", From: `&tcp.TcpProxy_OnDemand{OdcdsConfig: message.ADS(0), Timeout: durationpb.New(timeout)}`, To: `&tcp.TcpProxy_OnDemand{OdcdsConfig: message.ADS(0)}`},
		"early connections are accepted at once":     {File: "../listeners/outbound.go", From: `deferAccept(listen(names.EarlyOutbound, netip.AddrPortFrom(loopback, contract.RelayOutbound)))`, To: `listen(names.EarlyOutbound, netip.AddrPortFrom(loopback, contract.RelayOutbound))`},
		"a listener has one family":                  {File: "../listeners/outbound.go", From: `l.AdditionalAddresses = append(l.AdditionalAddresses, &listener.AdditionalAddress{Address: socketAddress(a)})`, To: ``},
		"no IPv6":                                    {File: "../features/features.go", From: `out = append(out, netip.AddrPortFrom(netip.IPv6Unspecified(), port))`, To: ``},
		"a silent connection is handed on":           {File: "../listeners/late.go", From: `l.ListenerFiltersTimeout = durationpb.New(0)`, To: ``},
		"a port number of too many namespaces":       {File: "ports.go", From: `port != contract.PrometheusPort`, To: `port != 82`},
		// Inbound listeners.
		"DISABLE accepts mutual TLS":                  {File: "../listeners/inbound.go", From: `p.TLS != mesh.Disable && f.Secrets.Configured()`, To: `f.Secrets.Configured()`},
		"STRICT accepts plain text":                   {File: "../listeners/inbound.go", From: `p.TLS != mesh.Strict`, To: `true`},
		"PERMISSIVE waits for the client":             {File: "../listeners/inbound.go", From: `p.Protocol == mesh.ServerFirst && p.TLS == mesh.Permissive`, To: `false`},
		"TLS of the application counts as the mesh's": {File: "../listeners/inbound.go", From: `m.TransportProtocol, m.ApplicationProtocols = "tls", []string{mtls.ALPN}`, To: `m.TransportProtocol = "tls"`},
		"a handshake takes as long as it likes":       {File: "../listeners/inbound.go", From: `out[0].TransportSocketConnectTimeout = durationpb.New(handshakeTimeout)`, To: ``},
		"all ports are inspected":                     {File: "../listeners/inbound.go", From: `inspect.FilterDisabled = notInspected(ports)`, To: ``},
		"the application is connected too early":      {File: "../listeners/inbound.go", From: `after.UpstreamConnectMode, after.MaxEarlyDataBytes = tcp.UpstreamConnectMode_ON_DOWNSTREAM_TLS_HANDSHAKE, wrapperspb.UInt32(0)`, To: ``},
		"a ClientHello has little time":               {File: "../listeners/inbound.go", From: `detect(l, helloTimeout, destination, inspect)`, To: `detect(l, sniffTimeout, destination, inspect)`},
		"bytes by mutual TLS reach the application":   {File: "../listeners/inbound.go", From: `authenticated = append(g.Bytes(), tcpProxy(after))`, To: `authenticated = []*listener.Filter{tcpProxy(after)}`},
		"bytes in plain text reach the application":   {File: "../listeners/inbound.go", From: `append(g.Bytes(), tcpProxy(toApplication()))`, To: `[]*listener.Filter{tcpProxy(toApplication())}`},
		"requests reach the application":              {File: "../listeners/http.go", From: `g.Requests(m)`, To: ``},
		"listeners of other policies are taken":       {File: "listener.go", From: `g.Key()`, To: `""`, Tests: "TestAuthorizationReachesWhatItSelects"},
		"a policy denies nothing":                     {File: "../rbac/rbac.go", From: `to = deny`, To: ``},
		"RBAC comes after the router":                 {File: "../rbac/rbac.go", From: `append(filters, m.HttpFilters...)`, To: `append(m.HttpFilters, filters...)`},
		// Requests.
		"the application does not know its client": {File: "../listeners/http.go", From: `m.ForwardClientCertDetails = hcm.HttpConnectionManager_APPEND_FORWARD`, To: ``},
		"a client gets the mesh's own header":      {File: "../listeners/http.go", From: `host.ResponseHeadersToRemove = []string{retry.UnreachedHeader}`, To: ``},
		"headers of Envoy are added":               {File: "../listeners/http.go", From: `r.SuppressEnvoyHeaders = true`, To: ``},
		"clusters are not subscribed to":           {File: "../listeners/http.go", From: `[]*hcm.HttpFilter{onDemand(timeout), ToRouter(outboundRouter())}`, To: `[]*hcm.HttpFilter{ToRouter(outboundRouter())}`},
		"a request waits forever for its routes":   {File: "../listeners/http.go", From: `m.StreamIdleTimeout = durationpb.New(b.firstUse(sh))`, To: ``},
		"a retry may select the same endpoint":     {File: "../retry/retry.go", From: `p.HostSelectionRetryMaxAttempts = 10`, To: ``},
		"HTTP/1.0 is refused":                      {File: "../listeners/http.go", From: `&core.Http1ProtocolOptions{AcceptHttp_10: true, DefaultHostForHttp_10: "localhost"}`, To: `&core.Http1ProtocolOptions{}`},
		"an unreached application looks reached":   {File: "../listeners/localreply.go", From: `c.replaceBody || c.unreached`, To: `c.replaceBody`},
		// TLS.
		"clients need no certificate":                {File: "../mtls/tls.go", In: `RequireClientCertificate: wrapperspb.Bool(true)`, From: `wrapperspb.Bool(true)`, To: `wrapperspb.Bool(false)`},
		"clients of another trust domain are let in": {File: "../mtls/tls.go", From: `"spiffe://"+trustDomain+"/"`, To: `"spiffe://"+trustDomain`},
		"no SNI":                                   {File: "../mtls/tls.go", In: `Sni:              sni`, From: `sni`, To: `""`},
		"any server of the mesh will do":           {File: "../mtls/tls.go", In: `Exactly(identity)`, From: `identity`, To: `""`},
		"TLS 1.0":                                  {File: "../mtls/tls.go", From: `tls.TlsParameters_TLSv1_2`, To: `tls.TlsParameters_TLSv1_0`},
		"clients send no ALPN":                     {File: "../mtls/tls.go", In: `message.Exactly(identity), ALPN)`, From: `ALPN`, To: `""`},
		"the secrets of Istio's agent are ours":    {File: "../mtls/tls.go", From: `name = istioName`, To: ``},
		"mutual TLS where the server speaks first": {File: "../mtls/identity.go", From: `known && p.Protocol != mesh.ServerFirst`, To: `known`},
		// Clusters and endpoints.
		"connections are given up late":               {File: "../clusters/cluster.go", In: "c.ConnectTimeout = durationpb.New(tryTimeout)\n\tc.AltStatName", From: `c.ConnectTimeout = durationpb.New(tryTimeout)`, To: ``},
		"an unknown address is given up early":        {File: "../clusters/cluster.go", In: "c.ConnectTimeout = durationpb.New(contract.DirectConnectTimeout)\n\t\toptions", From: `c.ConnectTimeout = durationpb.New(contract.DirectConnectTimeout)`, To: ``},
		"a policy's outlier detection is ignored":     {File: "../clusters/cluster.go", From: `detectOutliers(c, t.Policy().Outliers)`, To: ``},
		"a policy's limits are ignored":               {File: "../clusters/cluster.go", From: `limit(c, t.Policy())`, To: ``},
		"a policy's limits of requests are ignored":   {File: "../clusters/cluster.go", From: `limitRequests(options, t.Policy().Limits)`, To: ``},
		"pending requests are not limited":            {File: "../clusters/limits.go", From: `set(&thresholds.MaxPendingRequests.Value, l.PendingRequests)`, To: ``},
		"endpoints are chosen in turns":               {File: "../clusters/cluster.go", From: `c.LbPolicy = cluster.Cluster_LEAST_REQUEST`, To: ``},
		"one failure ejects an endpoint":              {File: "../clusters/cluster.go", From: `wrapperspb.UInt32(3)`, To: `wrapperspb.UInt32(1)`},
		"gRPC is sent as HTTP/1.1":                    {File: "../clusters/cluster.go", From: `p == mesh.HTTP2 || p == mesh.GRPC`, To: `p == mesh.HTTP2`},
		"connections to the application are captured": {File: "../clusters/cluster.go", From: `"127.0.0.6"`, To: `"127.0.0.1"`},
		"endpoints are waited for without end":        {File: "../clusters/cluster.go", From: `message.ADS(sh.EndpointsTimeout(b.FirstUseTimeout))`, To: `message.ADS(0)`},
		"each zone has the same share":                {File: "../clusters/endpoint.go", From: `wrapperspb.UInt32(uint32(len(groups[g])))`, To: `wrapperspb.UInt32(1)`},
		"an endpoint has no identity":                 {File: "../clusters/endpoint.go", From: `mtls.Identity(b.TrustDomain, e.Workload)`, To: `""`},
		// Routes.
		"the application gets a header of Envoy": {File: "../routes/route.go", From: `v.RequestHeadersToRemove = []string{HostHeader}`, To: ``},
		"a stream without messages ends":         {File: "../routes/route.go", From: `a.IdleTimeout = durationpb.New(0)`, To: ``},
		"all requests go to a missing backend":   {File: "../routes/route.go", From: `missing.Match.RuntimeFraction = millionths(uint32((all - existing) * 1_000_000 / all))`, To: ``},
		"an attempt has no timeout":              {File: "../routes/route.go", From: `out.PerTryTimeout = durationpb.New(r.BackendTimeout)`, To: ``},
		"a header's % begins a variable":         {File: "../routes/route.go", From: `strings.ReplaceAll(p[1], "%", "%%")`, To: `p[1]`},
		"shares of backends do not add up":       {File: "../routes/route.go", From: `uint32(sum * 1_000_000 / all)`, To: `uint32(uint64(b.Weight) * 1_000_000 / all)`},
		"a reset request is not tried again":     {File: "../routes/route.go", From: `out.RetryOn += ",reset"`, To: ``},
		"a prefix ends with a slash":             {File: "../routes/match.go", From: `strings.TrimRight(t.Value, "/")`, To: `t.Value`},
		"a delay has the share of an error":      {File: "../routes/faults.go", From: `message.Share(f.DelayPercent)`, To: `message.Share(f.AbortPercent)`},
		"gRPC clients inject no faults":          {File: "grpc.go", From: `[]*hcm.HttpFilter{routes.InjectsFaults(), listeners.ToRouter(&router.Router{})}`, To: `[]*hcm.HttpFilter{listeners.ToRouter(&router.Router{})}`},
		// Telemetry.
		"a request with routes is counted twice": {File: "../observe/observe.go", In: "m.GetRouteConfig() != nil {\n\t\tonce = leavesProxy()", From: `once = leavesProxy()`, To: ``},
		"a request with routes has two spans":    {File: "../observe/observe.go", From: `o.s.Tracing.On() && m.StatPrefix != names.Internal`, To: `o.s.Tracing.On()`},
		"sent bytes are received bytes":          {File: "../observe/observe.go", From: `"%BYTES_SENT%"`, To: `"%BYTES_RECEIVED%"`},
		"connections count when they have ended": {File: "../observe/observe.go", From: `p.AccessLogOptions = &tcp.TcpProxy_TcpAccessLogOptions{FlushAccessLogOnConnected: true}`, To: ``},
		"a proxy's own sampling is ignored":      {File: "../observe/observe.go", From: `sampling = own`, To: ``},
		"a cluster does not name its service":    {File: "../observe/describe.go", From: `c.Metadata = described(telemetry.MetadataService, serviceOf(s).String())`, To: ``},
		"an endpoint does not name its workload": {File: "../observe/describe.go", From: `proto.Merge(e.Metadata, m)`, To: ``},
		"exports are not limited":                {File: "../clusters/collector.go", From: `t.MaxRequests, t.MaxPendingRequests = wrapperspb.UInt32(maxExports), wrapperspb.UInt32(maxExports)`, To: ``},
	})
}
