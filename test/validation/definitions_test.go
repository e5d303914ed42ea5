package validation

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	definitionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	schemavalidation "k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"sigs.k8s.io/yaml"

	"outrider.dev/internal/core/mesh/objects"
	"outrider.dev/test/chart"
)

// judgeOf returns a function that validates objects of a CustomResourceDefinition as the API server does: with the
// schema of the first version, including its defaults, and with its CEL rules.
func judgeOf(t *testing.T, definition string) func(object map[string]any) field.ErrorList {
	t.Helper()
	crds, err := chart.Definitions()
	if err != nil {
		t.Fatal(err)
	}
	var v1 definitionsv1.CustomResourceDefinition
	for _, text := range crds { // any order: a single one is searched for
		if strings.Contains(text, "name: "+definition+"\n") {
			if err := yaml.UnmarshalStrict([]byte(text), &v1); err != nil {
				t.Fatal(err)
			}
		}
	}
	if len(v1.Spec.Versions) == 0 {
		t.Fatalf("the chart has no definition %s", definition)
	}
	var props apiextensions.JSONSchemaProps
	if err := definitionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(v1.Spec.Versions[0].Schema.OpenAPIV3Schema, &props, nil); err != nil {
		t.Fatal(err)
	}
	structural, err := structuralschema.NewStructural(&props)
	if err != nil {
		t.Fatal(err)
	}
	validator, _, err := schemavalidation.NewSchemaValidator(&props)
	if err != nil {
		t.Fatal(err)
	}
	rules := cel.NewValidator(structural, true, celconfig.PerCallLimit)
	return func(object map[string]any) field.ErrorList {
		defaulting.Default(object, structural)
		errs := schemavalidation.ValidateCustomResource(nil, object, validator)
		more, _ := rules.Validate(t.Context(), nil, structural, object, nil, celconfig.RuntimeCELCostBudget)
		return append(errs, more...)
	}
}

// policySpecs are specs of a BackendPolicy. wants is a substring of the error that both the API server's code and
// Outrider's code return, or "" if both accept the spec.
var policySpecs = map[string]struct{ spec, wants string }{
	"everything": {`{targetRefs: [{group: "", kind: Service, name: web}, {name: web, sectionName: http}],
		connections: {max: 1, maxPendingRequests: 2147483647, maxRequests: 1, maxRetries: 0, maxRequestsPerConnection: 1, connectTimeout: 250ms, idleTimeout: 24h},
		outlierDetection: {consecutive5xxErrors: 0, consecutiveGatewayErrors: 1, consecutiveLocalOriginFailures: 1, interval: 1s, baseEjectionTime: 1h, maxEjectionPercent: 100},
		faults: {delay: {duration: 1m30s, percent: 0.5}, abort: {httpStatus: 503, percent: 100}}}`, ""},
	"an abort of gRPC":             {`{targetRefs: [{name: web}], faults: {abort: {grpcStatus: 14}}}`, ""},
	"no target":                    {`{targetRefs: [], faults: {abort: {grpcStatus: 14}}}`, "targetRefs"},
	"17 targets":                   {`{targetRefs: [` + strings.TrimSuffix(strings.Repeat("{name: web}, ", 17), ", ") + `], faults: {abort: {grpcStatus: 14}}}`, "targetRefs"},
	"a target twice":               {`{targetRefs: [{name: web}, {name: web}], faults: {abort: {grpcStatus: 14}}}`, "twice"},
	"a port twice":                 {`{targetRefs: [{name: web, sectionName: a}, {name: web, sectionName: a}], faults: {abort: {grpcStatus: 14}}}`, "twice"},
	"two ports of one Service":     {`{targetRefs: [{name: web, sectionName: a}, {name: web, sectionName: b}, {name: web}], faults: {abort: {grpcStatus: 14}}}`, ""},
	"another kind":                 {`{targetRefs: [{kind: Pod, name: web}], faults: {abort: {grpcStatus: 14}}}`, "kind"},
	"another group":                {`{targetRefs: [{group: x, name: web}], faults: {abort: {grpcStatus: 14}}}`, "targetRefs[0]"},
	"no name":                      {`{targetRefs: [{sectionName: web}], faults: {abort: {grpcStatus: 14}}}`, "name"},
	"a name in capitals":           {`{targetRefs: [{name: Web}], faults: {abort: {grpcStatus: 14}}}`, "name"},
	"a port's name in capitals":    {`{targetRefs: [{name: web, sectionName: A}], faults: {abort: {grpcStatus: 14}}}`, "sectionName"},
	"an empty port's name":         {`{targetRefs: [{name: web, sectionName: ""}], faults: {abort: {grpcStatus: 14}}}`, "sectionName"},
	"nothing is set":               {`{targetRefs: [{name: web}]}`, "must have connections, outlierDetection or faults"},
	"empty connections":            {`{targetRefs: [{name: web}], connections: {}}`, "spec.connections"},
	"empty outlierDetection":       {`{targetRefs: [{name: web}], outlierDetection: {}}`, "spec.outlierDetection"},
	"empty faults":                 {`{targetRefs: [{name: web}], faults: {}}`, "spec.faults"},
	"no connection":                {`{targetRefs: [{name: web}], connections: {max: 0}}`, "connections.max"},
	"too many connections":         {`{targetRefs: [{name: web}], connections: {max: 2147483648}}`, "connections.max"},
	"no pending request":           {`{targetRefs: [{name: web}], connections: {maxPendingRequests: 0}}`, "maxPendingRequests"},
	"no request":                   {`{targetRefs: [{name: web}], connections: {maxRequests: 0}}`, "maxRequests"},
	"fewer retries than none":      {`{targetRefs: [{name: web}], connections: {maxRetries: -1}}`, "maxRetries"},
	"no request of a connection":   {`{targetRefs: [{name: web}], connections: {maxRequestsPerConnection: 0}}`, "maxRequestsPerConnection"},
	"a timeout without a unit":     {`{targetRefs: [{name: web}], connections: {connectTimeout: "1"}}`, "connectTimeout"},
	"a timeout of zero":            {`{targetRefs: [{name: web}], connections: {connectTimeout: 0s}}`, "must be 1ms to 1h"},
	"a timeout of hours":           {`{targetRefs: [{name: web}], connections: {connectTimeout: 1h1ms}}`, "must be 1ms to 1h"},
	"an idle timeout of zero":      {`{targetRefs: [{name: web}], connections: {idleTimeout: 0s}}`, "must be 1ms to 24h"},
	"an idle timeout of days":      {`{targetRefs: [{name: web}], connections: {idleTimeout: 25h}}`, "must be 1ms to 24h"},
	"fewer errors than none":       {`{targetRefs: [{name: web}], outlierDetection: {consecutive5xxErrors: -1}}`, "consecutive5xxErrors"},
	"fewer of gateways":            {`{targetRefs: [{name: web}], outlierDetection: {consecutiveGatewayErrors: -1}}`, "consecutiveGatewayErrors"},
	"fewer failures than none":     {`{targetRefs: [{name: web}], outlierDetection: {consecutiveLocalOriginFailures: -1}}`, "consecutiveLocalOriginFailures"},
	"an interval of milliseconds":  {`{targetRefs: [{name: web}], outlierDetection: {interval: 999ms}}`, "must be 1s to 1h"},
	"an ejection of hours":         {`{targetRefs: [{name: web}], outlierDetection: {baseEjectionTime: 2h}}`, "must be 1s to 1h"},
	"more than all endpoints":      {`{targetRefs: [{name: web}], outlierDetection: {maxEjectionPercent: 101}}`, "maxEjectionPercent"},
	"a delay without a duration":   {`{targetRefs: [{name: web}], faults: {delay: {percent: 1}}}`, "duration"},
	"a delay of zero":              {`{targetRefs: [{name: web}], faults: {delay: {duration: 0ms}}}`, "must be 1ms to 1h"},
	"a share of none":              {`{targetRefs: [{name: web}], faults: {delay: {duration: 1s, percent: 0}}}`, "must be 0.0001 to 100"},
	"a share above all":            {`{targetRefs: [{name: web}], faults: {abort: {httpStatus: 500, percent: 100.5}}}`, "percent"},
	"an abort without a status":    {`{targetRefs: [{name: web}], faults: {abort: {percent: 1}}}`, "must have either httpStatus or grpcStatus"},
	"an abort with both":           {`{targetRefs: [{name: web}], faults: {abort: {httpStatus: 500, grpcStatus: 14}}}`, "must have either httpStatus or grpcStatus"},
	"an informational status":      {`{targetRefs: [{name: web}], faults: {abort: {httpStatus: 100}}}`, "httpStatus"},
	"a gRPC status of success":     {`{targetRefs: [{name: web}], faults: {abort: {grpcStatus: 0}}}`, "grpcStatus"},
	"a gRPC status of no standard": {`{targetRefs: [{name: web}], faults: {abort: {grpcStatus: 17}}}`, "grpcStatus"},
}

// routeRules are rules of an HTTPRoute to a Service, with wants as in policySpecs.
var routeRules = map[string]struct{ spec, wants string }{
	"all of it": {`{matches: [{path: {type: Exact, value: "/a%20b"}, headers: [{name: X-A, value: b}], queryParams: [{name: q, value: "1"}], method: GET}, {path: {type: RegularExpression, value: "/a?"}}],
		filters: [{type: RequestHeaderModifier, requestHeaderModifier: {set: [{name: a, value: b}], remove: [c]}}, {type: ResponseHeaderModifier, responseHeaderModifier: {add: [{name: a, value: b}]}},
			{type: URLRewrite, urlRewrite: {hostname: x.example, path: {type: ReplaceFullPath, replaceFullPath: /x}}},
			{type: RequestMirror, requestMirror: {backendRef: {name: a, port: 80}}}, {type: RequestMirror, requestMirror: {backendRef: {name: b, port: 80}, percent: 10}}],
		backendRefs: [{name: a, port: 80, weight: 3, filters: [{type: RequestHeaderModifier, requestHeaderModifier: {remove: [c]}}]}], timeouts: {request: 2s, backendRequest: 1s500ms}}`, ""},
	"a prefix that is replaced":        {`{matches: [{path: {type: PathPrefix, value: /a}}], filters: [{type: RequestRedirect, requestRedirect: {path: {type: ReplacePrefixMatch, replacePrefixMatch: /b}, statusCode: 308}}]}`, ""},
	"no timeout at all":                {`{timeouts: {request: 0s, backendRequest: 1s}}`, ""},
	"a backend that is no Service":     {`{backendRefs: [{group: storage.example, kind: Bucket, name: b}]}`, ""},
	"a path without /":                 {`{matches: [{path: {value: a}}]}`, "value must begin with /"},
	"a path with a query":              {`{matches: [{path: {value: "/a?b"}}]}`, "no ? or #"},
	"a path that is not normalised":    {`{matches: [{path: {value: /a/../b}}]}`, "/.."},
	"a slash that is hidden":           {`{matches: [{path: {value: /a%2Fb}}]}`, "%2F"},
	"a method of no standard":          {`{matches: [{method: FETCH}]}`, "method"},
	"a header's name with a space":     {`{matches: [{headers: [{name: "a b", value: x}]}]}`, "name"},
	"a changed header with a colon":    {`{filters: [{type: RequestHeaderModifier, requestHeaderModifier: {set: [{name: ":path", value: x}]}}]}`, "name"},
	"a filter without its field":       {`{filters: [{type: URLRewrite}]}`, "must have urlRewrite with the type URLRewrite"},
	"the field of another type":        {`{filters: [{type: URLRewrite, requestHeaderModifier: {remove: [a]}}]}`, "must have requestHeaderModifier with the type RequestHeaderModifier"},
	"a filter of no standard":          {`{filters: [{type: Limit}]}`, "type"},
	"a filter twice":                   {`{filters: [{type: URLRewrite, urlRewrite: {hostname: a}}, {type: URLRewrite, urlRewrite: {hostname: b}}]}`, "same type twice"},
	"a redirect and a rewrite":         {`{filters: [{type: URLRewrite, urlRewrite: {hostname: a}}, {type: RequestRedirect, requestRedirect: {hostname: b}}]}`, "both RequestRedirect and URLRewrite"},
	"a redirect with a backend":        {`{filters: [{type: RequestRedirect, requestRedirect: {hostname: b}}], backendRefs: [{name: a, port: 80}]}`, "must not be used with the filter RequestRedirect"},
	"a redirect with another status":   {`{filters: [{type: RequestRedirect, requestRedirect: {statusCode: 300}}]}`, "statusCode"},
	"a prefix of an exact path":        {`{matches: [{path: {type: Exact, value: /a}}], filters: [{type: URLRewrite, urlRewrite: {path: {type: ReplacePrefixMatch, replacePrefixMatch: /b}}}]}`, "of the type PathPrefix"},
	"a path of the other type":         {`{filters: [{type: URLRewrite, urlRewrite: {path: {type: ReplacePrefixMatch, replaceFullPath: /b}}}]}`, "must have the field of its type"},
	"a full path without /":            {`{filters: [{type: URLRewrite, urlRewrite: {path: {type: ReplaceFullPath, replaceFullPath: b}}}]}`, "replaceFullPath"},
	"a backend without a port":         {`{backendRefs: [{name: a}]}`, "must have the port of the Service"},
	"a mirror without a port":          {`{filters: [{type: RequestMirror, requestMirror: {backendRef: {name: a}}}]}`, "must have the port of the Service"},
	"a weight of less than none":       {`{backendRefs: [{name: a, port: 80, weight: -1}]}`, "weight"},
	"a backend's timeout that is more": {`{timeouts: {request: 1s, backendRequest: 2s}}`, "must not be longer than request"},
	"a timeout without a unit":         {`{timeouts: {request: "1"}}`, "request"},
	"a retry of a success":             {`{retry: {codes: [200]}}`, "codes"},
}

// callRules are rules of a GRPCRoute to a Service, with wants as in policySpecs.
var callRules = map[string]struct{ spec, wants string }{
	"all of it": {`{matches: [{method: {service: shop.Cart, method: Add}, headers: [{name: x-a, value: b}]}, {method: {type: RegularExpression, service: "shop[.].*"}}],
		filters: [{type: RequestHeaderModifier, requestHeaderModifier: {set: [{name: a, value: b}]}}, {type: RequestMirror, requestMirror: {backendRef: {name: a, port: 80}}}], backendRefs: [{name: a, port: 80}]}`, ""},
	"neither service nor method":    {`{matches: [{method: {}}]}`, "method"},
	"a service with a slash":        {`{matches: [{method: {service: shop/Cart}}]}`, "service must be letters"},
	"a method with a dot":           {`{matches: [{method: {method: a.b}}]}`, "method must be letters"},
	"a filter of HTTPRoutes":        {`{filters: [{type: URLRewrite, urlRewrite: {hostname: a}}]}`, "type"},
	"a filter without its field":    {`{filters: [{type: ResponseHeaderModifier}]}`, "must have responseHeaderModifier"},
	"a filter twice":                {`{filters: [{type: RequestHeaderModifier, requestHeaderModifier: {remove: [a]}}, {type: RequestHeaderModifier, requestHeaderModifier: {remove: [b]}}]}`, "same type twice"},
	"a backend without a port":      {`{backendRefs: [{name: a}]}`, "must have the port of the Service"},
	"a header's name with a space":  {`{matches: [{headers: [{name: "a b", value: x}]}]}`, "name"},
	"a mirror that is not complete": {`{filters: [{type: RequestMirror}]}`, "must have requestMirror"},
}

// authorizationSpecs are specs of an AuthorizationPolicy, with wants as in policySpecs.
var authorizationSpecs = map[string]struct{ spec, wants string }{
	"everything": {`{selector: {matchLabels: {app: web}}, action: DENY, rules: [{from: [{source: {principals: ["*", "*/sa/web", "cluster.local/*"], namespaces: [shop]}}],
		to: [{operation: {paths: ["*", "/a*", "*.css", "/{*}/b/{**}", "/a b"], methods: [GET, "P*"], hosts: ["*.shop", shop], ports: ["80"]}}], when: [{key: source.ip, values: [10.0.0.1]}]}]}`, ""},
	"of a gateway":                 {`{targetRefs: [{kind: Gateway, name: x}], rules: [{}]}`, ""},
	"no reference":                 {`{selector: {}, targetRefs: [], rules: [{}]}`, ""},
	"a selector and references":    {`{selector: {matchLabels: {app: web}}, targetRefs: [{kind: Gateway, name: x}], action: DENY, rules: [{}]}`, "conflicts with targetRefs"},
	"a selector and a reference":   {`{selector: {}, targetRef: {kind: Gateway, name: x}, rules: [{}]}`, "conflicts with targetRefs"},
	"a * inside a path":            {`{rules: [{to: [{operation: {paths: ["/st*r/x"]}}]}]}`, "paths[0]"},
	"a * at both ends":             {`{rules: [{to: [{operation: {notPaths: ["*a*"]}}]}]}`, "notPaths[0]"},
	"a * inside a host":            {`{rules: [{to: [{operation: {hosts: [a.*.example]}}]}]}`, "hosts[0]"},
	"a * inside a principal":       {`{rules: [{from: [{source: {principals: [cluster.local/ns/*/sa/web]}}]}]}`, "principals[0]"},
	"a template of another form":   {`{rules: [{to: [{operation: {paths: ["/a/{id}"]}}]}]}`, "paths[0]"},
	"a brace alone":                {`{rules: [{to: [{operation: {paths: ["/a}"]}}]}]}`, "paths[0]"},
	"a template without a / first": {`{rules: [{to: [{operation: {paths: ["{*}"]}}]}]}`, "paths[0]"},
	"a port that is no number":     {`{rules: [{to: [{operation: {ports: ["x"]}}]}]}`, "ports[0]"},
}

// The CustomResourceDefinitions accept the same objects as the control plane does in a folder of manifests.
func TestDefinitions(t *testing.T) {
	const toService = `{parentRefs: [{group: "", kind: Service, name: web}], rules: [%s]}`
	for _, kind := range []struct {
		definition, version, kind, spec string
		cases                           map[string]struct{ spec, wants string }
	}{
		{"backendpolicies.outrider.dev", "outrider.dev/v1alpha1", "BackendPolicy", "%s", policySpecs},
		{"authorizationpolicies.security.istio.io", "security.istio.io/v1", "AuthorizationPolicy", "%s", authorizationSpecs},
		{"httproutes.gateway.networking.k8s.io", "gateway.networking.k8s.io/v1", "HTTPRoute", toService, routeRules},
		{"grpcroutes.gateway.networking.k8s.io", "gateway.networking.k8s.io/v1", "GRPCRoute", toService, callRules},
	} {
		judge := judgeOf(t, kind.definition)
		for name, tt := range kind.cases { // any order: each is a separate case
			t.Run(kind.kind+"/"+name, func(t *testing.T) {
				text := fmt.Sprintf("{apiVersion: %s, kind: %s, metadata: {name: p, namespace: shop}, spec: "+kind.spec+"}", kind.version, kind.kind, tt.spec)
				var object map[string]any
				if err := yaml.Unmarshal([]byte(text), &object); err != nil {
					t.Fatal(err)
				}
				ours := folderSays(t, text)
				errs := judge(integers(object).(map[string]any))
				if (tt.wants == "") != (len(errs) == 0) || (tt.wants == "") != (ours == "") {
					t.Errorf("the API server: %v; a folder: %q; want %q", errs, ours, tt.wants)
				}
				if tt.wants != "" && !slices.ContainsFunc(errs, func(e *field.Error) bool { return strings.Contains(e.Error(), tt.wants) }) {
					t.Errorf("the API server: %v, want %q", errs, tt.wants)
				}
			})
		}
	}
}

// folderSays returns the control plane's error for an object in a folder of manifests; "" if it accepts the object.
func folderSays(t *testing.T, text string) string {
	t.Helper()
	raw, err := yaml.YAMLToJSONStrict([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := objects.Read(raw); err != nil {
		return err.Error()
	}
	return ""
}

// integers converts whole numbers to int64, as the API server's decoder does.
func integers(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for k := range v { // any order: each value is converted alone
			v[k] = integers(v[k])
		}
	case []any:
		for i := range v {
			v[i] = integers(v[i])
		}
	case float64:
		if v == float64(int64(v)) {
			return int64(v)
		}
	}
	return v
}
