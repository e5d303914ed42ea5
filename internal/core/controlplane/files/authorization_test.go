package files

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"outrider.dev/internal/core/mesh"
)

// If a policy is edited and becomes invalid, its last valid version stays in use. If there is none, as after
// a restart, the policy allows nothing; the other policies in the file are in use.
func TestInvalidAuthorizationPolicies(t *testing.T) {
	policy := func(name, spec string) string {
		return "apiVersion: security.istio.io/v1\nkind: AuthorizationPolicy\nmetadata: {name: " + name + ", namespace: shop}\nspec: " + spec + "\n---\n"
	}
	const (
		pod    = "apiVersion: v1\nkind: Pod\nmetadata: {name: web, namespace: shop}\nspec: {containers: [{name: web}]}\n"
		from   = "{rules: [{from: [{source: {namespaces: [%s]}}]}]}"
		wrong  = "{rules: [{from: [{source: {namespace: [shop]}}]}]}"
		denies = "{action: DENY, rules: [{to: [{operation: {port: [80]}}]}]}"
	)
	dir := t.TempDir()
	write(t, filepath.Join(dir, "pod.yaml"), pod)
	read := func(f *folder, text string) string {
		t.Helper()
		reread(t, f, "policies.yaml", text)
		m := f.builder.Mesh()
		var out []string
		if a := m.Authorization(m.Pod("shop", "web"), "shop"); a != nil {
			for _, p := range a.Policies {
				out = append(out, fmt.Sprintf("%s closed=%t deny=%t rules=%d", p.Name, p.Closed, p.Deny, len(p.Rules)))
			}
		}
		if problems := f.problems(); len(problems) > 0 {
			out = append(out, problems[0].String())
		}
		return strings.Join(out, "; ")
	}
	f := newFolder(dir, mesh.Config{})
	const problem = "policies.yaml:10: document 2: AuthorizationPolicy shop/b: spec.rules[0].from[0].source.namespace: unknown field: did you mean namespaces?"
	for _, step := range []struct{ name, text, want string }{
		{"none is good", policy("a", fmt.Sprintf(from, "shop")) + policy("b", wrong), "a closed=false deny=false rules=1; b closed=true deny=false rules=0; " + strings.Replace(problem, ":10:", ":9:", 1)},
		{"one that denies", policy("b", denies), "b closed=true deny=true rules=1; policies.yaml:4: AuthorizationPolicy shop/b: spec.rules[0].to[0].operation.port: unknown field: did you mean ports?"},
		{"all are good", policy("a", fmt.Sprintf(from, "shop")) + policy("b", "{rules: [{}, {}]}"), "a closed=false deny=false rules=1; b closed=false deny=false rules=2"},
		{"a mistake again", policy("a", "{}") + policy("b", wrong), "a closed=false deny=false rules=1; b closed=false deny=false rules=2; " + strings.Replace(problem, ":10:", ":9:", 1)},
		{"not YAML", "{", "a closed=false deny=false rules=1; b closed=false deny=false rules=2; policies.yaml:1: is no YAML: did not find expected node content"},
		{"empty", "", ""},
	} {
		if got := read(f, step.text); got != step.want {
			t.Errorf("%s:\n%s\nwant\n%s", step.name, got, step.want)
		}
	}
}
