package build_test

import (
	"testing"

	"outrider.dev/test/mutants"
)

// TestMutants mutates the lines that decide which policies are used, and whether plain text is accepted.
func TestMutants(t *testing.T) {
	mutants.Run(t, "TestAuthorizationPoliciesSelect|TestAuthorizationRequiresIdentity|TestLargeAuthorization", map[string]mutants.Mutant{
		"a selector of the root namespace counts for nothing": {File: "workloads.go", In: "if everywhere {", From: `everywhere`, To: `false`},
		"a policy without selector reaches no workload":       {File: "authorization.go", From: `add(label{namespace: namespace})`, To: ``},
		"one label of a selector is enough":                   {File: "authorization.go", From: `s.IsFor(w.Labels)`, To: `true`},
		"policies of a size that is too large are used":       {File: "authorization.go", From: `size*(len(w.Ports)+1) > maxAuthorization`, To: `false`},
		"an ALLOW policy without rules lets plain text in":    {File: "plaintext.go", From: `allows && allowed == no`, To: `false`},
		"a DENY policy denies nothing":                        {File: "plaintext.go", From: `s.Deny && t == yes`, To: `false`},
		"a client without identity has one":                   {File: "plaintext.go", In: "if len(c.Values) > 0 {\n\t\t\treturn no\n\t\t}\n\t\treturn yes\n\tcase mesh.SourceIP", From: `len(c.Values) > 0`, To: `false`},
		"an ALLOW rule matches bytes by a method":             {File: "plaintext.go", From: `!deny && !judged(r)`, To: `false`},
		"ports of requests take mutual TLS only":              {File: "plaintext.go", From: `!p.Protocol.IsHTTP()`, To: `true`},
	})
}
