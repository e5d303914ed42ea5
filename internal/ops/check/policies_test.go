package check

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

func policy(kind, namespace, name, spec string) string {
	return fmt.Sprintf(`{apiVersion: security.istio.io/v1, kind: %s, metadata: {name: %s, namespace: %s}, spec: %s}`, kind, name, namespace, spec)
}

func TestMistakenPolicies(t *testing.T) {
	const refused = "failed PeerAuthentication shop/typo: outriderd refuses it: spec.mtls.mode: "
	typo := policy("PeerAuthentication", "shop", "typo", "{mtls: {mode: STRIKT}}")
	all := policy("AuthorizationPolicy", "shop", "all", "{selector: {matchLabels: {}}, action: DENY, rules: [{}]}")
	fine := []string{"ok : no policy is refused, for all pods by an empty selector, or has a value that no request has"}
	for name, tt := range map[string]struct {
		before  bool
		objects []string
		want    []string
	}{
		"there are none": {false, nil, fine},
		"right ones": {false, []string{policy("PeerAuthentication", "shop", "all", "{mtls: {mode: STRICT}}"),
			policy("AuthorizationPolicy", "shop", "web", "{selector: {matchLabels: {app: web}}, rules: [{}]}")}, fine},
		"one that is refused, and one for all": {false, []string{typo, all}, []string{
			"warning AuthorizationPolicy shop/all: its selector names no label: it is for all pods of namespace shop", refused}},
		"of no request": {false, []string{policy("AuthorizationPolicy", "shop", "web", "{rules: [{to: [{operation: {methods: [get]}}]}]}")}, []string{
			`warning AuthorizationPolicy shop/web: spec.rules[0].to[0].operation.methods[0]: "get" is the method of no request: write GET`}},
		"in a namespace without proxies":      {false, []string{strings.Replace(typo, "shop", "other", 1)}, fine},
		"in the root namespace":               {false, []string{strings.Replace(typo, "shop", "istio-system", 1)}, []string{strings.Replace(refused, "shop", "istio-system", 1)}},
		"before an installation, in each one": {true, []string{strings.Replace(typo, "shop", "other", 1)}, []string{strings.Replace(refused, "shop", "other", 1)}},
	} {
		t.Run(name, func(t *testing.T) {
			s, _ := otherMesh(t, tt.objects...)
			s.Before = tt.before
			got := s.mistakenPolicies(t.Context())
			if !slices.EqualFunc(results(got), tt.want, strings.HasPrefix) {
				t.Errorf("%s; want %s", strings.Join(results(got), "\n"), strings.Join(tt.want, "\n"))
			}
		})
	}
}

func TestManyMistakenPolicies(t *testing.T) {
	var objects []string
	for i := range maxReported + 3 {
		objects = append(objects, policy("PeerAuthentication", "shop", fmt.Sprint("a", i), "{selector: {}}"))
	}
	s, _ := otherMesh(t, objects...)
	got := s.mistakenPolicies(t.Context())
	if last := got[len(got)-1]; len(got) != maxReported+1 || last.Object != "others" || last.Reason != "3 more are mistaken" {
		t.Errorf("%d, the last of which is %v", len(got), last)
	}
}
