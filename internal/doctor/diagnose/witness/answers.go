package witness

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"outrider.dev/internal/base/finding"
	"outrider.dev/internal/doctor"
	"outrider.dev/internal/doctor/diagnose/calls"
	"outrider.dev/internal/doctor/diagnose/result"
	"outrider.dev/internal/doctor/evidence"
)

// An Answer is the reason of a failed call, by the files beside the pod.
type Answer struct {
	Sentence string // what is the case, after "since"
	Remedy   string
	Quotes   []evidence.Quote
}

// A reason is a row of the table of answers: for calls that failed in one of these ways; any way without one.
type reason struct {
	ways []calls.Failure
	find func(*Record, Question) (Answer, bool)
}

var (
	unanswered   = []calls.Failure{calls.TimedOut, calls.Unreachable}
	toNothing    = []calls.Failure{calls.Refused, calls.TimedOut, calls.Unreachable, calls.Reset, calls.Upstream, calls.Unavailable}
	throughProxy = []calls.Failure{calls.Upstream, calls.Ended, calls.Reset, calls.Unavailable}
	atPort       = []calls.Failure{calls.Refused, calls.Reset, calls.Upstream, calls.Unavailable}
)

// reasons has the answers; the first row that the files answer counts. What was seen to happen comes before what an object
// would lead to.
var reasons = []reason{
	{nil, (*Record).wasDropped},
	{toNothing, (*Record).noEndpoints},
	{toNothing, (*Record).noSuchPort},
	{atPort, (*Record).listensElsewhere},
	{atPort, (*Record).listensLater},
	{toNothing, (*Record).hasEnded},
	{toNothing, (*Record).notReady},
	{unanswered, (*Record).isForbidden},
	{throughProxy, (*Record).isForbiddenToProxy},
	{[]calls.Failure{calls.Unresolved}, (*Record).noDNS},
	{[]calls.Failure{calls.Unresolved}, (*Record).inOtherNamespace},
}

// Of returns what the files say about a call, and false if they say nothing.
func (r *Record) Of(q Question) (Answer, bool) {
	if !q.To.Known() || q.To.Loopback() {
		return Answer{}, false
	}
	for _, w := range reasons {
		if w.ways == nil || slices.Contains(w.ways, q.Failure) {
			if a, is := w.find(r, q); is {
				return a, true
			}
		}
	}
	return Answer{}, false
}

// before has the beginning of the sentence about a call, of the caller and the destination; otherwise the finding's own counts.
var before = map[calls.Failure]string{calls.Refused: "%s was refused by %s", calls.TimedOut: "%s got no answer from %s", calls.Unreachable: "%s got no answer from %s"}

// Explain changes the finding about a call to the reason that the files beside the pod have for it, and returns false if they
// have none. It is never certain: a file may be of another time.
func (r *Record) Explain(f *result.Finding, to string, q Question) bool {
	a, is := r.Of(q)
	if !is {
		return false
	}
	sentence := f.Sentence
	if begin, has := before[q.Failure]; has {
		sentence = fmt.Sprintf(begin, f.Container, to)
	}
	f.Sentence, f.Confidence = sentence+", since "+a.Sentence, result.Likely
	f.Evidence, f.Remedy = append(f.Evidence, a.Quotes...), finding.Remedy{Sentence: a.Remedy}
	return true
}

// apart is the time beyond which a packet that was dropped is not one of a call.
const apart = 15 * time.Minute

func (r *Record) wasDropped(q Question) (Answer, bool) {
	var a Answer
	for _, d := range r.drops {
		if d.to != q.To {
			continue
		}
		before, _, early := q.At.Since(d.quote.At)
		after, _, late := d.quote.At.Since(q.Last)
		if early && before > apart || late && after > apart {
			continue
		}
		if len(a.Quotes) < 2 {
			a.Quotes = append(a.Quotes, d.quote)
		}
		a.Sentence, a.Remedy = "its packets are dropped on the way", fmt.Sprintf("let %s call %s in the rules of what dropped the packets", r.pod.Object.Name, q.To)
		if d.policy {
			a.Sentence, a.Remedy = "a network policy drops its packets", fmt.Sprintf("allow the egress of %s to %s in the network policies that select it", r.pod.Object.Name, q.To)
		}
		if d.policy && d.inward {
			a.Remedy = fmt.Sprintf("allow the ingress from %s in the network policies that select %s", r.pod.Object.Name, q.To)
		}
	}
	return a, len(a.Quotes) > 0
}

func (r *Record) noEndpoints(q Question) (Answer, bool) {
	s := r.serviceOf(q.To)
	if s == nil || !s.known || len(s.endpoints) > 0 || s.has == nil {
		return Answer{}, false
	}
	a := Answer{fmt.Sprintf("Service %s has no endpoints", s), fmt.Sprintf("see which pods the selector of Service %s selects, and whether they run and are ready", s), []evidence.Quote{*s.has}}
	if s.source != nil && *s.source != *s.has {
		a.Quotes = append(a.Quotes, *s.source)
	}
	if other := r.nearly(s); other != nil {
		a.Sentence = fmt.Sprintf("the selector of Service %s matches no pod", s)
		a.Remedy = fmt.Sprintf("make the selector of Service %s and the labels of its pods agree: pod %s has others", s, other.name)
		a.Quotes = append(a.Quotes, other.quote)
	}
	if s.unready > 0 {
		a.Sentence, a.Remedy = fmt.Sprintf("no pod of Service %s is ready", s), fmt.Sprintf("see why the pods of Service %s are not ready", s)
		if p := r.unreadyOf(s); p != "" {
			a.Sentence, a.Remedy = fmt.Sprintf("%s: %s", a.Sentence, p), fmt.Sprintf("see why pod %s is not ready; the calls then succeed by themselves", s.pods[0])
		}
	}
	return a, true
}

// unreadyOf names the pods that are not ready behind a Service, and how a table shows the first of them; empty: its endpoints
// do not name them.
func (r *Record) unreadyOf(s *service) string {
	if len(s.pods) == 0 {
		return ""
	}
	names := strings.Join(s.pods[:min(len(s.pods), 3)], ", ")
	for _, line := range r.rows {
		if line.name == s.pods[0] && !line.ready && (line.namespace == "" || line.namespace == s.namespace) {
			return fmt.Sprintf("%s (%s, %s)", names, line.share, line.status)
		}
	}
	return names
}

// nearly returns a pod of the Service's namespace that has one of the labels of its selector, and not all, if no pod has all.
func (r *Record) nearly(s *service) (found *row) {
	for i, p := range r.rows {
		if p.labels == nil || p.namespace != "" && p.namespace != s.namespace || len(s.selector) == 0 {
			continue
		}
		same := 0
		for k, v := range s.selector {
			if p.labels[k] == v {
				same++
			}
		}
		if same == len(s.selector) {
			return nil
		}
		if same > 0 {
			found = &r.rows[i]
		}
	}
	return found
}

// notReady finds a destination of whose pods a table shows that none is ready.
func (r *Record) notReady(q Question) (Answer, bool) {
	for _, name := range r.namesOf(q.To) {
		if p, is := r.noneReady(name); is {
			return Answer{fmt.Sprintf("no pod of %s is ready: %s is %s", name, p.name, p.status), fmt.Sprintf("see why pod %s is %s", p.name, p.status), []evidence.Quote{p.quote}}, true
		}
	}
	return Answer{}, false
}

// noneReady returns a pod of a workload with a name of which a table shows pods, and none that is ready.
func (r *Record) noneReady(name string) (found row, is bool) {
	for _, p := range r.rows {
		if !means(p.name, name) {
			continue
		}
		if p.ready {
			return row{}, false
		}
		found, is = p, true
	}
	return found, is
}

func (r *Record) noSuchPort(q Question) (Answer, bool) {
	s := r.serviceOf(q.To)
	if s == nil || s.headless || len(s.ports) == 0 || s.source == nil || q.To.Port == 0 {
		return Answer{}, false
	}
	if _, has := s.ports[q.To.Port]; has {
		return Answer{}, false
	}
	var ports []string
	for _, p := range slices.Sorted(maps.Keys(s.ports)) {
		ports = append(ports, portOf(p))
	}
	all := strings.Join(ports, ", ")
	return Answer{fmt.Sprintf("Service %s has no port %d (it has %s)", s, q.To.Port, all), fmt.Sprintf("call port %s, or add port %d to Service %s", all, q.To.Port, s), []evidence.Quote{*s.source}}, true
}

// at matches an address with its port in what a proxy called.
var at = regexp.MustCompile(`((?:\d{1,3}\.){3}\d{1,3}):(\d{1,5})\b`)

// reached returns the ports of pods at which a call ends, the name of their Service, and where that is said.
func (r *Record) reached(q Question) (ports []int, name string, says *evidence.Quote) {
	s := r.serviceOf(q.To)
	if s == nil {
		return nil, "", nil
	}
	name = s.name
	if m := at.FindStringSubmatch(q.Via); m != nil && !slices.Contains(s.ips, m[1]) {
		return []int{int(port(m[2]))}, name, s.has
	}
	if target := s.ports[q.To.Port]; target != "" {
		if n, err := strconv.Atoi(target); err == nil {
			return []int{n}, name, s.source
		}
	}
	for _, e := range s.endpoints {
		if e.Port() > 0 && !slices.Contains(ports, int(e.Port())) {
			ports = append(ports, int(e.Port()))
		}
	}
	if len(s.ports) > 1 && len(ports) > 1 { // which of them belongs to the port that was called is not known
		return nil, "", nil
	}
	return ports, name, s.has
}

func (r *Record) listensElsewhere(q Question) (Answer, bool) {
	ports, name, says := r.reached(q)
	if len(ports) == 0 {
		return Answer{}, false
	}
	var of []int
	var line evidence.Quote
	local := false
	for _, l := range r.listensOf(name) {
		for _, p := range l.ports {
			if slices.Contains(ports, p) && !l.loopback {
				return Answer{}, false
			}
			local = local || slices.Contains(ports, p)
			of, line = append(of, p), l.quote
		}
	}
	if len(of) == 0 {
		return Answer{}, false
	}
	a := Answer{Quotes: []evidence.Quote{line}}
	if says != nil {
		a.Quotes = append(a.Quotes, *says)
	}
	if local {
		a.Sentence, a.Remedy = fmt.Sprintf("%s listens on the loopback address of its pod alone", name), fmt.Sprintf("have %s listen on all addresses (0.0.0.0)", name)
		return a, true
	}
	slices.Sort(of)
	listed := strings.Trim(fmt.Sprint(slices.Compact(of)), "[]")
	a.Sentence = fmt.Sprintf("its Service leads to port %d, and %s listens on %s", ports[0], name, listed)
	a.Remedy = fmt.Sprintf("correct the targetPort of Service %s, or the port at which %s listens (%s)", name, name, listed)
	return a, true
}

func (r *Record) listensLater(q Question) (Answer, bool) {
	for _, name := range r.namesOf(q.To) {
		for _, l := range r.listensOf(name) {
			if least, _, ok := l.quote.At.Since(q.Last); ok && least >= 0 && q.Last.Compare(l.quote.At) == evidence.Before && least < apart {
				return Answer{fmt.Sprintf("%s listened only later", name), fmt.Sprintf("let the caller try again until %s listens", name), []evidence.Quote{l.quote}}, true
			}
		}
	}
	return Answer{}, false
}

func (r *Record) hasEnded(q Question) (Answer, bool) {
	for _, name := range r.namesOf(q.To) {
		told, is := r.endedOf(name)
		if !is {
			continue
		}
		if least, most, ok := q.Last.Since(told.Quotes[0].At); ok && (least > apart || most < -apart) {
			continue
		}
		return Answer{fmt.Sprintf("%s does not run, as its own log says: %s", name, told.Text), fmt.Sprintf("end first what the log of %s says", name), told.Quotes}, true
	}
	return Answer{}, false
}

// namesOf returns the names that a program may have to which a call went: of its Service, or the first part of its host.
func (r *Record) namesOf(to doctor.Destination) (out []string) {
	if s := r.serviceOf(to); s != nil {
		return []string{s.name}
	}
	for _, host := range []string{to.Host, to.Name} {
		if first, _, _ := strings.Cut(host, "."); strings.Trim(first, "0123456789:") != "" && !strings.Contains(first, ":") {
			out = append(out, first)
		}
	}
	return out
}

// isForbiddenToProxy is isForbidden for a call that the proxy made in vain until it gave up, as its log says.
func (r *Record) isForbiddenToProxy(q Question) (Answer, bool) {
	if !q.InVain {
		return Answer{}, false
	}
	return r.isForbidden(q)
}

func (r *Record) isForbidden(q Question) (Answer, bool) {
	p, is := r.forbids(q.To, q.Via)
	if !is {
		return Answer{}, false
	}
	return Answer{
		fmt.Sprintf("NetworkPolicy %s does not allow it", p.name), fmt.Sprintf("allow the egress to %s in a NetworkPolicy that selects the pod, as %s does", q.To, p.name),
		[]evidence.Quote{{Source: p.from, Text: fmt.Sprintf("NetworkPolicy %s selects the pod and limits its egress", p.name)}},
	}, true
}

func (r *Record) noDNS(q Question) (Answer, bool) {
	p, is := r.forbids(doctor.Destination{Network: doctor.UDP, Port: dns}, "")
	if !is || !calls.NoAnswer(q.Said) {
		return Answer{}, false
	}
	return Answer{
		fmt.Sprintf("NetworkPolicy %s does not allow queries of DNS", p.name), fmt.Sprintf("allow the egress to port %d, by UDP and TCP, in a NetworkPolicy that selects the pod, as %s does", dns, p.name),
		[]evidence.Quote{{Source: p.from, Text: fmt.Sprintf("NetworkPolicy %s selects the pod and limits its egress", p.name)}},
	}, true
}

// inOtherNamespace finds a Service of the name that does not resolve in another namespace than the name has, or the pod.
func (r *Record) inOtherNamespace(q Question) (Answer, bool) {
	parts := strings.Split(strings.TrimSuffix(strings.ToLower(q.To.Host), "."), ".")
	in, says := r.pod.Object.Namespace, "and the name has none"
	switch {
	case len(parts) > 2 && parts[2] == "svc":
		in, says = parts[1], "not "+parts[1]
	case len(parts) == 2 && parts[1] == r.pod.Object.Namespace:
		in, says = parts[1], "not "+parts[1]
	case len(parts) > 1:
		return Answer{}, false
	}
	var found *service
	var said *evidence.Quote
	for _, s := range r.services {
		of := s.has
		if s.source != nil {
			of = s.source
		}
		if s.name != parts[0] || s.namespace == "" || of == nil {
			continue
		}
		if s.namespace == in || found != nil { // the name is right, or which one is meant is not known
			return Answer{}, false
		}
		found, said = s, of
	}
	if found == nil {
		return Answer{}, false
	}
	return Answer{fmt.Sprintf("Service %s is in namespace %s, %s", found.name, found.namespace, says), fmt.Sprintf("call %s.%s", found.name, found.namespace), []evidence.Quote{*said}}, true
}
