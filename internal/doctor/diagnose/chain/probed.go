package chain

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/doctor"
	"outrider.dev/internal/doctor/diagnose/facts"
	"outrider.dev/internal/doctor/diagnose/result"
	"outrider.dev/internal/doctor/evidence"
)

// A Relayed is the answer to a probe that reached a container through the proxy, or through its agent. Both answer with
// the status of a server that fails when the container does not take their connection.
type Relayed struct {
	By         string // the container that relayed the probe
	Port, Path string // what the container itself is asked; empty: not known
	At         string // where the container listens in place of Port; empty: not known, or there
	Says       string // what says so: its log or its settings
	Loopback   bool   // it listens on the loopback address only
	Refused    bool   // the proxy says that the port refused it
	Own        bool   // it is the container's own: its log has it, or says that it listens there
	Quotes     []evidence.Quote
}

// Relay returns what is known of an answer to a probe, and false if the container itself gave it: no proxy lies between, or
// proxies do not answer so. Istio's agent asks the container itself, and answers 500 when that fails.
func (c *Case) Relay(container, port, path, status string) (r Relayed, is bool) {
	if c.Proxy == nil || container == c.Proxy.Name {
		return r, false
	}
	r = Relayed{By: c.Proxy.Name, Port: port, Path: path}
	n, _ := strconv.ParseUint(port, 10, 16)
	fails := slices.Contains([]string{"502", "503", "504"}, status)
	switch agent := strings.HasPrefix(path, contract.ProbePath); {
	case agent && status == "500":
		r.Port, r.Path = c.rewritten(path)
	case !agent && fails && facts.Exposes(c.Proxy.Name, int(n)):
		r.Port = ""
	case agent, !fails, c.Capture.TakesIn(uint16(n)) == doctor.No:
		return r, false
	}
	own := func(q evidence.Quote) bool {
		return strings.Contains(q.Text, status) && r.Path != "" && strings.Contains(q.Text, r.Path)
	}
	for _, t := range c.Tails {
		if i := slices.IndexFunc(t.Lines, own); i >= 0 && t.Container == container {
			r.Own, r.Says, r.Quotes = true, "it says itself that it is not well", []evidence.Quote{t.Lines[i]}
			return r, true
		}
	}
	if r.listens(c, container); r.At != "" || r.Loopback || r.Own {
		return r, true
	}
	for _, v := range c.Serving {
		for _, q := range c.Said.In(v.Number, facts.InboundRefused) {
			if p, known := facts.RefusedInbound(q.Text); known && (p == r.Port || r.Port == "") {
				r.Refused, r.Port, r.Quotes = true, p, []evidence.Quote{q}
			}
		}
	}
	return r, true
}

// Explain adds to a finding about a probe of a container that got a status what is known of it.
func (r Relayed) Explain(f *result.Finding, container, status string) {
	port := cmp.Or(r.Port, "of the probe")
	f.Evidence = append(f.Evidence, r.Quotes...)
	f.Disproof = fmt.Sprintf("an answer of %s to the same request, made in its container past %s", container, r.By)
	seen := fmt.Sprintf("it gets %s through %s", status, r.By)
	switch {
	case r.Own:
		f.Sentence += fmt.Sprintf(": it answers %s for %s", status, r.Path)
		f.Remedy.Sentence = fmt.Sprintf("see the log of %s for what it lacks: %s", container, r.Says)
	case r.At != "":
		f.Sentence += fmt.Sprintf(": %s, since it asks port %s; by %s, %s listens on %s", seen, port, r.Says, container, r.At)
		f.Remedy.Sentence = fmt.Sprintf("let the probes of %s, its containerPort and the Service's targetPort name port %s, or let it listen on %s", container, r.At, port)
	case r.Loopback:
		f.Sentence += fmt.Sprintf(": %s; by its log, %s listens on the loopback address only", seen, container)
		f.Remedy.Sentence = fmt.Sprintf("let %s listen on all addresses (0.0.0.0): the probe asks the pod's own address", container)
	case r.Refused:
		f.Sentence += fmt.Sprintf(": %s, by whose log nothing listened on port %s", seen, port)
		f.Remedy.Sentence = fmt.Sprintf("see whether %s listens on port %s (its log, its arguments); if it only needs longer to start, give it a startup probe", container, port)
	default:
		f.Sentence += fmt.Sprintf(": %s, which answers so when %s does not take its connection; %s may have answered so itself", seen, container, container)
		f.Remedy.Sentence = fmt.Sprintf("see whether %s listens where the probe asks (its log, its arguments), and make the probe's request in its container; if it answers %s itself, see its log for what it lacks", container, status)
	}
}

// listens sets where the container listens, if not at the port that is asked: by its log or, without a line about it there,
// by its settings.
func (r *Relayed) listens(c *Case, container string) {
	at, quote, local := c.ListensBeside(container, r.Port)
	switch {
	case at != "" && r.Port != "":
		r.At, r.Says, r.Quotes = at, "its log", []evidence.Quote{quote}
	case local && c.Proxy.Name != "linkerd-proxy": // which calls the loopback address
		r.Loopback, r.Quotes = true, []evidence.Quote{quote}
	case quote.Text != "" && r.Port != "" && at == "":
		r.Own, r.Says, r.Quotes = true, fmt.Sprintf("by that it listens on port %s, so that most likely %s only hands its answer on", r.Port, r.By), []evidence.Quote{quote}
	case quote.Text == "" && r.Port != "":
		if set := facts.PortsSet(c.Spec(container)); len(set) > 0 && len(set) <= 2 && !slices.Contains(set, r.Port) {
			r.At, r.Says = strings.Join(set, " and "), "its settings"
			r.Quotes = []evidence.Quote{c.Quote(evidence.Time{}, "%s is set to listen on port %s", container, r.At)}
		}
	}
}

// ListensBeside returns the ports on which a container listens by its log, if the given one is none of them, and the line.
// local: it listens on that port, or on all of those if no port is given, but only on the loopback address.
func (c *Case) ListensBeside(container, port string) (at string, quote evidence.Quote, local bool) {
	n, _ := strconv.Atoi(port)
	var others []string
	all := true
	for _, l := range c.Listens {
		if l.Container != container || len(l.Ports) == 0 {
			continue
		}
		if slices.Contains(l.Ports, n) {
			return "", l.Quote, l.Loopback
		}
		quote, all = l.Quote, all && l.Loopback
		for _, p := range l.Ports {
			if !slices.Contains(others, fmt.Sprint(p)) {
				others = append(others, fmt.Sprint(p))
			}
		}
	}
	switch {
	case n == 0:
		return "", quote, all && quote.Text != ""
	case len(others) > 4:
		return "", evidence.Quote{}, false
	}
	return strings.Join(others, " and "), quote, false
}

// mostOfProbes is the number of bytes of the variable with the probes that is read.
const mostOfProbes = 1 << 16

// rewritten returns the port and the path of a probe that injection gave to the agent; empty: the evidence has no such
// variable. Source: istio.io, "Health Checking of Istio Services"; pkg/kube/inject/app_probe.go.
func (c *Case) rewritten(path string) (port, own string) {
	spec := c.Spec(c.Proxy.Name)
	if spec == nil {
		return "", ""
	}
	i := slices.IndexFunc(spec.Env, func(e corev1.EnvVar) bool { return e.Name == "ISTIO_KUBE_APP_PROBERS" })
	if i < 0 || len(spec.Env[i].Value) > mostOfProbes {
		return "", ""
	}
	type at struct {
		Path string          `json:"path"`
		Port json.RawMessage `json:"port"`
	}
	var all map[string]struct{ HTTPGet, TCPSocket, GRPC at }
	if json.Unmarshal([]byte(spec.Env[i].Value), &all) != nil {
		return "", ""
	}
	for _, a := range []at{all[path].HTTPGet, all[path].TCPSocket, all[path].GRPC} {
		if n, err := strconv.ParseUint(strings.Trim(string(a.Port), `"`), 10, 16); err == nil {
			return fmt.Sprint(n), a.Path
		}
	}
	return "", ""
}
