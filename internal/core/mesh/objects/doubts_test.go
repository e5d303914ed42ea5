package objects_test

import (
	"encoding/json"
	"strings"
	"testing"

	"outrider.dev/internal/core/mesh/objects"
)

// Paths that no request has are found. Another encoding is one only where a match allows.
func TestNeverMatches(t *testing.T) {
	const dots = "the proxy resolves . and .."
	for v, want := range map[string]struct{ denies, allows string }{
		"/dot/../dd":            {dots, dots},
		"*/./x":                 {dots, dots},
		"/a%2f%2e%2E%5cb":       {dots, dots},
		`/a\..\b`:               {dots, dots},
		"/a/.*":                 {},
		"/.well-known/a..b":     {},
		"*./x":                  {},
		"/a;x/%3b/%20/é%zz":     {allows: "write /a;x/%3b/%20/%C3%A9%zz"},
		`/%61%2d b|c\d`:         {allows: "write /a-%20b%7Cc/d"},
		"/{*}/a/{**}":           {},
		"/a:b@c!$&'()+,=[]~%5B": {},
	} {
		for field, allows := range map[string]bool{"ALLOW paths": true, "ALLOW notPaths": false, "DENY paths": false, "DENY notPaths": true} { // any order: separate policies
			action, field, _ := strings.Cut(field, " ")
			operation := map[string]any{field: []string{v}}
			raw, err := json.Marshal(map[string]any{"apiVersion": "security.istio.io/v1", "kind": "AuthorizationPolicy", "metadata": map[string]any{"name": "p"},
				"spec": map[string]any{"action": action, "rules": []any{map[string]any{"to": []any{map[string]any{"operation": operation}}}}}})
			if err != nil {
				t.Fatal(err)
			}
			message := want.denies
			if allows {
				message = want.allows
			}
			got := objects.NeverMatches(raw)
			if (got == nil) != (message == "") || message != "" && !strings.Contains(got.Error(), message) {
				t.Errorf("%s %s %q: %v, want %q", action, field, v, got, message)
			}
		}
	}
}
