package foreign_test

import (
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"outrider.dev/internal/core/mesh/foreign"
)

func TestInsteadOfAVirtualService(t *testing.T) {
	const plain = "use an HTTPRoute"
	for name, tt := range map[string]struct{ spec, want string }{
		"weights": {
			`{hosts: [web], http: [{route: [{destination: {host: web, port: {number: 80}}, weight: 90}, {destination: {host: v2.other.svc.cluster.local, port: {number: 81}}, weight: 10}]}]}`,
			plain + `, with a ReferenceGrant in the namespace of a backend: {"apiVersion":"gateway.networking.k8s.io/v1","kind":"HTTPRoute","metadata":{"name":"v","namespace":"shop"},"spec":{"parentRefs":[{"group":"","kind":"Service","name":"web"}],"rules":[{"backendRefs":[{"name":"web","port":80,"weight":90},{"name":"v2","namespace":"other","port":81,"weight":10}]}]}}`,
		},
		"matches, time-outs, retries": {
			`{hosts: [web.shop.svc], gateways: [mesh], http: [{name: a, match: [{uri: {prefix: /a}, method: {exact: GET}, headers: {x: {regex: "y.*"}}, queryParams: {q: {exact: "1"}}}], timeout: 2.5s, retries: {attempts: 3, perTryTimeout: 200ms, retryOn: "gateway-error,connect-failure,429"}, route: [{destination: {host: web, port: {number: 80}}}]}]}`,
			plain + `, where a prefix is of whole path elements: {"apiVersion":"gateway.networking.k8s.io/v1","kind":"HTTPRoute","metadata":{"name":"v","namespace":"shop"},"spec":{"parentRefs":[{"group":"","kind":"Service","name":"web"}],"rules":[{"backendRefs":[{"name":"web","port":80}],"matches":[{"headers":[{"name":"x","type":"RegularExpression","value":"y.*"}],"method":"GET","path":{"type":"PathPrefix","value":"/a"},"queryParams":[{"name":"q","type":"Exact","value":"1"}]}],"name":"a","retry":{"attempts":3,"codes":[502,503,504,429]},"timeouts":{"backendRequest":"200ms","request":"2s500ms"}}]}}`,
		},
		"redirect, then rewrite, mirror and headers": {
			`{hosts: [web], http: [{match: [{uri: {exact: /x}}], redirect: {uri: /y, authority: z.example, redirectCode: 307}}, {match: [{uri: {prefix: /}}], rewrite: {uri: /v2/}, mirror: {host: log}, mirrorPercentage: {value: 0.5}, headers: {request: {set: {a: b}, remove: [c]}}, route: [{destination: {host: web}, headers: {response: {add: {d: e}}}}]}]}`,
			plain + `, where a prefix is of whole path elements, with the Service's port in place of 80: {"apiVersion":"gateway.networking.k8s.io/v1","kind":"HTTPRoute","metadata":{"name":"v","namespace":"shop"},"spec":{"parentRefs":[{"group":"","kind":"Service","name":"web"}],"rules":[{"filters":[{"requestRedirect":{"hostname":"z.example","path":{"replaceFullPath":"/y","type":"ReplaceFullPath"},"statusCode":307},"type":"RequestRedirect"}],"matches":[{"path":{"type":"Exact","value":"/x"}}]},{"backendRefs":[{"filters":[{"responseHeaderModifier":{"add":[{"name":"d","value":"e"}]},"type":"ResponseHeaderModifier"}],"name":"web","port":80}],"filters":[{"requestHeaderModifier":{"remove":["c"],"set":[{"name":"a","value":"b"}]},"type":"RequestHeaderModifier"},{"type":"URLRewrite","urlRewrite":{"path":{"replacePrefixMatch":"/v2/","type":"ReplacePrefixMatch"}}},{"requestMirror":{"backendRef":{"name":"log","port":80},"fraction":{"denominator":1000000,"numerator":5000}},"type":"RequestMirror"}],"matches":[{"path":{"type":"PathPrefix","value":"/"}}]}]}}`,
		},
		"no rule":                       {`{hosts: [web]}`, plain},
		"a rule that leads nowhere":     {`{hosts: [web], http: [{timeout: 1s}]}`, plain},
		"a subset":                      {`{hosts: [web], http: [{route: [{destination: {host: web, subset: v1}}]}]}`, plain},
		"a fault":                       {`{hosts: [web], http: [{fault: {}, route: [{destination: {host: web}}]}]}`, plain + ", and a BackendPolicy for its faults"},
		"a gateway":                     {`{hosts: [web], gateways: [edge], http: [{route: [{destination: {host: web}}]}]}`, plain},
		"two hosts":                     {`{hosts: [web, api], http: [{route: [{destination: {host: web}}]}]}`, plain},
		"an outside host":               {`{hosts: [api.example.com], http: [{route: [{destination: {host: web}}]}]}`, plain},
		"bytes":                         {`{hosts: [web], tcp: [{route: [{destination: {host: web}}]}]}`, plain},
		"a rule that hides a later one": {`{hosts: [web], http: [{route: [{destination: {host: web}}]}, {match: [{uri: {exact: /x}}], route: [{destination: {host: v2}}]}]}`, plain},
		"a retry of its own":            {`{hosts: [web], http: [{retries: {attempts: 1, retryOn: envoy-ratelimited}, route: [{destination: {host: web}}]}]}`, plain},
		"too long":                      {`{hosts: [web], http: [{route: [{destination: {host: web}, headers: {request: {set: {a: ` + strings.Repeat("x", 3000) + `}}}}]}]}`, plain},
		"forms that are no objects":     {`{hosts: [web], http: [1, {route: [x], match: y}]}`, plain},
	} {
		t.Run(name, func(t *testing.T) {
			object := map[string]any{}
			if err := yaml.Unmarshal([]byte("{apiVersion: networking.istio.io/v1, kind: VirtualService, metadata: {name: v, namespace: shop}, spec: "+tt.spec+"}"), &object); err != nil {
				t.Fatal(err)
			}
			if got := foreign.Read(object).Instead; got != tt.want {
				t.Errorf("%s\nwant %s", got, tt.want)
			}
		})
	}
}
