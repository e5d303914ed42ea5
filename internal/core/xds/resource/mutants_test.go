package resource_test

import (
	"testing"

	"outrider.dev/test/mutants"
)

// What lets a client in.
func TestMutants(t *testing.T) {
	mutants.Run(t, "TestAuthorization|TestAuthorizationOfAnUnknownWorkload|TestAuthorizationReachesWhatItSelects|TestPathsAreNormalised", map[string]mutants.Mutant{
		"an ALLOW rule that cannot be judged matches": {File: "rbac.go", From: `!p.Deny && slices.ContainsFunc(slices.Concat(slices.Concat(r.From...), slices.Concat(r.To...), r.When), unjudged)`, To: `false`},
		"a closed guard is open":                      {File: "rbac.go", From: `g.TooLarge`, To: `false`},
		"notValues are not looked at, of clients":     {File: "rbac.go", In: "out = append(out, &rbac.Principal{Identifier: &rbac.Principal_NotId{NotId: anyOf(c.NotValues)}})", From: `out = append(out, &rbac.Principal{Identifier: &rbac.Principal_NotId{NotId: anyOf(c.NotValues)}})`, To: ``},
		"notValues are not looked at, of operations":  {File: "rbac.go", From: `out = append(out, &rbac.Permission{Rule: &rbac.Permission_NotRule{NotRule: anyOf(c.NotValues, !deny)}})`, To: ``},
		"a denied host with a port is another":        {File: "rbac.go", From: `wide && !strings.HasSuffix(v, "*")`, To: `false`},
		"a host has a case":                           {File: "rbac.go", From: `m.IgnoreCase = m.GetSafeRegex() == nil`, To: ``},
		"an account of no namespace is of any":        {File: "rbac.go", From: `v = namespace + "/" + v`, To: `v = "bank/" + v`},
		"a namespace is a prefix":                     {File: "rbac.go", From: `"/sa/[^/]+"`, To: `".*"`},
		"paths are judged as they are written":        {File: "rbac.go", From: `m.NormalizePath = on()`, To: ``},
		"bytes by mutual TLS reach the application":   {File: "inbound.go", From: `authenticated = append(g.bytes(), tcpProxy(after))`, To: `authenticated = []*listener.Filter{tcpProxy(after)}`},
		"bytes in plain text reach the application":   {File: "inbound.go", From: `append(g.bytes(), tcpProxy(toApplication()))`, To: `[]*listener.Filter{tcpProxy(toApplication())}`},
		"requests reach the application":              {File: "http.go", From: `g.requests(m)`, To: ``},
		"listeners of other policies are taken":       {File: "listener.go", From: `g.key()`, To: `""`, Tests: "TestAuthorizationReachesWhatItSelects"},
		"a change of policies reaches no proxy":       {File: "diff.go", From: `len(workloads) > 0 || !v.mesh.SameAuthorization(o.mesh)`, To: `len(workloads) > 0`, Tests: "TestAuthorizationReachesWhatItSelects"},
	})
}
