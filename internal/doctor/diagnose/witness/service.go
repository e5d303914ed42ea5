package witness

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"outrider.dev/internal/base/manifest"
	"outrider.dev/internal/doctor"
	"outrider.dev/internal/doctor/evidence"
)

// A service has all that the evidence tells of a Service: its object, its endpoints, or what kubectl printed of them.
type service struct {
	namespace, name string
	ips             []string
	headless        bool
	ports           map[uint16]string // port: targetPort; empty: not known
	endpoints       []netip.AddrPort  // port 0: not known
	known           bool              // whether it has endpoints is known
	selector        map[string]string
	unready         int             // addresses that are not ready
	pods            []string        // that have these addresses
	source          *evidence.Quote // of its ports
	has             *evidence.Quote // of its endpoints
}

func (s *service) String() string { return strings.TrimPrefix(s.namespace+"/"+s.name, "/") }

func portOf(n uint16) string { return strconv.Itoa(int(n)) }

// service returns a Service by its name, which is added if it is not known yet; nil: there are too many.
func (r *Record) service(namespace, name string) *service {
	namespace = cmp.Or(namespace, r.pod.Object.Namespace)
	for _, s := range r.services {
		if s.name == name && s.namespace == namespace {
			return s
		}
	}
	if name == "" {
		return nil
	}
	return r.keepService(&service{namespace: namespace, name: name, ports: map[uint16]string{}})
}

// serviceOf returns the Service that a call went to, by its name or an address; nil: the evidence has none.
func (r *Record) serviceOf(to doctor.Destination) *service {
	for _, s := range r.services {
		for _, host := range []string{to.Host, to.Name} {
			if host != "" && (s.is(host, r.pod.Object.Namespace) || slices.Contains(s.ips, host)) {
				return s
			}
		}
	}
	return nil
}

// is reports whether a host is the name of the Service, as a pod of a namespace writes it.
func (s *service) is(host, namespace string) bool {
	parts := strings.Split(strings.TrimSuffix(strings.ToLower(host), "."), ".")
	switch {
	case parts[0] != s.name:
		return false
	case len(parts) == 1:
		return s.namespace == namespace
	}
	return parts[1] == s.namespace && (len(parts) == 2 || parts[2] == "svc")
}

// hostsOf returns the names and addresses under which a line may have a destination.
func (r *Record) hostsOf(to doctor.Destination) (out []string) {
	for _, host := range []string{to.Host, to.Name} {
		if host != "" {
			out = append(out, host)
		}
	}
	out = append(out, r.namesOf(to)...)
	if s := r.serviceOf(to); s != nil {
		out = append(out, s.ips...)
		for _, e := range s.endpoints {
			out = append(out, e.Addr().String())
		}
	}
	return out
}

// An object has the fields of the kinds that are read.
type object struct {
	Kind     string `json:"kind"`
	Metadata struct {
		Name      string            `json:"name"`
		Namespace string            `json:"namespace"`
		Labels    map[string]string `json:"labels"`
	} `json:"metadata"`
	Items     []json.RawMessage `json:"items"`
	Spec      json.RawMessage   `json:"spec"`
	Ports     []subsetPort      `json:"ports"`     // EndpointSlice
	Endpoints []sliceEndpoint   `json:"endpoints"` // EndpointSlice
	Subsets   []struct {
		Addresses         []subsetAddress `json:"addresses"`
		NotReadyAddresses []subsetAddress `json:"notReadyAddresses"`
		Ports             []subsetPort    `json:"ports"`
	} `json:"subsets"` // Endpoints
}

type (
	subsetAddress struct {
		IP        string    `json:"ip"`
		TargetRef targetRef `json:"targetRef"`
	}
	targetRef struct {
		Kind string `json:"kind"`
		Name string `json:"name"`
	}
	subsetPort struct {
		Port uint16 `json:"port"`
	}
	sliceEndpoint struct {
		Addresses  []string  `json:"addresses"`
		TargetRef  targetRef `json:"targetRef"`
		Conditions struct {
			Ready *bool `json:"ready"`
		} `json:"conditions"`
	}
)

// kinds has the kinds of objects that say something about a destination.
var kinds = map[string]func(*Record, *object, evidence.Source){
	"Service": (*Record).addService, "Endpoints": (*Record).addEndpoints, "EndpointSlice": (*Record).addSlice, "NetworkPolicy": (*Record).addPolicy,
	"Node": (*Record).addNode, "PersistentVolume": (*Record).addVolume, "Namespace": (*Record).addNamespace, "PeerAuthentication": (*Record).addMTLS,
}

// readObjects reads the objects of a text; what is none is left out.
func (r *Record) readObjects(head []byte, from evidence.Source) {
	for s := range manifest.Split(head) {
		raw, err := manifest.JSON(s.Body)
		if err != nil || s.Empty() {
			continue
		}
		at := from
		at.Line = s.Line
		r.addObject(raw, at, 0)
	}
}

func (r *Record) addObject(raw []byte, from evidence.Source, depth int) {
	var o object
	if len(raw) == 0 || raw[0] != '{' || json.Unmarshal(raw, &o) != nil {
		return
	}
	if add := kinds[o.Kind]; add != nil {
		add(r, &o, from)
	}
	for _, item := range o.Items {
		if depth < 2 {
			r.addObject(item, from, depth+1)
		}
	}
}

func (r *Record) addService(o *object, from evidence.Source) {
	var spec struct {
		ClusterIP  string   `json:"clusterIP"`
		ClusterIPs []string `json:"clusterIPs"`
		Ports      []struct {
			Port       uint16 `json:"port"`
			TargetPort any    `json:"targetPort"`
		} `json:"ports"`
		Selector map[string]string `json:"selector"`
	}
	s := r.service(o.Metadata.Namespace, o.Metadata.Name)
	if s == nil || json.Unmarshal(o.Spec, &spec) != nil {
		return
	}
	for _, ip := range append(spec.ClusterIPs, spec.ClusterIP) {
		s.addIP(ip)
	}
	s.selector = spec.Selector
	var says []string
	for _, p := range spec.Ports {
		target := portOf(p.Port)
		if p.TargetPort != nil {
			target = fmt.Sprint(p.TargetPort)
		}
		s.ports[p.Port] = target
		says = append(says, fmt.Sprintf("port %d, targetPort %s", p.Port, target))
	}
	s.source = &evidence.Quote{Source: from, Text: fmt.Sprintf("Service %s: %s", s, strings.Join(says, "; "))}
}

func (s *service) addIP(ip string) {
	if _, err := netip.ParseAddr(ip); err == nil && !slices.Contains(s.ips, ip) {
		s.ips = append(s.ips, ip)
	}
	s.headless = s.headless || ip == "None"
}

func (r *Record) addEndpoints(o *object, from evidence.Source) {
	s := r.service(o.Metadata.Namespace, o.Metadata.Name)
	if s == nil {
		return
	}
	var ready []string
	unready := 0
	for _, set := range o.Subsets {
		unready += len(set.NotReadyAddresses)
		for _, a := range set.NotReadyAddresses {
			s.addPod(a.TargetRef)
		}
		for _, a := range set.Addresses {
			ready = append(ready, withPorts(a.IP, set.Ports)...)
		}
	}
	s.setEndpoints(ready, unready, evidence.Quote{Source: from, Text: fmt.Sprintf("Endpoints %s", s)})
}

func (r *Record) addSlice(o *object, from evidence.Source) {
	s := r.service(o.Metadata.Namespace, o.Metadata.Labels["kubernetes.io/service-name"])
	if s == nil {
		return
	}
	var ready []string
	unready := 0
	for _, e := range o.Endpoints {
		if e.Conditions.Ready != nil && !*e.Conditions.Ready {
			unready++
			s.addPod(e.TargetRef)
			continue
		}
		for _, a := range e.Addresses {
			ready = append(ready, withPorts(a, o.Ports)...)
		}
	}
	s.setEndpoints(ready, unready, evidence.Quote{Source: from, Text: fmt.Sprintf("EndpointSlice of %s", s)})
}

// addPod adds a pod behind an address that is not ready.
func (s *service) addPod(to targetRef) {
	if to.Kind == "Pod" && to.Name != "" && len(s.pods) < mostValues {
		s.pods = append(s.pods, to.Name)
	}
}

func withPorts(ip string, ports []subsetPort) (out []string) {
	for _, p := range ports {
		out = append(out, netJoin(ip, p.Port))
	}
	if len(ports) == 0 {
		out = append(out, netJoin(ip, 0))
	}
	return out
}

func netJoin(ip string, port uint16) string {
	if strings.Contains(ip, ":") {
		return fmt.Sprintf("[%s]:%d", ip, port)
	}
	return fmt.Sprintf("%s:%d", ip, port)
}

// setEndpoints adds the endpoints of one object or row. A Service has several slices; it has none only if all are empty.
func (s *service) setEndpoints(ready []string, unready int, q evidence.Quote) {
	s.known, s.unready = true, s.unready+unready
	for _, text := range ready {
		if a, err := netip.ParseAddrPort(text); err == nil && len(s.endpoints) < mostValues {
			s.endpoints = append(s.endpoints, a)
		} else if ip, err := netip.ParseAddr(text); err == nil && len(s.endpoints) < mostValues {
			s.endpoints = append(s.endpoints, netip.AddrPortFrom(ip, 0))
		}
	}
	if s.has != nil && len(ready) == 0 {
		return
	}
	if strings.HasPrefix(q.Text, "Endpoint") {
		says := cmp.Or(strings.Join(ready, ", "), "none")
		if unready > 0 {
			says += fmt.Sprintf("; %d not ready", unready)
		}
		q.Text += ": " + says
	}
	s.has = &q
}

// Targets returns the Service of the pod's namespace that leads to a port of pods, and where that is said; empty: none does,
// or several do.
func (r *Record) Targets(port int) (says evidence.Quote, name string) {
	for _, s := range r.services {
		if s.source == nil || r.pod.Object.Namespace != "" && s.namespace != r.pod.Object.Namespace || !slices.Contains(slices.Collect(maps.Values(s.ports)), strconv.Itoa(port)) || !r.maySelect(s) {
			continue
		}
		if name != "" {
			return evidence.Quote{}, ""
		}
		says, name = *s.source, s.String()
	}
	return says, name
}

// maySelect reports whether the selector of a Service may be the pod's labels.
func (r *Record) maySelect(s *service) bool {
	for k, v := range s.selector { // in any order
		if !r.pod.Omitted.Meta && r.pod.Object.Labels[k] != v {
			return false
		}
	}
	return true
}
