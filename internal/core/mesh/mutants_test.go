package mesh_test

import (
	"testing"

	"outrider.dev/test/mutants"
)

// What decides which policies hold, and whether plain text is let in.
func TestMutants(t *testing.T) {
	mutants.Run(t, "TestAuthorizationPoliciesSelect|TestAuthorizationRequiresIdentity|TestLargeAuthorization", map[string]mutants.Mutant{
		"a selector of the root namespace counts for nothing": {File: "authorization.go", From: `w.spec != nil && s.isFor(w.spec.Labels)`, To: `false`},
		"a policy without selector reaches no workload":       {File: "authorization.go", From: `len(s.Selector) == 0 || selects(s.Selector, labels)`, To: `selects(s.Selector, labels)`},
		"one label of a selector is enough":                   {File: "authorization.go", In: "if s.isFor(w.Labels) {\n\t\t\t\t\tout", From: `s.isFor(w.Labels)`, To: `true`},
		"policies of a size that is too large are used":       {File: "authorization.go", From: `size*(len(w.Ports)+1) > maxAuthorization`, To: `false`},
		"an ALLOW policy without rules lets plain text in":    {File: "authorization.go", From: `allows && allowed == no`, To: `false`},
		"a DENY policy denies nothing":                        {File: "authorization.go", From: `s.Deny && t == yes`, To: `false`},
		"a client without identity has one":                   {File: "authorization.go", In: "if len(c.Values) > 0 {\n\t\t\treturn no\n\t\t}\n\t\treturn yes\n\tcase SourceIP", From: `len(c.Values) > 0`, To: `false`},
		"an ALLOW rule matches bytes by a method":             {File: "authorization.go", From: `!deny && !r.judged()`, To: `false`},
		"ports of requests take mutual TLS only":              {File: "authorization.go", From: `!p.Protocol.IsHTTP()`, To: `true`},
	})
}
