package files

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"outrider.dev/internal/core/mesh"
)

// A policy with a mistake keeps its last good version; the problem has file, line and field. Where
// there is none, as after a restart, there is no policy.
func TestInvalidBackendPolicies(t *testing.T) {
	const head = "apiVersion: outrider.dev/v1alpha1\nkind: BackendPolicy\nmetadata: {name: p}\nspec:\n  targetRefs: [{name: web}]\n  "
	dir := t.TempDir()
	write(t, filepath.Join(dir, "web.yaml"), "apiVersion: v1\nkind: Service\nmetadata: {name: web}\nspec: {clusterIP: 10.0.0.1, ports: [{name: http, port: 80}]}\n")
	read := func(f *folder, text string) string {
		t.Helper()
		reread(t, f, "policy.yaml", text)
		out := []string{fmt.Sprint(f.builder.Mesh().ByName("default", "web").Policy(80).Limits.Connections)}
		for _, p := range f.problems() {
			out = append(out, p.String())
		}
		return strings.Join(out, "; ")
	}
	f := newFolder(dir, mesh.Config{})
	for _, step := range []struct{ name, text, want string }{
		{"none is good", head + "connections: {max: 0}", `0; policy.yaml:6: BackendPolicy default/p: spec.connections.max: 0 is out of range: must be 1 to 2147483647`},
		{"good", head + "connections: {max: 7}", "7"},
		{"a mistake", head + "connections: {max: 8, connectTimeout: 2h}", `7; policy.yaml:6: BackendPolicy default/p: spec.connections.connectTimeout: "2h" is out of range: must be 1ms to 1h`},
		{"a field that is misspelt", head + "connections: {maximum: 8}", `7; policy.yaml:6: BackendPolicy default/p: spec.connections.maximum: unknown field`},
		{"good again", head + "connections: {max: 9}", "9"},
		{"deleted", "", "0"},
	} {
		if got := read(f, step.text); got != step.want {
			t.Errorf("%s:\n%s\nwant\n%s", step.name, got, step.want)
		}
	}
}
