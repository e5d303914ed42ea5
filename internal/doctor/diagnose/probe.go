package diagnose

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"outrider.dev/internal/doctor/diagnose/facts"
	"outrider.dev/internal/doctor/evidence"
)

// A probeAnswer is a row of the table of what a probe got.
type probeAnswer struct {
	form   *regexp.Regexp
	says   string // {c}: the container, {port}, {path}, {status}, {timeout}
	remedy string // empty: the one of the finding
}

// refusedProbe is the answer of a kernel: nothing listens on the port.
var refusedProbe = regexp.MustCompile(`(?i)connection refused|actively refused`)

// probeAnswers has what a probe got, in the words of the kubelet, of Istio's agent and of grpc_health_probe; the first
// that fits counts.
var probeAnswers = []probeAnswer{
	{refusedProbe, "nothing listened on port {port} then", "see whether {c} listens on port {port}; if it only needs longer to start, give it a startup probe"},
	{regexp.MustCompile(`(?i)(?:status ?code:? |HTTP status )(404)`), "it answers 404 for {path}", "correct the path of the probe, or let {c} serve {path}"},
	{regexp.MustCompile(`(?i)(?:status ?code:? |HTTP status )(40[13])`), "it answers {status} for {path}: the probe is not let in", "let {path} be asked without credentials, or use a path that can be"},
	{regexp.MustCompile(`(?i)(?:status ?code:? |HTTP status )(5\d\d)`), "it answers {status} for {path}", "see the log of {c} for what it lacks: it says itself that it is not well"},
	{regexp.MustCompile(`(?i)(?:status ?code:? |HTTP status )(\d{3})`), "it answers {status} for {path}", ""},
	{regexp.MustCompile(`(?i)context deadline exceeded|client\.timeout|i/o timeout|timed? ?out`), "it did not answer within {timeout}", "see what keeps {c} busy then (its CPU limit, its memory, what it waits for), or give the probe a longer timeoutSeconds"},
	{regexp.MustCompile(`(?i)HTTP response to HTTPS client`), "the probe speaks HTTPS, and port {port} HTTP", "correct the scheme of the probe"},
	{regexp.MustCompile(`(?i)no such file|executable file not found|command not found`), "the command of the probe is not in the image", "use a command that the image has, or a probe by HTTP, TCP or gRPC"},
	{regexp.MustCompile(`(?i)NOT_SERVING|service unhealthy`), "it answers that it does not serve", "see the log of {c} for what it lacks"},
	{regexp.MustCompile(`(?i)connection reset|: EOF`), "it closes the connection of the probe", ""},
}

// answered adds what a probe of a container got to the finding about it: in its sentence, its evidence and its remedy.
func (s *subject) answered(f *Finding, c *evidence.Container, kind string) {
	text := s.probeText(c.Name, kind)
	q, said := s.probedByAgent(c.Name)
	if said { // the kubelet sees only the agent's answer
		text = q.Text
		f.Evidence = append(f.Evidence, q)
	}
	i := slices.IndexFunc(probeAnswers, func(a probeAnswer) bool { return a.form.MatchString(text) })
	if text == "" || i < 0 {
		return
	}
	probe := probeOf(s.Spec(c.Name), kind)
	port, path := probed(text, probe, s.Spec(c.Name))
	status := ""
	if m := probeAnswers[i].form.FindStringSubmatch(text); len(m) > 1 {
		status = m[1]
	}
	timeout := int32(1)
	if probe != nil {
		timeout = max(probe.TimeoutSeconds, 1)
	}
	fill := strings.NewReplacer("{c}", c.Name, "{port}", cmp.Or(port, "of the probe"), "{path}", cmp.Or(path, "its path"), "{status}", status, "{timeout}", fmt.Sprintf("%d s", timeout))
	f.Sentence += ": " + fill.Replace(probeAnswers[i].says)
	f.Remedy.Sentence = cmp.Or(fill.Replace(probeAnswers[i].remedy), f.Remedy.Sentence)
	if refusedProbe.MatchString(text) {
		if s.Proxy != nil && s.Capture.None == "" && !said { // the probe's connection may be captured
			f.Sentence = strings.Replace(f.Sentence, ": nothing listened on port "+port+" then", ": its connection to port "+port+" was refused", 1)
		}
		s.elsewhere(f, c.Name, port)
	}
}

// elsewhere changes a finding about a probe to whose port nothing listened, if the application's log says that it
// listens on others, or only on the loopback address.
func (s *subject) elsewhere(f *Finding, container, port string) {
	at, quote, local := s.listensBeside(container, port)
	switch {
	case local:
		f.Sentence = strings.TrimSuffix(f.Sentence, " then") + fmt.Sprintf("; by its log, %s listens on the loopback address only", container)
		f.Evidence = append(f.Evidence, quote)
		f.Remedy.Sentence = fmt.Sprintf("let %s listen on all addresses (0.0.0.0:%s): the kubelet asks the pod's own address", container, port)
	case at != "":
		f.Sentence = strings.TrimSuffix(f.Sentence, " then") + "; " + s.toOther(f, container, port, at, quote)
	}
}

// toOther says that a container listens on other ports than the one that a probe asks, in the rest of a finding and for
// its sentence.
func (s *subject) toOther(f *Finding, container, port, at string, quote evidence.Quote) string {
	f.Evidence = append(f.Evidence, quote)
	f.Disproof = fmt.Sprintf("a line of its log that says it listens on port %s", port)
	f.Remedy.Sentence = fmt.Sprintf("let the probes of %s, its containerPort and the Service's targetPort name port %s, or let it listen on %s", container, at, port)
	return fmt.Sprintf("by its log, %s listens on %s", container, at)
}

// listensBeside returns the ports on which a container listens by its log, if the given one is none of them, and the
// line. local: it listens on that port, but only on the loopback address.
func (s *subject) listensBeside(container, port string) (at string, quote evidence.Quote, local bool) {
	n, _ := strconv.Atoi(port)
	var others []string
	for _, l := range s.Listens {
		if l.Container != container || n == 0 || len(l.Ports) == 0 {
			continue
		}
		if slices.Contains(l.Ports, n) {
			return "", l.Quote, l.Loopback
		}
		quote = l.Quote
		for _, p := range l.Ports {
			if !slices.Contains(others, fmt.Sprint(p)) {
				others = append(others, fmt.Sprint(p))
			}
		}
	}
	if len(others) > 4 {
		return "", evidence.Quote{}, false
	}
	return strings.Join(others, " and "), quote, false
}

// asksElsewhere changes a finding about a container of whose probes no event is left, if one of them asks a port on
// which it does not listen by its log. It returns false if none does, or if the port may be of another container.
func (s *subject) asksElsewhere(f *Finding, container string, kinds ...string) bool {
	spec := s.Spec(container)
	for _, kind := range kinds {
		probe := probeOf(spec, kind)
		if probe == nil || probe.Exec != nil {
			continue
		}
		port, path := probed("", probe, spec)
		n, _ := strconv.Atoi(port)
		if strings.HasPrefix(path, "/app-health/") || s.declares(n, container) != "" || slices.ContainsFunc(listeners, func(l listener) bool { return s.Proxy != nil && l.proxy == s.Proxy.Name && l.port == n }) {
			continue
		}
		if at, quote, _ := s.listensBeside(container, port); at != "" {
			f.Sentence += fmt.Sprintf(": its %s probe asks port %s; %s", kind, port, s.toOther(f, container, port, at, quote))
			return true
		}
	}
	return false
}

// probeText returns the message of the last event about a failed probe of a container; empty: there is none.
func (s *subject) probeText(container, kind string) (text string) {
	for _, e := range s.Events {
		if e.Container == container && e.Reason == "Unhealthy" && strings.HasPrefix(strings.ToLower(e.Message), kind) {
			text = s.Show([]byte(e.Message))
		}
	}
	return text
}

// probedByAgent returns the last line in which the agent of the proxy says what a probe of a container got that it asked.
func (s *subject) probedByAgent(container string) (quote evidence.Quote, said bool) {
	for _, v := range s.Serving {
		for _, q := range s.Said.In(v.Number, facts.ProbeFailed) {
			if strings.Contains(q.Text, "/app-health/"+container+"/") {
				quote, said = q, true
			}
		}
	}
	return quote, said
}

// probeOf returns a probe of a container, or nil.
func probeOf(spec *corev1.Container, kind string) *corev1.Probe {
	switch {
	case spec == nil:
		return nil
	case kind == "liveness":
		return spec.LivenessProbe
	case kind == "startup":
		return spec.StartupProbe
	}
	return spec.ReadinessProbe
}

var (
	probedURL  = regexp.MustCompile(`https?://[^/\s"]*?(?::(\d{1,5}))?(/[^\s"]*)?"`)
	probedDial = regexp.MustCompile(`dial tcp (?:\S*->)?\S*?:(\d{1,5}):`)
)

// probed returns the port and the path that a probe asked: by the message about it, or else by the pod's spec.
func probed(text string, probe *corev1.Probe, spec *corev1.Container) (port, path string) {
	if m := probedURL.FindStringSubmatch(text); m != nil {
		port, path = m[1], m[2]
	}
	if m := probedDial.FindStringSubmatch(text); m != nil {
		port = cmp.Or(port, m[1])
	}
	if probe == nil {
		return port, path
	}
	at := ""
	switch {
	case probe.HTTPGet != nil:
		at, path = probe.HTTPGet.Port.String(), cmp.Or(path, probe.HTTPGet.Path)
	case probe.TCPSocket != nil:
		at = probe.TCPSocket.Port.String()
	case probe.GRPC != nil:
		at = fmt.Sprint(probe.GRPC.Port)
	}
	for _, p := range spec.Ports {
		if p.Name == at && p.Name != "" {
			at = fmt.Sprint(p.ContainerPort)
		}
	}
	return cmp.Or(port, at), path
}
