// Package authorization is a table of calls that AuthorizationPolicies allow or deny. internal/core/xds/rbac checks
// it with an evaluator of its own, and test/mesh with a real Envoy.
//
// Policies belong to the namespace shop and select the server, unless they say otherwise. The server
// has the ports 8080 (http), 6379 (tcp) and 3306 (first: the server sends first). The callers "client" and "other"
// have proxies, which give them identities; the caller "plain" has no proxy. A call is written "client tcp", or
// "client http GET /path host".
package authorization

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"outrider.dev/internal/core/mesh"
	"outrider.dev/internal/core/mesh/objects"
)

//go:embed table.yaml
var table []byte

// A Case is a set of policies with calls that they allow and calls that they deny.
type Case struct {
	Name            string
	Parts           []mesh.Part
	Allowed, Denied []Call
}

// A Call is one connection, or one request.
type Call struct {
	From   string // client, other or plain
	Port   string // http, tcp or first
	Method string // HTTP method; empty for a connection
	Path   string
	Host   string
	text   string
}

func (c Call) String() string { return c.text }

// Ports maps a port's name to its number, and Addresses a pod's name to its address.
var (
	Ports     = map[string]uint16{"http": 8080, "tcp": 6379, "first": 3306}
	Addresses = map[string]string{"server": "10.244.1.2", "plain": "10.244.2.2", "client": "10.244.3.2", "other": "10.244.4.2"}
)

// Table returns all cases. Each supported attribute of Istio's policies has one.
func Table(t testing.TB) []Case {
	t.Helper()
	var cases []struct {
		Name            string           `json:"name"`
		Policies        []map[string]any `json:"policies"`
		Allowed, Denied []string
	}
	if err := yaml.UnmarshalStrict(table, &cases); err != nil {
		t.Fatal(err)
	}
	var out []Case
	for _, c := range cases {
		next := Case{Name: c.Name, Allowed: calls(t, c.Allowed), Denied: calls(t, c.Denied)}
		for i, spec := range c.Policies {
			next.Parts = append(next.Parts, policy(t, fmt.Sprintf("policy-%d", i), spec))
		}
		out = append(out, next)
	}
	return out
}

func policy(t testing.TB, name string, spec map[string]any) mesh.Part {
	t.Helper()
	namespace, ok := spec["namespace"].(string)
	if !ok {
		namespace = "shop"
	}
	delete(spec, "namespace")
	if selector, has := spec["selector"]; !has {
		spec["selector"] = map[string]any{"matchLabels": map[string]any{"app": "server"}}
	} else if selector == nil {
		delete(spec, "selector")
	}
	raw, err := json.Marshal(map[string]any{
		"apiVersion": "security.istio.io/v1", "kind": "AuthorizationPolicy", "metadata": map[string]any{"name": name, "namespace": namespace}, "spec": spec,
	})
	if err != nil {
		t.Fatal(err)
	}
	p, err := objects.AuthorizationPolicy(raw)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func calls(t testing.TB, all []string) []Call {
	t.Helper()
	var out []Call
	for _, text := range all {
		f := append(strings.Fields(text), "", "", "")
		c := Call{From: f[0], Port: f[1], Method: f[2], Path: f[3], Host: f[4], text: text}
		if Ports[c.Port] == 0 || Addresses[c.From] == "" || (c.Port == "http") != (c.Path != "") {
			t.Fatalf("%q is not a call", text)
		}
		out = append(out, c)
	}
	return out
}
