package objects_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"outrider.dev/internal/core/mesh"
	"outrider.dev/internal/core/mesh/build"
	"outrider.dev/internal/core/mesh/objects"
)

func authorization(t testing.TB, spec string) (mesh.Part, error) {
	t.Helper()
	metadata := ""
	if !strings.Contains(spec, "metadata:") {
		metadata = "metadata: {name: p, namespace: shop}, "
	}
	raw, err := yaml.YAMLToJSON([]byte("{apiVersion: security.istio.io/v1, kind: AuthorizationPolicy, " + metadata + "spec: " + spec + "}"))
	if err != nil {
		t.Fatal(err)
	}
	return objects.AuthorizationPolicy(raw)
}

// For an invalid policy, the error contains the field, and the part allows less than the policy could.
func TestInvalidAuthorizationPolicies(t *testing.T) {
	many := func(n int, format string) string {
		var all []string
		for i := range n {
			all = append(all, fmt.Sprintf(format, i))
		}
		return "[" + strings.Join(all, ", ") + "]"
	}
	for spec, want := range map[string]string{
		`[]`:                                "spec: must be an object",
		`{action: PERMIT}`:                  `spec.action: "PERMIT" is unknown: must be ALLOW, CUSTOM or DENY`,
		`{action: DENY}`:                    "spec.rules: missing: a policy that denies must have one; {} matches everything",
		`{rulez: []}`:                       "spec.rulez: unknown field: did you mean rules?",
		`{rules: [null]}`:                   "spec.rules[0]: missing: {} matches everything",
		`{rules: [{from: []}]}`:             "spec.rules[0].from: must not be empty: without it all clients match",
		`{rules: [{from: [{}]}]}`:           "spec.rules[0].from[0].source: missing",
		`{rules: [{from: [{source: {}}]}]}`: "spec.rules[0].from[0].source: must have at least one condition",
		`{rules: [{to: []}]}`:               "spec.rules[0].to: must not be empty: without it all operations match",
		`{rules: [{to: [null]}]}`:           "spec.rules[0].to[0].operation: missing",
		`{rules: [{to: [{operation: {method: [GET]}}]}]}`:                                                          "spec.rules[0].to[0].operation.method: unknown field: did you mean methods?",
		`{rules: [{to: [{operation: {ports: []}}]}]}`:                                                              "spec.rules[0].to[0].operation.ports: must not be empty: without it any value matches",
		`{rules: [{to: [{operation: {ports: ["080"]}}]}]}`:                                                         `spec.rules[0].to[0].operation.ports[0]: "080" is not a port: must be 1 to 65535`,
		`{rules: [{to: [{operation: {ports: [80]}}]}]}`:                                                            "spec.rules",
		`{rules: [{to: [{operation: {paths: ["/a*b"]}}]}]}`:                                                        `spec.rules[0].to[0].operation.paths[0]: "/a*b" may have one *, at the beginning or at the end`,
		`{rules: [{to: [{operation: {paths: ["/{**}/{*}"]}}]}]}`:                                                   `spec.rules[0].to[0].operation.paths[0]: "/{**}/{*}" is not a template of paths: {*} and {**} must not follow {**}`,
		`{rules: [{to: [{operation: {paths: ["/a{*}"]}}]}]}`:                                                       `spec.rules[0].to[0].operation.paths[0]: "/a{*}" is not a template of paths: between two / must be {*}, {**} or text without * { }`,
		`{rules: [{from: [{source: {ipBlocks: [10.0.0.0/33]}}]}]}`:                                                 `spec.rules[0].from[0].source.ipBlocks[0]: "10.0.0.0/33" is not an address or range such as 10.0.0.1 or 10.0.0.0/8`,
		`{rules: [{from: [{source: {namespaces: ["a/b"]}}]}]}`:                                                     `spec.rules[0].from[0].source.namespaces[0]: "a/b" is not a namespace: must be lower-case letters, digits, - and *`,
		`{rules: [{from: [{source: {principals: [""]}}]}]}`:                                                        `spec.rules[0].from[0].source.principals[0]: "" must not be empty`,
		`{rules: [{from: [{source: {principals: [a], serviceAccounts: [b]}}]}]}`:                                   "spec.rules[0].from[0].source.serviceAccounts: conflicts with principals and namespaces: use one of these",
		`{rules: [{when: [{values: [a]}]}]}`:                                                                       "spec.rules[0].when[0].key: missing",
		`{rules: [{when: [{key: source.ip}]}]}`:                                                                    "spec.rules[0].when[0]: must have at least one condition",
		`{selector: {matchLabels: {app: "*"}}, rules: [{}]}`:                                                       `spec.selector.matchLabels: "app": "*" is not a label: wildcards are not supported`,
		`{selector: {matchLabels: {app: web}}, targetRefs: [{kind: Gateway, name: x}], action: DENY, rules: [{}]}`: "spec.selector: conflicts with targetRefs: a policy has one of them",
		`{selector: {}, targetRef: {kind: Service, name: x}, rules: [{}]}`:                                         "spec.selector: conflicts with targetRefs",
		`{selector: {matchExpressions: []}, rules: [{}]}`:                                                          "spec.selector.matchExpressions: unknown field",
		`{rules: ` + many(501, "{} # %d\n") + `}`:                                                                  "spec.rules: has 501 rules: at most 500 are supported",
		`{rules: [{from: [{source: {principals: ` + many(4000, "cluster.local/ns/shop/sa/%d") + `}}]}]}`:           "bytes: at most 131072 are supported; split it into several policies",
	} {
		p, err := authorization(t, spec)
		policy, ok := p.(*mesh.AuthorizationSpec)
		if err == nil || !strings.Contains(err.Error(), want) || !ok || !policy.Closed {
			t.Errorf("%.100s: %v, %v; want %q", spec, p, err, want)
			continue
		}
		closedDoor(t, policy)
	}
}

// closedDoor fails the test if the part for an invalid policy allows something.
func closedDoor(t *testing.T, p *mesh.AuthorizationSpec) {
	t.Helper()
	if want := []mesh.AuthorizationRule{{}}; p.Deny && !reflect.DeepEqual(p.Rules, want) || !p.Deny && len(p.Rules) > 0 {
		t.Errorf("deny %t with the rules %v", p.Deny, p.Rules)
	}
}

// If a valid policy is not enforced as written, a report contains the field.
func TestUnenforcedAuthorizationPolicies(t *testing.T) {
	for spec, want := range map[string]string{
		`{rules: [{from: [{source: {principals: [a]}}]}]}`:                                                  "",
		`{targetRefs: [{kind: Gateway, group: gateway.networking.k8s.io, name: x}]}`:                        "",
		`{targetRefs: [{kind: Service, group: "", name: x}]}`:                                               "is not enforced by Outrider: targetRefs are for waypoints",
		`{action: AUDIT, rules: [{}]}`:                                                                      "has no effect on pods of Outrider: nothing is audited",
		`{action: CUSTOM, rules: [{}]}`:                                                                     "is not enforced as it is written: spec.action CUSTOM is not supported",
		`{rules: [{}, {when: [{key: "request.headers[x]", values: [a]}]}]}`:                                 `is not enforced as it is written: spec.rules[1].when[0].key "request.headers[x]" is not supported: a rule with it allows nothing`,
		`{action: DENY, rules: [{from: [{source: {remoteIpBlocks: [10.0.0.1], requestPrincipals: [a]}}]}]}`: "spec.rules[0].from[0].source.remoteIpBlocks is not supported, and 1 more: a rule denies without regard to it",
		`{rules: [{}]}, metadata: {name: p, namespace: shop, annotations: {istio.io/dry-run: "true"}}`:      "has no effect on pods of Outrider: its annotation istio.io/dry-run",
	} {
		p, err := authorization(t, spec)
		var ignored *mesh.IgnoredSpec
		switch p := p.(type) {
		case *mesh.IgnoredSpec:
			ignored = p
		case *mesh.AuthorizationSpec:
			ignored = p.Unenforced
		}
		got := ""
		if ignored != nil {
			got = ignored.Message()
		}
		if err != nil || (want == "") != (got == "") || !strings.Contains(got, want) {
			t.Errorf("%s: %q, %v; want %q", spec, got, err, want)
		}
	}
}

// FuzzAuthorizationPolicy checks that no policy causes a panic, neither when it is read nor in a builder, and
// that an invalid one allows nothing. A valid policy must not contain a condition without values.
func FuzzAuthorizationPolicy(f *testing.F) {
	for _, spec := range []string{
		`{}`, `{"rules":[{}]}`, `{"action":"DENY","rules":[{"to":[{"operation":{"methods":["GET"],"ports":["80"],"paths":["/{*}","/a*"]}}]}]}`,
		`{"rules":[{"from":[{"source":{"principals":["*"],"ipBlocks":["10.0.0.0/8"]}}],"when":[{"key":"source.ip","notValues":["::1"]}]}]}`,
		`{"selector":{"matchLabels":{"a":"b"}},"rules":[null]}`, `[]`, `{"rules":[{"from":[{"source":{"remoteIpBlocks":["x"]}}]}]}`, `{"targetRef":{"kind":"Gateway"}}`,
	} {
		f.Add([]byte(spec))
	}
	f.Fuzz(func(t *testing.T, spec []byte) {
		raw := fmt.Appendf(nil, `{"apiVersion":"security.istio.io/v1","kind":"AuthorizationPolicy","metadata":{"name":"p","namespace":"shop"},"spec":%s}`, spec)
		if !json.Valid(raw) {
			return
		}
		p, err := objects.AuthorizationPolicy(raw)
		policy, ok := p.(*mesh.AuthorizationSpec)
		switch {
		case err != nil && (!ok || !policy.Closed):
			t.Fatalf("%v without a closed policy: %v", err, p)
		case err != nil:
			closedDoor(t, policy)
		case ok && policy.Closed:
			t.Fatal("a valid policy is closed")
		case ok && policy.Size() > mesh.MaxPolicySize:
			t.Fatalf("%d bytes", policy.Size())
		case ok:
			for _, r := range policy.Rules {
				for _, list := range append(append(r.From, r.To...), r.When) {
					for _, c := range list {
						if len(c.Values)+len(c.NotValues) == 0 {
							t.Fatalf("a condition without values: it matches everything")
						}
					}
				}
			}
		}
		_, _ = objects.NeverMatches(raw), objects.SelectsAll(raw)
		// Adding the policy to a builder and removing it covers all of the builder's indexes.
		b := build.New(mesh.Config{})
		if p != nil {
			b.Set(p, &mesh.WorkloadSpec{Workload: mesh.Workload{Name: "a", Namespace: "shop", Labels: map[string]string{"a": "b"}}})
			b.Mesh()
			b.Delete(p.Key())
			b.Mesh()
		}
	})
}
