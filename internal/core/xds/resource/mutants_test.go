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
