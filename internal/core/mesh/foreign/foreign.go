// Package foreign reads objects of kinds that other meshes and gateways support, and Outrider does not. It
// reports why an object has no effect here, whether it should forbid something, and what to use instead. For
// a VirtualService or a DestinationRule, the advice is a translation.
//
// Kinds that are not in its table do not belong to a mesh. It accepts objects of any form, as decoded from
// JSON or YAML.
package foreign

import (
	"cmp"
	"slices"
	"strings"

	"outrider.dev/internal/core/mesh"
)

// An ignoredKind describes a kind of which some or all objects are ignored.
type ignoredKind struct {
	instead string
	guards  func(spec fields) bool // reports whether an object should forbid something; nil: no object does
	skip    func(spec fields) bool // reports whether an object is for another mesh or a gateway; nil: no object is
	// judge completes the report on one object, and returns false if the object is not ignored at all. It may
	// be nil.
	judge func(s *mesh.IgnoredSpec, object fields) bool
}

// ignoredKinds contains the reported kinds, by group and kind. Other unknown kinds do not belong to a mesh.
var ignoredKinds = map[[2]string]ignoredKind{
	{"security.istio.io", "AuthorizationPolicy"}:      {skip: ofGateway, judge: judgeAuthorization},
	{"security.istio.io", "RequestAuthentication"}:    {"it checks no tokens of requests; check them in the application", always, ofGateway, nil},
	{"networking.istio.io", "EnvoyFilter"}:            {"its proxies take no other configuration; do it in the application", always, ofGateway, nil},
	{"extensions.istio.io", "WasmPlugin"}:             {"its proxies run no plugins; do it in the application", always, ofGateway, nil},
	{"gateway.networking.k8s.io", "BackendTLSPolicy"}: {"its proxies add no TLS of the server's own; use TLS in the application", always, nil, nil},
	{"networking.istio.io", "Sidecar"}:                {"a proxy gets what it uses, and outside addresses stay reachable; forbid those by a NetworkPolicy", registryOnly, nil, nil},
	{"networking.istio.io", "ServiceEntry"}:           {"use a Host, or a Service of type ExternalName", nil, nil, nil},
	{"networking.istio.io", "DestinationRule"}:        {"use a BackendPolicy", nil, nil, nil},
	{"networking.istio.io", "VirtualService"}:         {"use an HTTPRoute", nil, nil, nil},
	{"networking.istio.io", "Gateway"}:                {"use an ingress controller", nil, nil, nil},
	{"networking.istio.io", "WorkloadEntry"}:          {"use a Host", nil, nil, nil},
	{"networking.istio.io", "WorkloadGroup"}:          {"use a Host for each machine", nil, nil, nil},
	{"networking.istio.io", "ProxyConfig"}:            {"use annotations of the pod", nil, nil, nil},
	{"telemetry.istio.io", "Telemetry"}:               {"access logs, tracing and request metrics are settings of the whole mesh: meshConfig.accessLogFile, meshConfig.defaultProviders and telemetry.v2.prometheus of the values", nil, ofGateway, nil},
	{"gateway.networking.k8s.io", "TCPRoute"}:         {"connections go to the Service that they name", nil, notOfService, nil},
	{"gateway.networking.k8s.io", "TLSRoute"}:         {"connections go to the Service that they name", nil, notOfService, nil},
}

// Resources maps the names of the CustomResourceDefinitions of the reported kinds to these kinds.
func Resources() map[string]mesh.Kind {
	out := map[string]mesh.Kind{}
	for key := range ignoredKinds { // any order: the result is a map
		plural := strings.ToLower(key[1]) + "s"
		if stem, ok := strings.CutSuffix(plural, "ys"); ok && !strings.HasSuffix(stem, "a") {
			plural = stem + "ies"
		}
		out[plural+"."+key[0]] = mesh.Kind(key[1])
	}
	return out
}

// fields contains the fields of an object that was decoded from JSON or YAML.
type fields map[string]any

func (f fields) at(key string) fields   { v, _ := f[key].(map[string]any); return v }
func (f fields) text(key string) string { v, _ := f[key].(string); return v }

// list returns the items of a list. An item that is not an object becomes nil.
func (f fields) list(key string) (out []fields) {
	list, _ := f[key].([]any)
	for _, item := range list {
		m, _ := item.(map[string]any)
		out = append(out, m)
	}
	return out
}

// kinds returns the kinds of the objects in a list of references.
func (f fields) kinds(key string) (out []string) {
	for _, item := range f.list(key) {
		if item != nil {
			out = append(out, item.text("kind"))
		}
	}
	return out
}

func (f fields) texts(key string) map[string]string {
	var out map[string]string
	for k := range f.at(key) {
		if out == nil {
			out = map[string]string{}
		}
		out[k] = f.at(key).text(k)
	}
	return out
}

func always(fields) bool { return true }

func registryOnly(spec fields) bool {
	return spec.at("outboundTrafficPolicy").text("mode") == "REGISTRY_ONLY"
}

// ofGateway reports whether a policy applies only to gateways, which belong to another controller. One with a selector
// too is not valid, and its author may mean pods.
func ofGateway(spec fields) bool {
	if spec["selector"] != nil || spec["workloadSelector"] != nil {
		return false
	}
	kinds := append(spec.kinds("targetRefs"), spec.at("targetRef").text("kind"))
	kinds = slices.DeleteFunc(kinds, func(kind string) bool { return kind == "" })
	return len(kinds) > 0 && !slices.ContainsFunc(kinds, func(kind string) bool { return !strings.HasPrefix(kind, "Gateway") })
}

// notOfService reports whether a route has no Service as parent. Such a route belongs to a gateway.
func notOfService(spec fields) bool { return !slices.Contains(spec.kinds("parentRefs"), "Service") }

// Read returns a report on an object that was decoded from JSON or YAML; nil if Outrider supports the object,
// or if its kind does not belong to a mesh.
func Read(object map[string]any) *mesh.IgnoredSpec {
	o := fields(object)
	group, _, _ := strings.Cut(o.text("apiVersion"), "/")
	kind, reported := ignoredKinds[[2]string{group, o.text("kind")}]
	spec := o.at("spec")
	if !reported || kind.skip != nil && kind.skip(spec) {
		return nil
	}
	meta := o.at("metadata")
	out := &mesh.IgnoredSpec{
		Kind: o.text("kind"), Namespace: cmp.Or(meta.text("namespace"), "default"), Name: meta.text("name"),
		Guards: kind.guards != nil && kind.guards(spec), Instead: kind.instead,
	}
	switch out.Kind {
	case "VirtualService":
		out.Instead = insteadOfVirtualService(o)
	case "DestinationRule":
		out.Instead = insteadOfDestinationRule(o)
	}
	if kind.judge != nil && !kind.judge(out, o) {
		return nil
	}
	if out.Selector = spec.at("selector").texts("matchLabels"); out.Selector == nil && out.Kind != "ServiceEntry" {
		out.Selector = spec.at("workloadSelector").texts("labels")
	}
	return out
}
