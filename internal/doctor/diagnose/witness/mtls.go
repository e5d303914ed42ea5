package witness

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"outrider.dev/internal/base/finding"
	"outrider.dev/internal/doctor"
	"outrider.dev/internal/doctor/diagnose/calls"
	"outrider.dev/internal/doctor/diagnose/facts"
	"outrider.dev/internal/doctor/diagnose/result"
	"outrider.dev/internal/doctor/evidence"
)

// A namespace has whether injection is asked for it.
type namespace struct {
	name    string
	injects bool
	quote   evidence.Quote
}

// An mtls is a PeerAuthentication of a namespace, or of the mesh.
type mtls struct {
	namespace string
	strict    bool
	quote     evidence.Quote
}

// rootNamespace is the namespace whose PeerAuthentication is the mesh's.
const rootNamespace = "istio-system"

// injecting reports whether labels of a namespace ask for injection.
func injecting(labels map[string]string) bool {
	return labels["istio-injection"] == "enabled" || labels["istio.io/rev"] != "" || labels["istio.io/dataplane-mode"] == "ambient"
}

func (r *Record) addNamespace(o *object, from evidence.Source) {
	r.keepSpace(namespace{o.Metadata.Name, injecting(o.Metadata.Labels), evidence.Quote{Source: from, Text: "Namespace " + o.Metadata.Name + ": labels without one that asks for a proxy"}})
}

func (r *Record) addMTLS(o *object, from evidence.Source) {
	var spec struct {
		Selector *selector `json:"selector"`
		MTLS     struct {
			Mode string `json:"mode"`
		} `json:"mtls"`
	}
	if json.Unmarshal(o.Spec, &spec) != nil || spec.Selector != nil || spec.MTLS.Mode == "" {
		return
	}
	r.keepMTLS(mtls{o.Metadata.Namespace, spec.MTLS.Mode == "STRICT", evidence.Quote{Source: from, Text: fmt.Sprintf("PeerAuthentication %s/%s: %s", o.Metadata.Namespace, o.Metadata.Name, spec.MTLS.Mode)}})
}

var (
	spaceHead = regexp.MustCompile(`^[ \t>|]*NAME\s+STATUS\s+AGE\s+\S`)
	spaceRow  = regexp.MustCompile(`^[ \t>|]*(?:namespace/)?([a-z0-9][-a-z0-9]*)\s+(?:Active|Terminating)\s+\S+(?:\s+(\S.*?))?\s*$`)
	mtlsRow   = regexp.MustCompile(`^[ \t>|]*([a-z0-9][-a-z0-9]*)\s+[a-z0-9][-a-z0-9.]*\s+(STRICT|PERMISSIVE|DISABLE)\s+\S+\s*$`)
)

// readMesh reads what kubectl printed for people of namespaces with their labels, and of PeerAuthentications.
func (r *Record) readMesh(t text) {
	head := ""
	for i, line := range t.lines {
		switch m := spaceRow.FindStringSubmatch(line); {
		case len(line) > 2000:
		case spaceHead.MatchString(line):
			head = line
		case strings.TrimSpace(line) == "":
			head = ""
		case m != nil && asksFor(head):
			labels := strings.FieldsFunc(m[2], func(c rune) bool { return c == ',' || c == ' ' || c == '\t' })
			injects := slices.ContainsFunc(labels, func(l string) bool {
				return l == "enabled" || l == "ambient" || injecting(labelsOf(l)) || !strings.Contains(l, "=") && l != "disabled"
			})
			r.keepSpace(namespace{m[1], injects, t.quote(i+1, r.secrets)})
		}
		if m := mtlsRow.FindStringSubmatch(line); m != nil && len(line) < 2000 {
			r.keepMTLS(mtls{m[1], m[2] == "STRICT", t.quote(i+1, r.secrets)})
		}
	}
}

// asksFor reports whether the head of a table of namespaces has the columns of the labels that ask for a proxy.
func asksFor(head string) bool {
	return strings.Contains(head, "LABELS") || strings.Contains(head, "INJECTION")
}

// strictFor returns what wants mutual TLS of calls to a namespace; empty: of any.
func (r *Record) strictFor(namespace string) (found mtls, is bool) {
	for _, m := range r.mtls {
		if m.namespace == namespace && namespace != "" {
			return m, m.strict
		}
		if m.namespace == rootNamespace && m.strict {
			found, is = m, true
		}
	}
	return found, is
}

// plain are the failures of a call without TLS to a server that wants it.
var plain = []calls.Failure{calls.Reset, calls.Ended}

// WithoutProxy finds a pod that has no proxy, since its namespace asks for none, and whose calls are ended by the proxies of
// what it calls, which want mutual TLS.
func (r *Record) WithoutProxy(p *facts.Pod, failed calls.Calls) []result.Finding {
	i := slices.IndexFunc(r.spaces, func(n namespace) bool { return n.name == p.Object.Namespace })
	if p.Proxy != nil || i < 0 || r.spaces[i].injects || p.Row != nil && len(p.Containers) < p.Row.Of || p.Omitted.Units {
		return nil
	}
	for _, y := range failed {
		in := spaceOf(y.To, p.Object.Namespace)
		m, strict := r.strictFor(in)
		if !slices.Contains(plain, y.Failure) || y.To.Loopback() || !strict || in != "" && slices.ContainsFunc(r.spaces, func(n namespace) bool { return n.name == in && !n.injects }) {
			continue
		}
		to := "what it called"
		if y.To.Known() {
			to = y.To.String()
		}
		return []result.Finding{{
			Code: "dependency-down", Container: y.Container, Confidence: result.Likely,
			Sentence: fmt.Sprintf("%s has no proxy, since namespace %s asks for none, and %s ended its call: mutual TLS is wanted there (STRICT)", y.Container, p.Object.Namespace, to),
			Evidence: []evidence.Quote{y.Quote, r.spaces[i].quote, m.quote},
			Disproof: "a proxy in the pod, or an answer to the same call",
			Remedy:   finding.Remedy{Sentence: fmt.Sprintf("label namespace %s for injection, as the namespaces of the mesh are, and make the pod anew; nothing is to be waited for, as no proxy comes", p.Object.Namespace), Command: "kubectl get namespace -L istio-injection,istio.io/rev"},
		}}
	}
	return nil
}

// spaceOf returns the namespace of a destination, as a pod of another one names it; empty: not known.
func spaceOf(to doctor.Destination, own string) string {
	host := to.Host
	if strings.Trim(host, "0123456789.") == "" {
		host = to.Name
	}
	parts := strings.Split(host, ".")
	switch {
	case host == "" || strings.Contains(host, ":"):
		return ""
	case len(parts) == 1:
		return own
	case len(parts) == 2 || parts[2] == "svc":
		return parts[1]
	}
	return ""
}
