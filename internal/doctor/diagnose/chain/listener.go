package chain

import (
	"fmt"
	"slices"
	"strings"

	"outrider.dev/internal/core/pod/podspec"
	"outrider.dev/internal/doctor"
	"outrider.dev/internal/doctor/diagnose/calls"
	"outrider.dev/internal/doctor/diagnose/facts"
	"outrider.dev/internal/doctor/evidence"
	"outrider.dev/startup"
)

// Siblings returns the other containers of the pod that a container may call by the loopback interface. A proxy with a
// capture is none: what it captures is not called by its port.
func (c *Case) Siblings(caller string) (out []*evidence.Container) {
	for _, o := range c.Containers {
		if o.Name != caller && o.Kind != startup.Init && o.Kind != evidence.Ephemeral && (o != c.Proxy || c.Capture.None != "" || c.Capture.Own || c.Omitted.Meta && strings.HasPrefix(o.Name, "consul-dataplane")) {
			out = append(out, o)
		}
	}
	return out
}

// Listener returns the container of the pod that is set to listen where a call went, and nil if none is known to be.
func (c *Case) Listener(y calls.Call) *evidence.Container {
	port := fmt.Sprint(y.To.Port)
	for _, o := range c.Containers {
		spec := c.Spec(o.Name)
		if spec == nil || o.Name == y.Container || o.Kind == startup.Init || o.Kind == evidence.Ephemeral {
			continue
		}
		if o == c.Proxy && slices.Contains(c.upstreamPorts(), port) {
			return o
		}
		_, says := c.ListensAt(o.Name, y.To.Port)
		if says || y.To.Network == doctor.Unix && facts.ListensIn(spec, y.To.Host) || y.To.Port > 0 && (slices.Contains(facts.PortsOf(spec), port) || podspec.ListensOn(spec, int(y.To.Port))) {
			return o
		}
	}
	return nil
}

// upstreamPorts returns the ports at which Consul's proxy listens for the services that an annotation names: name:port,
// with more parts behind it. Source: developer.hashicorp.com/consul/docs/k8s/annotations-and-labels.
func (c *Case) upstreamPorts() (out []string) {
	for one := range strings.SplitSeq(c.Object.Annotations["consul.hashicorp.com/connect-service-upstreams"], ",") {
		parts := strings.Split(strings.TrimPrefix(strings.TrimSpace(one), "prepared_query:"), ":")
		if len(parts) > 1 {
			out = append(out, parts[1])
		}
	}
	return out
}

// MayListen returns the container that most likely should have listened where a call went, of those of which it is not known
// where they listen: one that did not run then, or had only just started, before one that ran; and one that serves others,
// as far as its name and its settings tell. It returns nil if all other containers listen elsewhere, as far as is known.
func (c *Case) MayListen(y calls.Call) (best *evidence.Container) {
	most := -1
	for _, o := range c.Siblings(y.Container) {
		spec := c.Spec(o.Name)
		if spec == nil || y.To.Network == doctor.Unix && !facts.ListensIn(spec, y.To.Host) {
			continue
		}
		rank, ports := 0, c.PortsKnown(o.Name)
		if !c.up(o, y) {
			rank = 2
		}
		if y.To.Port > 0 && len(ports) > 0 && (rank == 0 || len(spec.Ports) == 0) {
			continue
		}
		if serves, _ := podspec.Serves(spec); serves || len(ports) > 0 {
			rank++
		}
		if rank > most {
			best, most = o, rank
		}
	}
	return best
}

// PortsKnown returns the ports at which a container listens, by its specification and its log.
func (c *Case) PortsKnown(container string) (out []string) {
	if spec := c.Spec(container); spec != nil {
		out = facts.PortsOf(spec)
	}
	if c.Proxy != nil && container == c.Proxy.Name {
		out = append(out, c.upstreamPorts()...)
	}
	for _, l := range c.Listens {
		for _, p := range l.Ports {
			if text := fmt.Sprint(p); l.Container == container && !slices.Contains(out, text) {
				out = append(out, text)
			}
		}
	}
	return out
}

// up reports whether a container ran at the time of a call, for so long that it surely listened if it listens at all.
func (c *Case) up(o *evidence.Container, y calls.Call) bool {
	for _, r := range o.Runs {
		least, _, ok := y.At.Since(r.Started)
		if ok && least > facts.Usual && (r.Running || y.At.Compare(r.Finished) == evidence.Before) {
			return true
		}
	}
	return false
}
