package objects

import (
	"flag"
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"outrider.dev/internal/core/mesh"
)

var update = flag.Bool("update", false, "write the table in docs/mesh-files.md anew")

// examples has an object of each kind in which every field with a meaning has its effect.
func examples() map[string]any {
	ready := corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionTrue}
	port := []corev1.ContainerPort{{Name: "web", ContainerPort: 80}}
	return map[string]any{
		"Service": &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "shop"},
			Spec: corev1.ServiceSpec{ClusterIP: "10.96.0.1", Ports: []corev1.ServicePort{{Name: "http", Port: 80}}, Selector: map[string]string{"app": "web"}}},
		"EndpointSlice": &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Name: "web-1", Namespace: "shop", Labels: map[string]string{discoveryv1.LabelServiceName: "web"}},
			AddressType: discoveryv1.AddressTypeIPv4, Ports: []discoveryv1.EndpointPort{{Name: ptr.To("http"), Port: ptr.To(int32(80))}},
			Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"10.244.0.1"}, TargetRef: &corev1.ObjectReference{Kind: "Pod", Name: "web-1"},
				Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(false), Terminating: ptr.To(true), Serving: ptr.To(true)}}}},
		"Pod": &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web-1", Namespace: "shop"},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Ports: port}},
				InitContainers: []corev1.Container{{Name: "sidecar", RestartPolicy: ptr.To(corev1.ContainerRestartPolicyAlways), Ports: []corev1.ContainerPort{{Name: "side", ContainerPort: 81}}}}},
			Status: corev1.PodStatus{PodIP: "10.244.0.1", Conditions: []corev1.PodCondition{ready}}},
	}
}

// part converts an object. Its error is part of the result.
func part(o any) (mesh.Part, error) {
	switch o := o.(type) {
	case *corev1.Service:
		return Service(o)
	case *discoveryv1.EndpointSlice:
		if p, err := EndpointSlice(o); p != nil || err != nil {
			return p, err
		}
	case *corev1.Pod:
		if p, err := Pod(o); p != nil || err != nil {
			return p, err
		}
	}
	return nil, nil
}

// changes has, for each field with a meaning and each that is reported, a change of the example that shows it.
var changes = map[string]func(any){
	"Service spec.ports.name":               service(func(s *corev1.ServiceSpec) { s.Ports[0].Name = "grpc" }),
	"Service spec.ports.protocol":           service(func(s *corev1.ServiceSpec) { s.Ports[0].Protocol = corev1.ProtocolSCTP }),
	"Service spec.ports.appProtocol":        service(func(s *corev1.ServiceSpec) { s.Ports[0].AppProtocol = ptr.To("grpc") }),
	"Service spec.ports.port":               service(func(s *corev1.ServiceSpec) { s.Ports[0].Port = 81 }),
	"Service spec.ports.targetPort":         service(func(s *corev1.ServiceSpec) { s.Ports[0].TargetPort = intstr.FromString("web") }),
	"Service spec.selector":                 service(func(s *corev1.ServiceSpec) { s.Selector["v"] = "2" }),
	"Service spec.clusterIP":                service(func(s *corev1.ServiceSpec) { s.ClusterIP = corev1.ClusterIPNone }),
	"Service spec.clusterIPs":               service(func(s *corev1.ServiceSpec) { s.ClusterIPs = []string{"10.96.0.1", "fd96::1"} }),
	"Service spec.type":                     service(func(s *corev1.ServiceSpec) { s.Type, s.ExternalName = corev1.ServiceTypeExternalName, "a.example" }),
	"Service spec.externalName":             service(func(s *corev1.ServiceSpec) { s.Type, s.ExternalName = corev1.ServiceTypeExternalName, "b.example" }),
	"Service spec.sessionAffinity":          service(func(s *corev1.ServiceSpec) { s.SessionAffinity = corev1.ServiceAffinityClientIP }),
	"Service spec.publishNotReadyAddresses": service(func(s *corev1.ServiceSpec) { s.PublishNotReadyAddresses = true }),
	"Service spec.ipFamilies":               service(func(s *corev1.ServiceSpec) { s.IPFamilies = []corev1.IPFamily{corev1.IPv6Protocol} }),
	"Service spec.internalTrafficPolicy": service(func(s *corev1.ServiceSpec) {
		s.InternalTrafficPolicy = ptr.To(corev1.ServiceInternalTrafficPolicyLocal)
	}),
	"Service spec.trafficDistribution": service(func(s *corev1.ServiceSpec) { s.TrafficDistribution = ptr.To("PreferClose") }),

	"EndpointSlice addressType":                      slice(func(s *discoveryv1.EndpointSlice) { s.AddressType = discoveryv1.AddressTypeFQDN }),
	"EndpointSlice ports.name":                       slice(func(s *discoveryv1.EndpointSlice) { s.Ports[0].Name = ptr.To("x") }),
	"EndpointSlice ports.protocol":                   slice(func(s *discoveryv1.EndpointSlice) { s.Ports[0].Protocol = ptr.To(corev1.ProtocolUDP) }),
	"EndpointSlice ports.port":                       slice(func(s *discoveryv1.EndpointSlice) { s.Ports[0].Port = nil }),
	"EndpointSlice endpoints.addresses":              endpoint(func(e *discoveryv1.Endpoint) { e.Addresses = append(e.Addresses, "10.244.0.2") }),
	"EndpointSlice endpoints.conditions.ready":       endpoint(func(e *discoveryv1.Endpoint) { e.Conditions.Ready = nil }),
	"EndpointSlice endpoints.conditions.serving":     endpoint(func(e *discoveryv1.Endpoint) { e.Conditions.Serving = ptr.To(false) }),
	"EndpointSlice endpoints.conditions.terminating": endpoint(func(e *discoveryv1.Endpoint) { e.Conditions.Terminating = ptr.To(false) }),
	"EndpointSlice endpoints.hostname":               endpoint(func(e *discoveryv1.Endpoint) { e.Hostname = ptr.To("a") }),
	"EndpointSlice endpoints.targetRef.kind":         endpoint(func(e *discoveryv1.Endpoint) { e.TargetRef.Kind = "Node" }),
	"EndpointSlice endpoints.targetRef.name":         endpoint(func(e *discoveryv1.Endpoint) { e.TargetRef.Name = "x" }),
	"EndpointSlice endpoints.nodeName":               endpoint(func(e *discoveryv1.Endpoint) { e.NodeName = ptr.To("n") }),
	"EndpointSlice endpoints.zone":                   endpoint(func(e *discoveryv1.Endpoint) { e.Zone = ptr.To("z") }),
	"EndpointSlice endpoints.hints": endpoint(func(e *discoveryv1.Endpoint) {
		e.Hints = &discoveryv1.EndpointHints{ForNodes: []discoveryv1.ForNode{{Name: "n"}}}
	}),

	"Pod spec.containers.name":                    pod(func(p *corev1.Pod) { p.Spec.Containers[0].Name = "outrider-proxy" }),
	"Pod spec.containers.ports.name":              pod(func(p *corev1.Pod) { p.Spec.Containers[0].Ports[0].Name = "x" }),
	"Pod spec.containers.ports.protocol":          pod(func(p *corev1.Pod) { p.Spec.Containers[0].Ports[0].Protocol = corev1.ProtocolUDP }),
	"Pod spec.containers.ports.containerPort":     pod(func(p *corev1.Pod) { p.Spec.Containers[0].Ports[0].ContainerPort = 82 }),
	"Pod spec.initContainers.name":                pod(func(p *corev1.Pod) { p.Spec.InitContainers[0].Name = "outrider-proxy" }),
	"Pod spec.initContainers.ports.name":          pod(func(p *corev1.Pod) { p.Spec.InitContainers[0].Ports[0].Name = "x" }),
	"Pod spec.initContainers.ports.protocol":      pod(func(p *corev1.Pod) { p.Spec.InitContainers[0].Ports[0].Protocol = corev1.ProtocolUDP }),
	"Pod spec.initContainers.ports.containerPort": pod(func(p *corev1.Pod) { p.Spec.InitContainers[0].Ports[0].ContainerPort = 82 }),
	"Pod spec.initContainers.restartPolicy":       pod(func(p *corev1.Pod) { p.Spec.InitContainers[0].RestartPolicy = nil }),
	"Pod spec.serviceAccountName":                 pod(func(p *corev1.Pod) { p.Spec.ServiceAccountName = "x" }),
	"Pod spec.serviceAccount":                     pod(func(p *corev1.Pod) { p.Spec.DeprecatedServiceAccount = "x" }),
	"Pod spec.nodeName":                           pod(func(p *corev1.Pod) { p.Spec.NodeName = "n" }),
	"Pod spec.hostNetwork":                        pod(func(p *corev1.Pod) { p.Spec.HostNetwork = true }),
	"Pod spec.hostname":                           pod(func(p *corev1.Pod) { p.Spec.Hostname = "x" }),
	"Pod spec.subdomain":                          pod(func(p *corev1.Pod) { p.Spec.Subdomain = "x" }),
	"Pod status.phase":                            pod(func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }),
	"Pod status.conditions":                       pod(func(p *corev1.Pod) { p.Status.Conditions[0].Status = corev1.ConditionFalse }),
	"Pod status.podIP":                            pod(func(p *corev1.Pod) { p.Status.PodIP = "10.244.0.2" }),
	"Pod status.podIPs":                           pod(func(p *corev1.Pod) { p.Status.PodIPs = []corev1.PodIP{{IP: "fd44::1"}} }),
	"Pod status.containerStatuses":                pod(func(p *corev1.Pod) { p.Status.ContainerStatuses = wasReady(p) }),
	"Pod status.initContainerStatuses":            pod(func(p *corev1.Pod) { p.Status.InitContainerStatuses = wasReady(p) }),
}

// wasReady makes a pod one that is no longer ready, and returns the status of a container that was running before.
func wasReady(p *corev1.Pod) []corev1.ContainerStatus {
	p.Status.Conditions[0].Status, p.Status.Conditions[0].LastTransitionTime = corev1.ConditionFalse, metav1.Unix(1000, 0)
	return []corev1.ContainerStatus{{State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Unix(1, 0)}}}}
}

func service(f func(*corev1.ServiceSpec)) func(any) {
	return func(o any) { f(&o.(*corev1.Service).Spec) }
}
func slice(f func(*discoveryv1.EndpointSlice)) func(any) {
	return func(o any) { f(o.(*discoveryv1.EndpointSlice)) }
}
func endpoint(f func(*discoveryv1.Endpoint)) func(any) {
	return slice(func(s *discoveryv1.EndpointSlice) { f(&s.Endpoints[0]) })
}
func pod(f func(*corev1.Pod)) func(any) { return func(o any) { f(o.(*corev1.Pod)) } }

// A place is a field in an object, which the walk below has reached.
type place struct {
	path  string
	value reflect.Value
}

// walk visits the fields of a struct for which the table has an entry, and descends into the others. It returns the
// paths without any entry.
func walk(v reflect.Value, kind, prefix string, visit func(field, place)) (missing []string) {
	t := v.Type()
	for i := range t.NumField() {
		name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
		if f := t.Field(i); f.Type == reflect.TypeFor[metav1.TypeMeta]() || f.Type == reflect.TypeFor[metav1.ObjectMeta]() {
			continue
		}
		path := strings.TrimPrefix(prefix+"."+name, ".")
		var own *field
		deeper := false
		for _, f := range fields {
			if f.Kind != kind {
				continue
			}
			if f.Path == path {
				own = &f
			}
			deeper = deeper || strings.HasPrefix(f.Path, path+".")
		}
		if own != nil {
			visit(*own, place{path, v.Field(i)})
		}
		if !deeper {
			if own == nil {
				missing = append(missing, kind+" "+path)
			}
			continue
		}
		inner := firstOf(v.Field(i))
		for _, m := range walk(inner, kind, path, visit) {
			if own == nil { // else the entry of the parent is for it
				missing = append(missing, m)
			}
		}
	}
	return missing
}

// firstOf returns the struct in a field: itself, what it points to, or the first of a list. It makes one if need be.
func firstOf(v reflect.Value) reflect.Value {
	switch v.Kind() {
	case reflect.Pointer:
		if v.IsNil() {
			v.Set(reflect.New(v.Type().Elem()))
		}
		return v.Elem()
	case reflect.Slice:
		if v.Len() == 0 {
			v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		}
		return v.Index(0)
	}
	return v
}

// fill sets a field to some value that is not its zero value; it reports false if it knows none.
func fill(v reflect.Value) bool {
	switch v.Kind() {
	case reflect.String:
		v.SetString("x")
		if v.Type() == reflect.TypeFor[corev1.Protocol]() {
			v.SetString("SCTP")
		}
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int32, reflect.Int64:
		v.SetInt(7)
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		fill(key)
		fill(value)
		v.SetMapIndex(key, value)
	case reflect.Pointer, reflect.Slice:
		fill(firstOf(v))
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Field(i).CanSet() {
				switch v.Field(i).Kind() {
				case reflect.String, reflect.Bool, reflect.Int32:
					fill(v.Field(i))
				}
			}
		}
	default:
		return false
	}
	return true
}

// Each field of the types of Kubernetes has an entry, and each entry is true: a field with a meaning changes the part
// of the mesh, one that decides nothing does not, and one that is reported is.
func TestFields(t *testing.T) {
	seen := map[string]bool{}
	for kind, o := range examples() {
		plain, err := part(examples()[kind])
		if err != nil {
			t.Fatal(err)
		}
		missing := walk(reflect.ValueOf(o).Elem(), kind, "", func(f field, at place) {
			name := kind + " " + f.Path
			if seen[name] {
				t.Errorf("%s has two entries", name)
			}
			seen[name] = true
			t.Run(name, func(t *testing.T) {
				given := 0
				for _, text := range []string{f.Means, f.Reported, f.Nothing} {
					if text != "" {
						given++
					}
				}
				if given != 1 {
					t.Fatalf("the table says %+v: want one text", f)
				}
				changed := examples()[kind]
				if f.Nothing == "" {
					if changes[name] == nil {
						t.Fatal("no change is known that shows its effect")
					}
					changes[name](changed)
				} else {
					walk(reflect.ValueOf(changed).Elem(), kind, "", func(g field, at place) {
						if g.Path == f.Path && len(below(kind, f.Path)) == 0 && !fill(at.value) {
							t.Errorf("no value is known for %s", at.value.Type())
						}
					})
					if s, ok := changed.(*corev1.Service); ok && f.Path == "spec.sessionAffinityConfig" {
						s.Spec.SessionAffinityConfig = &corev1.SessionAffinityConfig{ClientIP: &corev1.ClientIPConfig{}}
					}
				}
				got, err := part(changed)
				same := reflect.DeepEqual(plain, got)
				switch {
				case err != nil:
					t.Error(err)
				case f.Nothing != "" && !same:
					t.Errorf("it decides nothing, and changes the part:\n%+v\n%+v", plain, got)
				case f.Nothing == "" && same:
					t.Error("it changes nothing")
				case f.Reported != "" && !reports(got, f.Path):
					t.Errorf("it is not reported: %+v", got)
				}
			})
		})
		if len(missing) > 0 {
			t.Errorf("these have no entry in the table: %s", strings.Join(missing, ", "))
		}
	}
	for _, f := range fields {
		if name := f.Kind + " " + f.Path; !seen[name] {
			t.Errorf("%s is no field of Kubernetes", name)
		}
	}
}

func below(kind, path string) (out []string) {
	for _, f := range fields {
		if f.Kind == kind && strings.HasPrefix(f.Path, path+".") {
			out = append(out, f.Path)
		}
	}
	return out
}

// reports says whether a part names a field that is ignored.
func reports(p mesh.Part, path string) bool {
	var all []mesh.IgnoredField
	switch p := p.(type) {
	case *mesh.ServiceSpec:
		all = p.Ignored
	case *mesh.SliceSpec:
		all = p.Ignored
	}
	for _, f := range all {
		if strings.ReplaceAll(f.Field, "[0]", "") == path {
			return true
		}
	}
	return false
}

// A field of a Service that has no effect because of other fields is reported.
func TestIgnoredFieldsOfServices(t *testing.T) {
	local, sticky := ptr.To(corev1.ServiceInternalTrafficPolicyLocal), corev1.ServiceAffinityClientIP
	for name, tt := range map[string]struct {
		spec corev1.ServiceSpec
		want string
	}{
		"both":                       {corev1.ServiceSpec{ClusterIP: "10.96.0.1", InternalTrafficPolicy: local, SessionAffinity: sticky}, ""},
		"headless, local":            {corev1.ServiceSpec{ClusterIP: corev1.ClusterIPNone, InternalTrafficPolicy: local}, "spec.internalTrafficPolicy"},
		"headless, sticky":           {corev1.ServiceSpec{ClusterIP: corev1.ClusterIPNone, SessionAffinity: sticky}, "spec.sessionAffinity"},
		"an alias, sticky":           {corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "a.example", SessionAffinity: sticky}, "spec.sessionAffinity"},
		"by node ports, sticky":      {corev1.ServiceSpec{Type: corev1.ServiceTypeNodePort, ClusterIP: "10.96.0.1", SessionAffinity: sticky}, "spec.sessionAffinity"},
		"by a load balancer, sticky": {corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, ClusterIP: "10.96.0.1", SessionAffinity: sticky}, "spec.sessionAffinity"},
		"by a load balancer":         {corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, ClusterIP: "10.96.0.1"}, ""},
	} {
		tt.spec.Ports = []corev1.ServicePort{{Port: 80}}
		out, err := Service(&corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "shop"}, Spec: tt.spec})
		got := ""
		for _, f := range out.Ignored {
			got += f.Field
		}
		if err != nil || got != tt.want {
			t.Errorf("%s: %q, %v; want %q", name, got, err, tt.want)
		}
	}
}

// A section of docs/mesh-files.md has the table; fields with the same text share a row.
func TestFieldsPage(t *testing.T) {
	const page, heading = "../../../../docs/mesh-files.md", "## Each field of a Service, EndpointSlice or Pod\n"
	file, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, found := strings.Cut(string(file), heading)
	section, after, ends := strings.Cut(rest, "\n## ")
	if !found || !ends {
		t.Fatalf("%s has no section %q with another one after it", page, heading)
	}
	var out strings.Builder
	out.WriteString(`
What each decides about the connections of a client with a proxy. A field that is not listed has the entry of its parent. "Reported" is on
` + "`/debug/problems`" + ` and ` + "`outrider dashboard`" + `, and for a Service by ` + "`outrider lint`" + ` too. A test compares the list with Kubernetes' types.
`)
	for _, kind := range []string{"Service", "EndpointSlice", "Pod"} {
		fmt.Fprintf(&out, "\n| %s | what it decides |\n| --- | --- |\n", kind)
		var texts []string
		names := map[string][]string{}
		for _, f := range fields {
			text := f.Means
			if f.Reported != "" {
				text = "reported: " + f.Reported
			} else if f.Nothing != "" {
				text = "nothing: " + f.Nothing
			}
			if f.Kind == kind {
				if names[text] == nil {
					texts = append(texts, text)
				}
				names[text] = append(names[text], "`"+f.Path+"`")
			}
		}
		for _, text := range texts {
			fmt.Fprintf(&out, "| %s | %s |\n", strings.Join(names[text], ", "), text)
		}
	}
	if section == out.String() {
		return
	}
	if !*update {
		t.Fatalf("%s is not what the table says: go test ./internal/core/mesh/objects -update", page)
	}
	if err := os.WriteFile(page, []byte(before+heading+out.String()+"\n## "+after), 0o644); err != nil {
		t.Fatal(err)
	}
}
