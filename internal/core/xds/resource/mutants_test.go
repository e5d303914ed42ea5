package resource_test

import (
	"testing"

	"outrider.dev/test/mutants"
)

// Mutates the lines that decide whether a client is let in.
func TestMutants(t *testing.T) {
	mutants.Run(t, "TestAuthorization|TestAuthorizationOfAnUnknownWorkload|TestAuthorizationReachesWhatItSelects|TestPathsAreNormalised", map[string]mutants.Mutant{
		"an ALLOW rule that cannot be judged matches": {File: "rbac.go", From: `!p.Deny && slices.ContainsFunc(slices.Concat(slices.Concat(r.From...), slices.Concat(r.To...), r.When), unjudged)`, To: `false`},
		"a closed guard is open":                      {File: "rbac.go", From: `g.TooLarge`, To: `false`},
		"notValues are not looked at, of clients":     {File: "rbac.go", In: "out = append(out, &rbac.Principal{Identifier: &rbac.Principal_NotId{NotId: anyOf(c.NotValues)}})", From: `out = append(out, &rbac.Principal{Identifier: &rbac.Principal_NotId{NotId: anyOf(c.NotValues)}})`, To: ``},
		"notValues are not looked at, of operations":  {File: "rbac.go", From: `out = append(out, &rbac.Permission{Rule: &rbac.Permission_NotRule{NotRule: anyOf(c.NotValues, !deny)}})`, To: ``},
		"a denied host with a port is another":        {File: "rbac.go", From: `wide && !strings.HasSuffix(v, "*")`, To: `false`},
		"a host with a port is not another":           {File: "rbac.go", From: `anyOf(c.NotValues, !deny)`, To: `anyOf(c.NotValues, deny)`},
		"cluster.local is another trust domain":       {File: "rbac.go", From: `v = g.trustDomain + "/" + rest`, To: ``, Tests: "TestTrustDomainOfPolicies"},
		"a host has a case":                           {File: "rbac.go", From: `m.IgnoreCase = m.GetSafeRegex() == nil`, To: ``},
		"an account of no namespace is of any":        {File: "rbac.go", From: `v = namespace + "/" + v`, To: `v = "bank/" + v`},
		"a namespace is a prefix":                     {File: "rbac.go", From: `"/sa/[^/]+"`, To: `".*"`},
		"paths are judged as they are written":        {File: "rbac.go", From: `m.NormalizePath = on()`, To: ``},
		"bytes by mutual TLS reach the application":   {File: "inbound.go", From: `authenticated = append(g.bytes(), tcpProxy(after))`, To: `authenticated = []*listener.Filter{tcpProxy(after)}`},
		"bytes in plain text reach the application":   {File: "inbound.go", From: `append(g.bytes(), tcpProxy(toApplication()))`, To: `[]*listener.Filter{tcpProxy(toApplication())}`},
		"requests reach the application":              {File: "http.go", From: `g.requests(m)`, To: ``},
		"listeners of other policies are taken":       {File: "listener.go", From: `g.key()`, To: `""`, Tests: "TestAuthorizationReachesWhatItSelects"},
	})
}

// Mutates each line of the rules in Diff.
func TestMutantsOfDiff(t *testing.T) {
	mutants.Run(t, "TestDiffOfAnyHistory", map[string]mutants.Mutant{
		"a service's addresses are forgotten":      {File: "diff.go", From: `d.name(xds.ClusterType, address{prefix, to}.String())`, To: ``},
		"a service's clusters are forgotten":       {File: "diff.go", From: `d.name(xds.ClusterType, name)`, To: ``},
		"a service's endpoints are forgotten":      {File: "diff.go", From: `d.name(xds.EndpointType, name)`, To: ``},
		"endpoints' addresses are forgotten":       {File: "diff.go", From: `d.addresses.add(e.Addr)`, To: ``},
		"the old service is forgotten":             {File: "diff.go", From: `d.service(c.Old)`, To: ``},
		"the new service is forgotten":             {File: "diff.go", From: `d.service(c.New)`, To: ``},
		"routes are forgotten":                     {File: "diff.go", From: `!sameRoutes(c.Old, c.New)`, To: `false`},
		"others' faults are forgotten":             {File: "diff.go", From: `!mesh.SameFaults(c.Old, c.New)`, To: `false`},
		"backends of others' routes are forgotten": {File: "diff.go", From: `!sameForRoutes(c.Old, c.New)`, To: `false`},
		"own virtual hosts are forgotten":          {File: "diff.go", From: `d.name(xds.VirtualHostType, target{s, &s.Ports[i], f}.virtualHost())`, To: ``},
		"own route configurations are forgotten":   {File: "diff.go", From: `d.name(xds.RouteType, serviceName(s, s.Ports[i].Number, primary))`, To: ``},
		"listeners do not follow fronts":           {File: "diff.go", From: `frontend || len(workloads) > 0`, To: `len(workloads) > 0`},
		"listeners do not follow workloads":        {File: "diff.go", From: `frontend || len(workloads) > 0`, To: `frontend`},
		"listeners do not follow counted services": {File: "diff.go", From: `len(services) > 0 && t.Metrics`, To: `false`, Tests: "TestDiffWhereRequestsAreCounted"},
		"listeners do not follow policies":         {File: "diff.go", From: `!v.mesh.SameAuthorization(o.mesh)`, To: `false`},
		"endpoints do not follow nodes":            {File: "diff.go", From: `!v.mesh.SameNodes(o.mesh)`, To: `false`, Tests: "TestDiffOfAZoneOfANode"},
		"endpoints do not follow moved clients":    {File: "diff.go", From: `slices.ContainsFunc(workloads, moved)`, To: `false`},
		"the set of clusters is forgotten":         {File: "diff.go", From: `clusters.Wildcard = frontend`, To: ``},
		"networks are forgotten":                   {File: "diff.go", From: `!maps.Equal(o.serviceNetworks().within, v.serviceNetworks().within)`, To: `!maps.Equal(o.serviceNetworks().within, o.serviceNetworks().within)`},
		"the collector is forgotten":               {File: "diff.go", From: `d.name(xds.ClusterType, tracingCluster)`, To: ``},
		"a workload's old address is forgotten":    {File: "diff.go", From: `d.workload(c.Old)`, To: ``},
		"a workload's new address is forgotten":    {File: "diff.go", From: `d.workload(c.New)`, To: ``},
		"a service's protocol counts for nothing":  {File: "diff.go", From: `slices.Equal(a.Ports, b.Ports)`, To: `true`},
		"visibility counts for nothing":            {File: "diff.go", From: `slices.Equal(a.ExportTo, b.ExportTo)`, To: `true`},
		"External counts for nothing":              {File: "diff.go", From: `a.External == b.External`, To: `true`},
		"the primary family counts for nothing":    {File: "diff.go", From: `primaryOf(a) == primaryOf(b)`, To: `true`},
		"addresses count for nothing":              {File: "diff.go", From: `slices.Equal(a.Addresses, b.Addresses)`, To: `true`},
	})
}

// Mutates what the builders put into each kind of resource.
func TestMutantsOfBuilders(t *testing.T) {
	mutants.Run(t, "TestGolden", map[string]mutants.Mutant{
		// Outbound listeners.
		"captured connections go to another port":    {File: "outbound.go", From: `sh.wildcards(contract.OutboundPort)`, To: `sh.wildcards(contract.InboundPort)`},
		"connections stay in the first listener":     {File: "outbound.go", From: `l.UseOriginalDst = on()`, To: ``},
		"the proxy's own ports are not closed":       {File: "outbound.go", From: `append(rejectOwnPorts(), v.bytesByAddress(tcpPrefix, v.firstUse(sh))...)`, To: `v.bytesByAddress(tcpPrefix, v.firstUse(sh))`},
		"early connections wait as long as others":   {File: "outbound.go", From: `max(v.firstUse(sh), earlyFirstUseTimeout)`, To: `v.firstUse(sh)`},
		"a header is read after it was inspected":    {File: "outbound.go", From: `detect(l, sniffTimeout, proxyProtocol(), inspect)`, To: `detect(l, sniffTimeout, inspect, proxyProtocol())`},
		"a listener for a port number binds it":      {File: "outbound.go", From: `l.BindToPort = off()`, To: ``},
		"Envoy's timeout of 15 s for first bytes":    {File: "outbound.go", From: `l.ListenerFiltersTimeout = duration(timeout)`, To: ``},
		"a silent connection is closed":              {File: "outbound.go", From: `l.ContinueOnListenerFiltersTimeout = true`, To: ``},
		"HTTP is not detected in ranges of services": {File: "outbound.go", From: `append(cidrs(v.networksWithoutServices()), cidrs(v.serviceRanges())...)`, To: `cidrs(v.networksWithoutServices())`},
		"connections to services are tried once":     {File: "outbound.go", From: `p.MaxConnectAttempts = uint32Value(connectTries)`, To: ``},
		"idle connections are closed":                {File: "outbound.go", In: `IdleTimeout:      duration(0)`, From: `duration(0)`, To: `duration(time.Hour)`},
		"a first use has no timeout":                 {File: "outbound.go", From: `&tcp.TcpProxy_OnDemand{OdcdsConfig: ads(0), Timeout: duration(timeout)}`, To: `&tcp.TcpProxy_OnDemand{OdcdsConfig: ads(0)}`},
		"early connections are accepted at once":     {File: "outbound.go", From: `deferAccept(listen(earlyName, socket{loopback, contract.RelayOutbound}))`, To: `listen(earlyName, socket{loopback, contract.RelayOutbound})`},
		"a listener has one family":                  {File: "outbound.go", From: `l.AdditionalAddresses = append(l.AdditionalAddresses, &listener.AdditionalAddress{Address: s.address()})`, To: ``},
		"no IPv6":                                    {File: "features.go", From: `out = append(out, socket{netip.IPv6Unspecified(), port})`, To: ``},
		"a silent connection is handed on":           {File: "late.go", From: `l.ListenerFiltersTimeout = duration(0)`, To: ``},
		"a port number of too many namespaces":       {File: "ports.go", From: `port != contract.PrometheusPort`, To: `port != 82`},
		// Inbound listeners.
		"DISABLE accepts mutual TLS":                  {File: "inbound.go", From: `p.TLS != mesh.Disable && f.secrets.configured()`, To: `f.secrets.configured()`},
		"STRICT accepts plain text":                   {File: "inbound.go", From: `p.TLS != mesh.Strict`, To: `true`},
		"PERMISSIVE waits for the client":             {File: "inbound.go", From: `p.Protocol == mesh.ServerFirst && p.TLS == mesh.Permissive`, To: `false`},
		"TLS of the application counts as the mesh's": {File: "inbound.go", From: `m.TransportProtocol, m.ApplicationProtocols = "tls", []string{alpn}`, To: `m.TransportProtocol = "tls"`},
		"a handshake takes as long as it likes":       {File: "inbound.go", From: `out[0].TransportSocketConnectTimeout = duration(handshakeTimeout)`, To: ``},
		"all ports are inspected":                     {File: "inbound.go", From: `inspect.FilterDisabled = notInspected(ports)`, To: ``},
		"the application is connected too early":      {File: "inbound.go", From: `after.UpstreamConnectMode, after.MaxEarlyDataBytes = tcp.UpstreamConnectMode_ON_DOWNSTREAM_TLS_HANDSHAKE, uint32Value(0)`, To: ``},
		"a ClientHello has little time":               {File: "inbound.go", From: `detect(l, helloTimeout, destination, inspect)`, To: `detect(l, sniffTimeout, destination, inspect)`},
		"a policy denies nothing":                     {File: "rbac.go", From: `to = deny`, To: ``},
		"RBAC comes after the router":                 {File: "rbac.go", From: `append(filters, m.HttpFilters...)`, To: `append(m.HttpFilters, filters...)`},
		// Requests.
		"the application does not know its client": {File: "http.go", From: `m.ForwardClientCertDetails = hcm.HttpConnectionManager_APPEND_FORWARD`, To: ``},
		"a client gets the mesh's own header":      {File: "http.go", From: `host.ResponseHeadersToRemove = []string{unreachedHeader}`, To: ``},
		"headers of Envoy are added":               {File: "http.go", From: `r.SuppressEnvoyHeaders = true`, To: ``},
		"clusters are not subscribed to":           {File: "http.go", From: `[]*hcm.HttpFilter{onDemand(timeout), toRouter(outboundRouter())}`, To: `[]*hcm.HttpFilter{toRouter(outboundRouter())}`},
		"a request waits forever for its routes":   {File: "http.go", From: `m.StreamIdleTimeout = duration(b.firstUse(sh))`, To: ``},
		"a retry may select the same endpoint":     {File: "http.go", From: `p.HostSelectionRetryMaxAttempts = 10`, To: ``},
		"HTTP/1.0 is refused":                      {File: "http.go", From: `&core.Http1ProtocolOptions{AcceptHttp_10: true, DefaultHostForHttp_10: "localhost"}`, To: `&core.Http1ProtocolOptions{}`},
		"an unreached application looks reached":   {File: "localreply.go", From: `c.replaceBody || c.unreached`, To: `c.replaceBody`},
		// TLS.
		"clients need no certificate":                {File: "tls.go", In: `RequireClientCertificate: on()`, From: `on()`, To: `off()`},
		"clients of another trust domain are let in": {File: "tls.go", From: `"spiffe://" + trustDomain + "/"`, To: `"spiffe://" + trustDomain`},
		"no SNI":                                   {File: "tls.go", In: `Sni: sni`, From: `sni`, To: `""`},
		"any server of the mesh will do":           {File: "tls.go", In: `Exact: identity`, From: `identity`, To: `""`},
		"TLS 1.0":                                  {File: "tls.go", From: `tls.TlsParameters_TLSv1_2`, To: `tls.TlsParameters_TLSv1_0`},
		"clients send no ALPN":                     {File: "tls.go", In: "}, alpn)", From: `alpn`, To: `""`},
		"the secrets of Istio's agent are ours":    {File: "tls.go", From: `name = istioName`, To: ``},
		"mutual TLS where the server speaks first": {File: "features.go", From: `known && p.Protocol != mesh.ServerFirst`, To: `known`},
		// Clusters and endpoints.
		"connections are given up late":               {File: "cluster.go", In: "c.ConnectTimeout = duration(tryTimeout)\n\tc.AltStatName", From: `c.ConnectTimeout = duration(tryTimeout)`, To: ``},
		"an unknown address is given up early":        {File: "cluster.go", In: "c.ConnectTimeout = duration(contract.DirectConnectTimeout)\n\t\tretries", From: `c.ConnectTimeout = duration(contract.DirectConnectTimeout)`, To: ``},
		"a policy's outlier detection is ignored":     {File: "cluster.go", From: `detectOutliers(c, t.policyOf().Outliers)`, To: ``},
		"a policy's limits are ignored":               {File: "cluster.go", From: `limit(c, t.policyOf())`, To: ``},
		"a policy's limits of requests are ignored":   {File: "cluster.go", From: `limitRequests(options, t.policyOf().Limits)`, To: ``},
		"pending requests are not limited":            {File: "backendpolicy.go", From: `set(&thresholds.MaxPendingRequests.Value, l.PendingRequests)`, To: ``},
		"endpoints are chosen in turns":               {File: "cluster.go", From: `c.LbPolicy = cluster.Cluster_LEAST_REQUEST`, To: ``},
		"one failure ejects an endpoint":              {File: "cluster.go", From: `uint32Value(3)`, To: `uint32Value(1)`},
		"gRPC is sent as HTTP/1.1":                    {File: "cluster.go", From: `p == mesh.HTTP2 || p == mesh.GRPC`, To: `p == mesh.HTTP2`},
		"connections to the application are captured": {File: "cluster.go", From: `"127.0.0.6"`, To: `"127.0.0.1"`},
		"endpoints are waited for without end":        {File: "cluster.go", From: `ads(b.endpointsTimeout(sh))`, To: `ads(0)`},
		"each zone has the same share":                {File: "endpoint.go", From: `uint32Value(uint32(len(groups[g])))`, To: `uint32Value(1)`},
		"an endpoint has no identity":                 {File: "endpoint.go", From: `identity(b.config.TrustDomain, e.Workload)`, To: `""`},
		// Routes.
		"the application gets a header of Envoy": {File: "route.go", From: `v.RequestHeadersToRemove = []string{hostHeader}`, To: ``},
		"a stream without messages ends":         {File: "route.go", From: `a.IdleTimeout = duration(0)`, To: ``},
		"all requests go to a missing backend":   {File: "route.go", From: `missing.Match.RuntimeFraction = millionths(uint32((all - existing) * 1_000_000 / all))`, To: ``},
		"an attempt has no timeout":              {File: "route.go", From: `out.PerTryTimeout = duration(r.BackendTimeout)`, To: ``},
		"a header's % begins a variable":         {File: "route.go", From: `strings.ReplaceAll(p[1], "%", "%%")`, To: `p[1]`},
		"shares of backends do not add up":       {File: "route.go", From: `uint32(sum * 1_000_000 / all)`, To: `uint32(uint64(b.Weight) * 1_000_000 / all)`},
		"a reset request is not tried again":     {File: "route.go", From: `out.RetryOn += ",reset"`, To: ``},
		"a prefix ends with a slash":             {File: "match.go", From: `strings.TrimRight(t.Value, "/")`, To: `t.Value`},
		"a delay has the share of an error":      {File: "backendpolicy.go", From: `share(f.DelayPercent)`, To: `share(f.AbortPercent)`},
		"gRPC clients inject no faults":          {File: "grpc.go", From: `[]*hcm.HttpFilter{injectsFaults(), toRouter(&router.Router{})}`, To: `[]*hcm.HttpFilter{toRouter(&router.Router{})}`},
		// Telemetry.
		"a request with routes is counted twice": {File: "telemetry.go", In: "m.GetRouteConfig() != nil {\n\t\tonce = leavesProxy()", From: `once = leavesProxy()`, To: ``},
		"a request with routes has two spans":    {File: "telemetry.go", From: `o.s.Tracing.On() && m.StatPrefix != internalName`, To: `o.s.Tracing.On()`},
		"sent bytes are received bytes":          {File: "telemetry.go", From: `"%BYTES_SENT%"`, To: `"%BYTES_RECEIVED%"`},
		"connections count when they have ended": {File: "telemetry.go", From: `p.AccessLogOptions = &tcp.TcpProxy_TcpAccessLogOptions{FlushAccessLogOnConnected: true}`, To: ``},
		"a proxy's own sampling is ignored":      {File: "telemetry.go", From: `sampling = own`, To: ``},
		"a cluster does not name its service":    {File: "telemetry.go", From: `c.Metadata = described(telemetry.MetadataService, serviceOf(s).String())`, To: ``},
		"an endpoint does not name its workload": {File: "telemetry.go", From: `proto.Merge(e.Metadata, m)`, To: ``},
		"exports are not limited":                {File: "telemetry.go", From: `t.MaxRequests, t.MaxPendingRequests = uint32Value(maxExports), uint32Value(maxExports)`, To: ``},
	})
}
