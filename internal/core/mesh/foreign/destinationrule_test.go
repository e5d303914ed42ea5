package foreign_test

import (
	"encoding/json"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"outrider.dev/internal/core/mesh/foreign"
	"outrider.dev/internal/core/mesh/objects"
)

func TestInsteadOfADestinationRule(t *testing.T) {
	const (
		head   = `{"apiVersion":"outrider.dev/v1alpha1","kind":"BackendPolicy","metadata":{"name":"d","namespace":"shop"},"spec":{`
		target = `"targetRefs":[{"name":"web"}]}}`
		shares = "use a Service for each subset, and an HTTPRoute for their shares"
		each   = "use a BackendPolicy of each Service for its limits and outlier detection, a Service for each subset, and an HTTPRoute for their shares"
		usual  = `"interval":"10s","maxEjectionPercent":10}`
	)
	for name, tt := range map[string]struct{ spec, want string }{
		"limits": {
			`{host: web, trafficPolicy: {connectionPool: {tcp: {maxConnections: 100, connectTimeout: 1.5s, idleTimeout: 2h}, http: {http1MaxPendingRequests: 1, http2MaxRequests: 2, maxRequestsPerConnection: 3, maxRetries: 4, idleTimeout: 1m}}}}`,
			`use a BackendPolicy: ` + head + `"connections":{"connectTimeout":"1s500ms","idleTimeout":"60s","max":100,"maxPendingRequests":1,"maxRequests":2,"maxRequestsPerConnection":3,"maxRetries":4},` + target,
		},
		"an idle timeout of TCP, and what is not set": {
			`{host: web.shop.svc.cluster.local, trafficPolicy: {connectionPool: {tcp: {idleTimeout: 2h}, http: {maxRetries: 0}}}}`,
			`use a BackendPolicy: ` + head + `"connections":{"idleTimeout":"7200s"},` + target,
		},
		"outlier detection, by Istio's defaults": {
			`{host: web, trafficPolicy: {outlierDetection: {}}}`,
			`use a BackendPolicy: ` + head + `"outlierDetection":{"baseEjectionTime":"30s","consecutive5xxErrors":5,"consecutiveGatewayErrors":0,"consecutiveLocalOriginFailures":5,` + usual + `,` + target,
		},
		"outlier detection, where a failed connection is a gateway's error": {
			`{host: web, trafficPolicy: {outlierDetection: {consecutive5xxErrors: 0, consecutiveGatewayErrors: 7, consecutiveLocalOriginFailures: 2, interval: 5s, baseEjectionTime: 3m, maxEjectionPercent: 100}}}`,
			`use a BackendPolicy: ` + head + `"outlierDetection":{"baseEjectionTime":"180s","consecutive5xxErrors":0,"consecutiveGatewayErrors":7,"consecutiveLocalOriginFailures":7,"interval":"5s","maxEjectionPercent":100},` + target,
		},
		"outlier detection, where a failed connection counts by itself": {
			`{host: web, trafficPolicy: {outlierDetection: {splitExternalLocalOriginErrors: true, consecutiveLocalOriginFailures: 2}}}`,
			`use a BackendPolicy: ` + head + `"outlierDetection":{"baseEjectionTime":"30s","consecutive5xxErrors":5,"consecutiveGatewayErrors":0,"consecutiveLocalOriginFailures":2,` + usual + `,` + target,
		},
		"ports": {
			`{host: web, trafficPolicy: {connectionPool: {tcp: {maxConnections: 1}}, portLevelSettings: [{port: {number: 80}, connectionPool: {tcp: {maxConnections: 2}}}, {port: {number: 81}, tls: {mode: SIMPLE}}]}}`,
			`use a BackendPolicy, with the names of the Service's ports in place of port-NUMBER; without an equivalent: trafficPolicy.portLevelSettings[1].tls (proxies use mutual TLS among themselves; other TLS is the application's), trafficPolicy.portLevelSettings[1]` +
				`: {"apiVersion":"v1","items":[` + head + `"connections":{"max":1},` + target + `,` + strings.Replace(head, `"d"`, `"d-port-80"`, 1) + `"connections":{"max":2},"targetRefs":[{"name":"web","sectionName":"port-80"}]}}],"kind":"List"}`,
		},
		"a Service of another namespace": {
			`{host: web.bank.svc.cluster.local, trafficPolicy: {connectionPool: {tcp: {maxConnections: 1}}}}`,
			`use a BackendPolicy, which is then for the clients of all namespaces: ` + strings.Replace(head, "shop", "bank", 1) + `"connections":{"max":1},` + target,
		},
		"subsets":                       {`{host: web, subsets: [{name: v1, labels: {version: v1}}]}`, shares},
		"limits and subsets and budget": {`{host: web, trafficPolicy: {connectionPool: {tcp: {maxConnections: 1}}, retryBudget: {percent: 10}}, subsets: [{name: v1}]}`, `use a BackendPolicy, a Service for each subset, an HTTPRoute for their shares, and an XBackendTrafficPolicy for its retryBudget: ` + head + `"connections":{"max":1},` + target},
		"what has no equivalent": {
			`{host: web, exportTo: [.], workloadSelector: {matchLabels: {a: b}}, trafficPolicy: {loadBalancer: {simple: RANDOM}, tunnel: {}, connectionPool: {tcp: {tcpKeepalive: {}, connectTimeout: 2h}, http: {h2UpgradePolicy: UPGRADE, maxRetries: -1}}}}`,
			`remove it; without an equivalent: workloadSelector, exportTo, trafficPolicy.tunnel, trafficPolicy.loadBalancer (the endpoint with the fewest requests is used, and trafficDistribution of the Service prefers near ones), trafficPolicy.connectionPool.http.h2UpgradePolicy and 3 more`,
		},
		"an interval that is too short": {
			`{host: web, trafficPolicy: {outlierDetection: {interval: 500ms, minHealthPercent: 30}}}`,
			`use a BackendPolicy; without an equivalent: trafficPolicy.outlierDetection.minHealthPercent, trafficPolicy.outlierDetection.interval of "500ms": ` +
				head + `"outlierDetection":{"baseEjectionTime":"30s","consecutive5xxErrors":5,"consecutiveGatewayErrors":0,"consecutiveLocalOriginFailures":5,"maxEjectionPercent":10},` + target,
		},
		"what is so by itself":      {`{host: web, exportTo: ["*"], trafficPolicy: {tls: {mode: ISTIO_MUTUAL}, loadBalancer: {simple: LEAST_REQUEST}}}`, "remove it: all that it sets is so by itself"},
		"several hosts":             {`{host: "*.shop.svc.cluster.local", trafficPolicy: {outlierDetection: {}}}`, each},
		"an outside host":           {`{host: api.example.com}`, each},
		"no host":                   {`{}`, each},
		"forms that are no objects": {`{host: web, trafficPolicy: 1, subsets: x}`, "remove it: all that it sets is so by itself"},
	} {
		t.Run(name, func(t *testing.T) {
			object := map[string]any{}
			if err := yaml.Unmarshal([]byte("{apiVersion: networking.istio.io/v1, kind: DestinationRule, metadata: {name: d, namespace: shop}, spec: "+tt.spec+"}"), &object); err != nil {
				t.Fatal(err)
			}
			got := foreign.Read(object).Instead
			if got != tt.want {
				t.Errorf("%s\nwant %s", got, tt.want)
			}
			// Outrider accepts the policy in the advice.
			if _, policy, ok := strings.Cut(got, `: {"`); ok {
				parts, err := objects.Read(json.RawMessage(`{"` + policy))
				if err != nil || len(parts) == 0 {
					t.Errorf("%v, %v", parts, err)
				}
			}
		})
	}
}
