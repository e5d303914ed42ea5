package mesh

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
)

// String describes a mesh, by service and workload, for tests and their golden files.
func (m *Mesh) String() string {
	var b strings.Builder
	for _, s := range m.Services() {
		s.text(&b)
	}
	for _, w := range m.Workloads() {
		w.text(&b)
		for _, s := range m.ServicesOf(w) {
			fmt.Fprintf(&b, "  behind %s\n", s.Host)
		}
	}
	return b.String()
}

func (s *Service) text(b *strings.Builder) {
	fmt.Fprintf(b, "service %s\n", s.Host)
	line(b, "addresses", joined(s.Addresses))
	line(b, "external", s.External)
	if s.Headless {
		b.WriteString("  headless\n")
	}
	line(b, "visible to", strings.Join(s.ExportTo, ", "))
	for _, p := range s.Ports {
		fmt.Fprintf(b, "  port %d %s: %s\n", p.Number, p.Name, cmp.Or(p.Protocol, "unknown"))
	}
	for _, e := range s.Endpoints {
		fmt.Fprintf(b, "  endpoint %s %s%s\n", e.PortName, netip.AddrPortFrom(e.Addr, e.Port), e.text())
	}
	for _, r := range s.Routes {
		r.text(b)
	}
}

func line(b *strings.Builder, name, value string) {
	if value != "" {
		fmt.Fprintf(b, "  %s %s\n", name, value)
	}
}

func joined[T fmt.Stringer](list []T) string {
	var out []string
	for _, v := range list {
		out = append(out, v.String())
	}
	return strings.Join(out, ", ")
}

func (e Endpoint) text() string {
	out := ""
	switch {
	case e.Ready:
	case e.Serving:
		out = " terminating"
	default:
		out = " not ready"
	}
	if e.Zone != "" {
		out += " in " + e.Zone
	}
	if e.Hostname != "" {
		out += " named " + e.Hostname
	}
	if e.Workload != nil {
		out += " of " + e.Workload.title()
	}
	return out
}

func (w *Workload) title() string {
	kind := "pod "
	if w.Host {
		kind = "host "
	}
	return kind + w.Namespace + "/" + w.Name
}

func (w *Workload) text(b *strings.Builder) {
	fmt.Fprintf(b, "%s\n  account %s\n", w.title(), w.ServiceAccount)
	line(b, "addresses", joined(w.Addresses))
	var labels []string
	for _, k := range slices.Sorted(maps.Keys(w.Labels)) {
		labels = append(labels, k+"="+w.Labels[k])
	}
	line(b, "labels", strings.Join(labels, " "))
	line(b, "node", w.Node)
	line(b, "zone", w.Zone)
	for _, is := range []struct {
		yes  bool
		name string
	}{{w.Proxied, "proxied"}, {w.HostNetwork, "on its node's network"}, {w.TokenSHA256 != "", "has a token"}} {
		if is.yes {
			fmt.Fprintf(b, "  %s\n", is.name)
		}
	}
	for _, p := range w.Ports {
		fmt.Fprintf(b, "  port %d: %s, mutual TLS %s\n", p.Number, cmp.Or(p.Protocol, "unknown"), cmp.Or(p.TLS, "PERMISSIVE"))
	}
	fmt.Fprintf(b, "  other ports: mutual TLS %s\n", cmp.Or(w.TLS, "PERMISSIVE"))
}

func (r Route) text(b *strings.Builder) {
	fmt.Fprintf(b, "  route %s", r.Name)
	if r.Port != 0 {
		fmt.Fprintf(b, " port %d", r.Port)
	}
	if r.Namespaces != nil {
		fmt.Fprintf(b, " for %s", strings.Join(r.Namespaces, ", "))
	}
	for _, m := range r.Matches {
		b.WriteString(m.text())
	}
	b.WriteString("\n")
	for _, f := range r.Filters {
		f.text(b, "    ")
	}
	for _, d := range []struct {
		name  string
		value fmt.Stringer
		zero  bool
	}{{"timeout", r.Timeout, r.Timeout == 0}, {"backend timeout", r.BackendTimeout, r.BackendTimeout == 0}} {
		if !d.zero {
			fmt.Fprintf(b, "    %s %s\n", d.name, d.value)
		}
	}
	if r.Retry != nil {
		fmt.Fprintf(b, "    retry %d times on %v after %s\n", r.Retry.Attempts, r.Retry.Codes, r.Retry.Backoff)
	}
	for i := range r.Backends {
		fmt.Fprintf(b, "    to %s weight %d\n", r.Backends[i].text(), r.Backends[i].Weight)
		for _, f := range r.Backends[i].Filters {
			f.text(b, "      ")
		}
	}
}

func (b *Backend) text() string {
	return fmt.Sprintf("%s:%d", cmp.Or(b.Host, "nowhere ("+b.Namespace+"/"+b.Name+")"), b.Port)
}

func (m Match) text() string {
	out := " if"
	if m.Method != "" {
		out += " " + m.Method
	}
	if m.Path != nil {
		out += fmt.Sprintf(" path %s %s", m.Path.Kind, m.Path.Value)
	}
	for _, h := range m.Headers {
		out += fmt.Sprintf(" header %s %s %q", h.Name, h.Kind, h.Value)
	}
	for _, q := range m.Query {
		out += fmt.Sprintf(" query %s %s %q", q.Name, q.Kind, q.Value)
	}
	if out == " if" {
		return ""
	}
	return out
}

func (f Filter) text(b *strings.Builder, indent string) {
	headers := func(of string, h *Headers) {
		fmt.Fprintf(b, "%s%s headers: set %q, add %q, remove %q\n", indent, of, h.Set, h.Add, h.Remove)
	}
	switch {
	case f.RequestHeaders != nil:
		headers("request", f.RequestHeaders)
	case f.ResponseHeaders != nil:
		headers("response", f.ResponseHeaders)
	case f.Redirect != nil:
		fmt.Fprintf(b, "%sredirect %d scheme %q host %q port %d%s\n", indent, f.Redirect.Status, f.Redirect.Scheme, f.Redirect.Host, f.Redirect.Port, f.Redirect.Path.text())
	case f.Rewrite != nil:
		fmt.Fprintf(b, "%srewrite host %q%s\n", indent, f.Rewrite.Host, f.Rewrite.Path.text())
	case f.Mirror != nil:
		fmt.Fprintf(b, "%smirror %v%% to %s\n", indent, f.MirrorPercent, f.Mirror.text())
	}
}

func (p *PathChange) text() string {
	switch {
	case p == nil:
		return ""
	case p.Prefix != nil:
		return fmt.Sprintf(" prefix %q", *p.Prefix)
	}
	return fmt.Sprintf(" path %q", p.Full)
}
