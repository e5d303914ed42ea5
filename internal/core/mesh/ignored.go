package mesh

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"outrider.dev/internal/base/contract"
)

// An IgnoredSpec is an object of a kind that other meshes support, and Outrider does not.
type IgnoredSpec struct {
	Kind, Namespace, Name string
	Guards                bool              // it forbids something, and here it does not
	Partly                bool              // it is enforced, and not as it is written
	OtherRoot             bool              // that is so because Istio's root namespace is not Outrider's, and for no other reason
	Instead               string            // what to do
	Selector              map[string]string // of the workloads it is for; none: all of its namespace, or from the root namespace all
}

// istioRoot is Istio's default root namespace: what is there was for all pods, also for those
// that have Outrider's proxy now.
const istioRoot = "istio-system"

// RootNamespaces are those whose objects are for all, by the defaults of Outrider and of Istio.
func RootNamespaces() []string { return []string{DefaultRoot, istioRoot} }

// Key returns the key, of which the kind is that of the object.
func (s *IgnoredSpec) Key() Key { return Key{Kind(s.Kind), s.Namespace, s.Name} }

// Severity begins the sentences about s, in /debug/problems and in the status of a proxy.
func (s *IgnoredSpec) Severity() string {
	if s.Guards {
		return contract.ErrorPrefix
	}
	return contract.WarningPrefix
}

// Effect says what it means that s is ignored.
func (s *IgnoredSpec) Effect() string {
	switch {
	case s.Partly:
		return "is not enforced as it is written"
	case s.Guards:
		return "is not enforced by Outrider"
	}
	return "has no effect on pods of Outrider"
}

// Message is the effect, and what to do.
func (s *IgnoredSpec) Message() string { return s.Effect() + ": " + s.Instead }

// An ignoredKind is why a kind is ignored.
type ignoredKind struct {
	instead string
	guards  func(spec fields) bool // nil: no object does
	skip    func(spec fields) bool // it is for another mesh, or a gateway; nil: none is
	// judge, if set, completes what is known of one object, and reports whether it is ignored at all.
	judge func(s *IgnoredSpec, object fields) bool
}

// ignoredKinds are the kinds that are reported, by group and kind. Other unknown kinds are not
// about a mesh.
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

// IgnoredResources returns the kinds that are reported, by the names of their
// CustomResourceDefinitions.
func IgnoredResources() map[string]Kind {
	out := map[string]Kind{}
	for key := range ignoredKinds { // any order: a map
		plural := strings.ToLower(key[1]) + "s"
		if stem, ok := strings.CutSuffix(plural, "ys"); ok && !strings.HasSuffix(stem, "a") {
			plural = stem + "ies"
		}
		out[plural+"."+key[0]] = Kind(key[1])
	}
	return out
}

// fields are those of an object that was decoded from JSON or YAML.
type fields map[string]any

func (f fields) at(key string) fields   { v, _ := f[key].(map[string]any); return v }
func (f fields) text(key string) string { v, _ := f[key].(string); return v }

// list returns the items of a list that are objects, and nothing in the place of others.
func (f fields) list(key string) (out []fields) {
	list, _ := f[key].([]any)
	for _, item := range list {
		m, _ := item.(map[string]any)
		out = append(out, m)
	}
	return out
}

// kinds are those of a list of references.
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

// ofGateway reports whether a policy is for gateways only, which belong to another controller.
func ofGateway(spec fields) bool {
	kinds := append(spec.kinds("targetRefs"), spec.at("targetRef").text("kind"))
	kinds = slices.DeleteFunc(kinds, func(kind string) bool { return kind == "" })
	return len(kinds) > 0 && !slices.ContainsFunc(kinds, func(kind string) bool { return !strings.HasPrefix(kind, "Gateway") })
}

// notOfService reports whether a route is for no service: then it is a gateway's.
func notOfService(spec fields) bool { return !slices.Contains(spec.kinds("parentRefs"), "Service") }

// Ignored returns what is known about an object, as it was decoded from JSON or YAML; nil if
// its kind is supported, or has nothing to do with a mesh.
func Ignored(object map[string]any) *IgnoredSpec {
	o := fields(object)
	group, _, _ := strings.Cut(o.text("apiVersion"), "/")
	kind, reported := ignoredKinds[[2]string{group, o.text("kind")}]
	spec := o.at("spec")
	if !reported || kind.skip != nil && kind.skip(spec) {
		return nil
	}
	meta := o.at("metadata")
	out := &IgnoredSpec{
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

func (b *Builder) indexIgnored(s *IgnoredSpec, present bool) {
	b.ignored.set(s.Namespace, s, present)
	b.staleIgnored.add(s.Namespace)
}

// markIgnored marks the objects that may select a workload.
func (b *Builder) markIgnored(w *WorkloadSpec) {
	for _, namespace := range []string{w.Namespace, b.config.RootNamespace, istioRoot} {
		if len(b.ignored[namespace]) > 0 {
			b.staleIgnored.add(namespace)
		}
	}
}

// An ignoredList has the ignored objects of a namespace, and those of them that are reported:
// all if no other mesh can use them, else those that select a workload of Outrider's own.
type ignoredList struct{ all, reported []*IgnoredSpec }

// updateIgnored computes the list of a namespace.
func (b *Builder) updateIgnored(namespace string, e *edit[string, *ignoredList]) {
	all := slices.SortedFunc(maps.Keys(b.ignored[namespace]), func(a, b *IgnoredSpec) int {
		return cmp.Or(compareBool(b.Guards, a.Guards), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name))
	})
	all = all[:min(len(all), maxConsidered)]
	out := &ignoredList{all, slices.DeleteFunc(slices.Clone(all), func(s *IgnoredSpec) bool { return !b.OnlyMesh && !b.selectsOwn(s) })}
	switch was := e.old.get(namespace); {
	case len(all) == 0 && was != nil:
		e.delete(namespace)
	case len(all) > 0 && (was == nil || !slices.Equal(was.all, out.all) || !slices.Equal(was.reported, out.reported)):
		e.set(namespace, out)
	}
}

// selectsOwn reports whether s is for a workload with Outrider's proxy.
func (b *Builder) selectsOwn(s *IgnoredSpec) bool {
	all := b.byNamespace[s.Namespace]
	switch {
	case s.Namespace == b.config.RootNamespace || s.Namespace == istioRoot:
		for _, w := range b.workloads { // any order: one is enough
			if w.spec != nil && w.spec.Own && s.IsFor(w.spec.Labels) {
				return true
			}
		}
		return false
	case len(s.Selector) > 0:
		all = b.byLabel[selectorKey(s.Namespace, s.Selector)]
	}
	for id := range all { // any order: one is enough
		if w := b.workloads[id].spec; w.Own && s.IsFor(w.Labels) {
			return true
		}
	}
	return false
}

// IsFor reports whether s selects a workload of its namespace.
func (s *IgnoredSpec) IsFor(labels map[string]string) bool {
	return len(s.Selector) == 0 || selects(s.Selector, labels)
}

// Ignored returns the objects that are reported, by namespace.
func (m *Mesh) Ignored() map[string][]*IgnoredSpec {
	out := map[string][]*IgnoredSpec{}
	for namespace, list := range m.ignored.all() { // any order: a map
		out[namespace] = list.reported
	}
	return out
}

// Unenforced returns the objects that forbid something for a workload with Outrider's proxy, and
// do not. The workload need not be in the mesh.
func (m *Mesh) Unenforced(w *Workload) []*IgnoredSpec {
	var out []*IgnoredSpec
	namespaces := []string{m.Config.RootNamespace, istioRoot, w.Namespace}
	slices.Sort(namespaces)
	for _, namespace := range slices.Compact(namespaces) {
		if list := m.ignored.get(namespace); list != nil {
			for _, s := range list.all {
				if s.Guards && s.IsFor(w.Labels) {
					out = append(out, s)
				}
			}
		}
	}
	return out
}

// Limits for one namespace, in which its tenants can make any number of objects.
const (
	maxIgnored    = 100  // that are reported one by one
	maxConsidered = 1000 // that are compared with its workloads, those that guard first
)

// conflictsOfIgnored returns the reported objects as conflicts, those that guard first.
func (b *Builder) conflictsOfIgnored() []Conflict {
	var out []Conflict
	all := b.current.Ignored()
	for _, namespace := range slices.Sorted(maps.Keys(all)) {
		for i, s := range all[namespace] {
			if i == maxIgnored {
				out = append(out, Conflict{Severity: contract.WarningPrefix, Object: Key{"Namespace", "", namespace},
					Message: fmt.Sprintf("%d or more other objects of it are ignored", len(all[namespace])-i)})
				break
			}
			out = append(out, Conflict{Severity: s.Severity(), Object: s.Key(), Message: s.Message()})
		}
	}
	return out
}
