package lint

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"outrider.dev/internal/core/mesh"
	"outrider.dev/internal/core/mesh/objects"
)

// Protocols in which the server sends first, by port numbers (IANA) and by usual port names. The mesh never derives a
// protocol from a port number; lint does, because a finding is only a hint.
var (
	serverFirstPorts = map[int32]string{3306: "mysql", 25: "smtp", 587: "smtp", 21: "ftp", 22: "ssh", 110: "pop3", 143: "imap", 4222: "nats"}
	serverFirstNames = map[string]string{"mysql": "mysql", "mariadb": "mysql", "smtp": "smtp", "ftp": "ftp", "ssh": "ssh", "sftp": "ssh", "pop3": "pop3", "imap": "imap", "nats": "nats"}
)

// serverFirst finds ports of server-first protocols that do not declare their protocol. The proxy waits for the
// client's first bytes, but the client waits for the server. If such a port declares HTTP, the proxy waits forever.
// For these ports only the number counts, and not the name, because a name like http-mysql-exporter is correct.
func serverFirst(s service, b *builder) {
	for i, p := range s.Spec.Ports {
		protocol := ""
		if p.AppProtocol != nil {
			protocol = *p.AppProtocol
		}
		declared := mesh.ProtocolOf(protocol, p.Name, string(p.Protocol))
		is, because := looksServerFirst(p)
		why := fmt.Sprintf("a port whose protocol is unknown is sniffed: the proxy waits up to 200 ms for the client's first bytes. In %s the server sends first, so each connection costs that", shown(is))
		if declared.IsHTTP() {
			is, because = serverFirstNumber(p)
			why = fmt.Sprintf("on a port that declares HTTP the proxy waits for a request before it connects. In %s the server sends first, so nothing is ever sent", shown(is))
		}
		if is == "" || declared != mesh.Unknown && !declared.IsHTTP() {
			continue
		}
		field := path{"spec", "ports", i}
		c := clue{code: "undeclared-server-first", title: fmt.Sprintf("port %d of %s looks like %s (%s), but does not declare it", p.Port, s.Name, shown(is), because),
			field: field.plus("port"), evidence: fmt.Sprint(p.Port),
			why:    why,
			do:     fmt.Sprintf("declare it: appProtocol: %s, or a name that begins with %s", is, is),
			source: "Istio \"Protocol Selection\"; docs/mesh-files.md"}
		after := s.DeepCopy()
		after.Spec.Ports[i].AppProtocol = &is
		c.fix = changeOf(nil, s.Service, after)
		switch {
		case declared.IsHTTP():
			c.title = fmt.Sprintf("port %d of %s looks like %s (%s), and declares HTTP", p.Port, s.Name, shown(is), because)
		case p.AppProtocol != nil:
			c.field, c.evidence = field.plus("appProtocol"), protocol
			c.title = fmt.Sprintf("port %d of %s looks like %s (%s), and its appProtocol %q is unknown", p.Port, s.Name, shown(is), because, protocol)
		}
		b.add(c)
	}
}

// looksServerFirst returns the protocol that a port looks like, and the reason for the guess.
func looksServerFirst(p corev1.ServicePort) (protocol, because string) {
	for part := range strings.SplitSeq(strings.ToLower(p.Name), "-") {
		if is := serverFirstNames[part]; is != "" {
			return is, "its name is " + p.Name
		}
	}
	if is, because := serverFirstNumber(p); is != "" {
		return is, because
	}
	if is := serverFirstNames[strings.ToLower(p.TargetPort.StrVal)]; is != "" {
		return is, "its targetPort is " + p.TargetPort.StrVal
	}
	return "", ""
}

func serverFirstNumber(p corev1.ServicePort) (protocol, because string) {
	for _, n := range []int32{p.Port, p.TargetPort.IntVal} {
		if is := serverFirstPorts[n]; is != "" {
			return is, fmt.Sprintf("%d is its number", n)
		}
	}
	return "", ""
}

// shown returns the usual spelling of a protocol.
func shown(protocol string) string {
	if protocol == "mysql" {
		return "MySQL"
	}
	return strings.ToUpper(protocol)
}

// fieldsOfService finds fields of a service that outriderd refuses, as it reads a folder without an API server in front
// of it, and those that have no effect, or not for all clients.
func fieldsOfService(s service, b *builder) {
	part, err := objects.Service(s.Service)
	if refused := (objects.FieldErrors)(nil); errors.As(err, &refused) {
		refusedObject(meshObject{located: s.located, errs: refused}, b)
	}
	for _, f := range part.Ignored {
		field := parsePath(f.Field)
		b.add(clue{code: "service-field-ignored", title: fmt.Sprintf("%s of %s has no effect, or not for all clients", field[len(field)-1], s.Name),
			field: field, why: f.Why, do: f.Instead, source: "docs/mesh-files.md"})
	}
}

// localGaps finds services with internalTrafficPolicy: Local without an endpoint on each node: its pods in the files all
// belong to objects that do not put a pod on each node, or an endpoint of its slices there names no node.
func localGaps(s service, b *builder) {
	policy := s.Spec.InternalTrafficPolicy
	if policy == nil || *policy != corev1.ServiceInternalTrafficPolicyLocal || s.Spec.ClusterIP == corev1.ClusterIPNone || s.Spec.Type == corev1.ServiceTypeExternalName {
		return
	}
	add := func(gap, do string) {
		b.add(clue{code: "local-service-gaps", title: fmt.Sprintf("%s takes calls from its own node alone, and %s", s.Name, gap),
			field: path{"spec", "internalTrafficPolicy"}, evidence: string(*policy),
			why: "with internalTrafficPolicy: Local a client calls the endpoints on its own node; on a node without one its calls fail, though there are endpoints elsewhere",
			do:  do, source: "docs/mesh-files.md"})
	}
	if of := b.nowhere(s); of != "" {
		add("an endpoint of EndpointSlice "+of+" names no node", "write the nodeName of each endpoint, which is its address's place, or use internalTrafficPolicy: Cluster for endpoints outside of the cluster")
	}
	of := ""
	for _, p := range b.subjects {
		if !b.sameNamespace(p.located, s.located) || !mesh.Selects(s.Spec.Selector, p.Pod.Labels) {
			continue
		}
		where := "is not on each node"
		if p.Ref.Kind == "DaemonSet" {
			chosen := choosesNodes(&p.Pod.Spec)
			if chosen == "" {
				return
			}
			where += ", by its " + chosen
		}
		of = cmp.Or(of, p.Ref.Kind+" "+p.Ref.Name+" "+where)
	}
	if of != "" {
		add(of, "use a DaemonSet for all nodes, or trafficDistribution: PreferSameNode, which goes to other nodes if there is none on its own")
	}
}

// nowhere returns the name of a service's EndpointSlice with an endpoint that names no node.
func (w *world) nowhere(s service) string {
	for _, slice := range w.slices {
		if slice.Service == s.Name && w.sameNamespace(slice.located, s.located) &&
			slices.ContainsFunc(slice.Endpoints, func(e mesh.SliceEndpoint) bool { return e.Node == "" }) {
			return slice.Name
		}
	}
	return ""
}

func (w *world) sameNamespace(a, b located) bool {
	return cmp.Or(a.Ref.Namespace, w.Namespace) == cmp.Or(b.Ref.Namespace, w.Namespace)
}

// choosesNodes returns the field by which a pod runs on chosen nodes only. The operating system does not count, as
// proxies run on Linux, and neither do nodes that are excluded, as virtual nodes usually are.
func choosesNodes(p *corev1.PodSpec) string {
	for label := range p.NodeSelector { // any order: one suffices
		if label != corev1.LabelOSStable {
			return "nodeSelector"
		}
	}
	if p.Affinity == nil || p.Affinity.NodeAffinity == nil || p.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return ""
	}
	for _, t := range p.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
		for _, e := range t.MatchExpressions {
			if e.Key != corev1.LabelOSStable && e.Operator != corev1.NodeSelectorOpNotIn && e.Operator != corev1.NodeSelectorOpDoesNotExist {
				return "nodeAffinity"
			}
		}
	}
	return ""
}

// meshPort finds containers that declare a port of the proxy. Two processes of a pod cannot listen on the same port.
func meshPort(s subject, b *builder) {
	for _, clash := range s.result.Clashes {
		m, ok := s.member(clash.Container)
		if !s.injected || !ok {
			continue
		}
		i := slices.IndexFunc(m.Ports, func(p corev1.ContainerPort) bool { return p.ContainerPort == clash.Port })
		b.add(clue{code: "proxy-port-conflict", title: fmt.Sprintf("%s declares port %d, which is %s", clash.Container, clash.Port, clash.Of),
			field: m.field.plus("ports", i, "containerPort"), evidence: fmt.Sprint(clash.Port),
			why: "all containers of a pod share its network: the second process that takes the port fails with \"address already in use\"",
			do:  "let the application listen on another port, or leave the declaration out if it does not listen there",
			run: fmt.Sprintf("outrider inject %s", b.input(s.File)), source: "docs/inject.md"})
	}
}
