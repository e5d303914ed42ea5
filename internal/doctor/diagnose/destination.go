package diagnose

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"outrider.dev/internal/base/finding"
	"outrider.dev/internal/doctor"
	"outrider.dev/internal/doctor/diagnose/calls"
	"outrider.dev/internal/doctor/diagnose/capturescope"
	"outrider.dev/internal/doctor/diagnose/facts"
	"outrider.dev/internal/doctor/diagnose/result"
	"outrider.dev/internal/doctor/diagnose/witness"
	"outrider.dev/internal/doctor/evidence"
)

// dependencyDown finds calls that were refused by their destination, which may be a container of the same pod. Such
// a call either is not captured, or goes to a proxy that runs and reports the refusal.
func dependencyDown(s *subject) (out []result.Finding) {
	ended := len(podEnded(s)) > 0 // what fails after that is a consequence
	for _, app := range s.Work() {
		seen := map[doctor.Destination]bool{}
		for _, y := range s.Calls.By(app.Name) {
			if since, _ := s.SinceStop(y); seen[y.To] || s.GotOver(y) != nil || startsUp(s, y) || s.whileStopping(y) || since == yes && ended {
				continue
			}
			if f, found := s.atFarSide(app, y); found {
				seen[y.To] = true
				out = append(out, f)
			}
		}
	}
	return out
}

// whileStopping reports whether a call failed after its own program was told to stop: what stopped it is the cause.
func (s *subject) whileStopping(y calls.Call) bool {
	_, told := s.StoppedItself(y.Container, y.Run, y.Quote.Source)
	return told
}

// A farSide is a row of the table of causes at the destination of a call: the cause of calls of one failure and, unless
// a list of answers is empty, with one of these fates.
type farSide struct {
	failure         calls.Failure
	taken, listened []doctor.Answer
	when            func(*subject, calls.Call) bool // nil: always

	code       finding.Code                                // empty: dependency-down
	confidence result.Confidence                           // empty: likely
	sentence   string                                      // {app}: the caller, {to}: the destination; empty: {app} could not connect to {to}: it was not available
	disproof   string                                      // empty: an answer of {to} at that time
	remedy     string                                      // empty: check whether {to} runs, and let {app} retry until it does
	quotes     []quoted                                    // further evidence
	remedied   func(*subject, *result.Finding, calls.Call) // sets the remedy; nil: it is in the row
}

// atFarSide returns the finding for one call, and false if the destination is not the cause.
func (s *subject) atFarSide(app *evidence.Container, y calls.Call) (result.Finding, bool) {
	fate := s.FateOf(y)
	among := func(list []doctor.Answer, a doctor.Answer) bool {
		return len(list) == 0 || slices.Contains(list, a)
	}
	i := slices.IndexFunc(farSides, func(r farSide) bool {
		return r.failure == y.Failure && among(r.taken, fate.Taken) && among(r.listened, fate.Answer) && (r.when == nil || r.when(s, y))
	})
	if i < 0 {
		return result.Finding{}, false
	}
	helper, to, part := "", y.To.String(), ""
	if what := calls.WellKnown(y.To, s.Spec(app.Name), y.Quote.Text); what != "" {
		to = fmt.Sprintf("%s (%s)", to, what)
	}
	if s.Proxy != nil {
		part = ": the proxy is not involved"
	}
	if c := s.notYetUp(y); c != nil {
		helper = c.Name
	}
	said, attempt, tried := s.attempted(y)
	if tried && attempt.To != "" && (!y.To.Known() || y.To.Loopback()) {
		to = attempt.To
	}
	row, fill := farSides[i], strings.NewReplacer("{app}", app.Name, "{to}", to, "{part}", part, "{helper}", helper, "{status}", cmp.Or(unavailable.FindString(y.Quote.Text), "503"), "{ports}", s.listening(app.Name))
	f := result.Finding{
		Code: cmp.Or(row.code, "dependency-down"), Container: app.Name, Confidence: cmp.Or(row.confidence, result.Likely), Evidence: []evidence.Quote{y.Quote},
		Sentence: fill.Replace(cmp.Or(row.sentence, "{app} could not connect to {to}: it was not available")),
		Disproof: fill.Replace(cmp.Or(row.disproof, "an answer of {to} at that time")),
		Remedy:   finding.Remedy{Sentence: fill.Replace(cmp.Or(row.remedy, "check whether {to} runs, and let {app} retry until it does"))},
	}
	if y.Presumed && f.Confidence == result.Certain {
		f.Confidence = result.Likely
	}
	if y.Named != nil {
		f.Evidence = append(f.Evidence, *y.Named)
	}
	for _, q := range row.quotes {
		switch q {
		case whyNotTaken:
			if s.Proxy == nil && !capturescope.Ambient(s.Object) {
				continue // nothing is to be said about a proxy
			}
			f.Evidence = append(f.Evidence, s.Quote(evidence.Time{}, "%s", fate.WhyNot))
		case whetherListened:
			f.Evidence = append(f.Evidence, fate.Because...)
		case unreachedByProxy:
			if tried {
				f.Evidence = append(f.Evidence, said)
			}
		}
	}
	if (row.sentence == reachesNot || row.sentence == noEndpoint) && s.isWell(app) {
		f.Sentence += "; the pod itself is healthy"
	}
	if row.remedied != nil {
		row.remedied(s, &f, y)
	}
	if !s.beside.Explain(&f, to, witness.Question{Failure: y.Failure, To: y.To, Via: attempt.To, InVain: tried && attempt.Took >= gaveUp, At: y.At, Last: y.Last, Said: y.Quote.Text}) && f.Confidence == result.Possible {
		s.beside.About(&f, s.Object.Name, string(s.Object.UID))
	}
	return f, true
}

// unavailable matches the status of a response that a destination is not available.
var unavailable = regexp.MustCompile(`\b50[234]\b`)

// A quoted is a fact that a finding quotes.
type quoted int

// Facts about the fate of a call.
const (
	whyNotTaken quoted = iota
	whetherListened
	unreachedByProxy
)

// Sentences about the answer of a proxy. Source of noEndpoint: envoyproxy.io, access logs, flag UH.
const (
	reachesNot = "{app} called {to} through its proxy, which could not connect to it"
	noEndpoint = "{app} called {to} through its proxy, which knew no healthy endpoint of it"
)

// toNoEndpoint reports whether a call failed since the proxy knew no healthy endpoint of its destination, by the words of its
// answer or by its log.
func toNoEndpoint(s *subject, y calls.Call) bool {
	_, a, tried := s.attempted(y)
	return strings.Contains(strings.ToLower(y.Quote.Text), "no healthy upstream") || tried && a.None
}

// seeEndpoints sets the remedy for a destination without a healthy endpoint. Which of the reasons it is, the pod that calls
// cannot show.
func (s *subject) seeEndpoints(f *result.Finding, y calls.Call) {
	f.Disproof = "an endpoint that was ready at that time, as the control plane gave it to the proxy"
	f.Remedy = finding.Remedy{Sentence: "see whether the Service that was called has ready endpoints: pods that run, are ready and have its labels; with Istio, also the subsets and the outlierDetection of its DestinationRule"}
	if parts := strings.Split(cmp.Or(y.To.Name, y.To.Host), "."); len(parts) > 2 && parts[2] == "svc" {
		f.Remedy.Command = fmt.Sprintf("kubectl -n %s get endpointslices -l kubernetes.io/service-name=%s", parts[1], parts[0])
	}
}

// farSides has the causes; the first row that fits counts.
var farSides = []farSide{
	{failure: calls.Upstream, when: toNoEndpoint, confidence: result.Certain, sentence: noEndpoint, quotes: []quoted{unreachedByProxy}, remedied: (*subject).seeEndpoints},
	{failure: calls.Unavailable, when: toNoEndpoint, sentence: noEndpoint, quotes: []quoted{unreachedByProxy}, remedied: (*subject).seeEndpoints},
	{failure: calls.Reset, taken: []doctor.Answer{perhaps, yes}, when: toNoEndpoint, sentence: noEndpoint, quotes: []quoted{unreachedByProxy}, remedied: (*subject).seeEndpoints},
	{failure: calls.Upstream, confidence: result.Certain, sentence: reachesNot, quotes: []quoted{unreachedByProxy}},
	{
		failure:  calls.Ended,
		sentence: "{app} called {to} through its proxy; the connection was made, and ended before an answer",
		disproof: "that {to} ran at that time, and that its proxy accepts the certificate of this one",
		remedy:   "check whether {to} runs, and let {app} retry until it does; with TLS 1.3 a refused certificate looks the same: outrider check --proxy of the called pod says whether its proxy refused any",
	},
	{failure: calls.Unavailable, when: (*subject).unreached, sentence: reachesNot, quotes: []quoted{unreachedByProxy}},
	{failure: calls.Unavailable, when: (*subject).endedBadly, sentence: "{app} ended after {to} answered with status {status}"}, // an occasional 503 is usual
	{failure: calls.Reset, taken: []doctor.Answer{perhaps, yes}, when: (*subject).unreached, sentence: reachesNot, quotes: []quoted{unreachedByProxy}},
	{
		failure: calls.Refused, when: toOuterSocket,
		sentence: "{app} was refused at {to}: that socket lies in a volume that no other container mounts, so another pod or the node itself serves it",
		disproof: "a process of {app} itself that listens there",
		remedied: (*subject).outerSocket,
	},
	{
		failure: calls.Refused, when: toWrongPort, code: "sibling-down", confidence: result.Certain,
		sentence: "{app} called its own pod at {to}, where no container listens ({ports})",
		disproof: "a container that listens there",
		remedy:   "correct the port that {app} calls",
	},
	{
		failure: calls.Refused, when: toSibling, code: "sibling-down", confidence: result.Certain,
		sentence: "{app} called its own pod at {to}, where no container listened",
		remedied: (*subject).sibling,
	},
	{
		failure: calls.Refused, when: toLoopback, code: "sibling-down", confidence: result.Certain,
		sentence: "{app} called its own pod at {to}, and no other container is there that could listen",
		disproof: "a process of {app} itself that listens there",
		remedy:   "correct the address that {app} calls: it looks like a default, for a server that is not here",
	},
	{
		failure: calls.TimedOut, when: beforeSibling, code: "sibling-down",
		sentence: "{app} called its own pod at {to} before a container listened there, and got no answer",
		remedied: (*subject).sibling,
	},
	{failure: calls.Refused, when: isAmbient, confidence: result.Possible, quotes: []quoted{whyNotTaken}},
	{
		failure: calls.Refused, taken: []doctor.Answer{no}, when: toHelperNotUp, code: "sibling-down",
		sentence: "{app} was refused, most likely by {helper}, which had not begun to listen",
		disproof: "the address that {app} called",
		remedied: (*subject).helperFirst,
	},
	{
		failure: calls.Refused, taken: []doctor.Answer{no}, when: toNoSibling, quotes: []quoted{whyNotTaken},
		sentence: "{app} was refused by its destination, which its log does not name{part}",
		remedy:   "see what {app} called then, and whether that runs",
	},
	{
		failure: calls.Refused, taken: []doctor.Answer{no}, when: isUnnamed, confidence: result.Possible, quotes: []quoted{whyNotTaken},
		sentence: "{app} was refused, and its log does not say by whom",
		remedy:   "see what {app} called then",
	},
	{
		failure: calls.Refused, taken: []doctor.Answer{no}, when: toAPI, quotes: []quoted{whyNotTaken},
		sentence: "{app} was refused at {to}{part}",
		remedy:   "check whether {to} runs, and whether the pod's node reaches Services: kube-proxy, or what takes its place, must run there; let {app} retry until both do",
	},
	{
		failure: calls.Refused, taken: []doctor.Answer{no}, when: toCluster, confidence: result.Certain, quotes: []quoted{whyNotTaken},
		sentence: "{app} was refused at {to}{part}",
		remedy:   "check whether {to} runs, and has endpoints if it is a Service; a NetworkPolicy may reject calls, too; let {app} retry until it does",
	},
	{
		failure: calls.Refused, taken: []doctor.Answer{no}, confidence: result.Certain, quotes: []quoted{whyNotTaken},
		sentence: "{app} was refused by {to} itself{part}",
	},
	{
		failure: calls.Refused, taken: []doctor.Answer{yes}, listened: []doctor.Answer{yes}, code: "capture-not-in-place", confidence: result.Possible, quotes: []quoted{whetherListened},
		sentence: "{app} was refused although its proxy listened: its call did not go there",
		disproof: "that the capture's rules are in the pod's network namespace",
		remedy:   "check whether the rules of the capture are there",
	},
	{failure: calls.Refused, taken: []doctor.Answer{perhaps}, listened: []doctor.Answer{yes}, quotes: []quoted{whetherListened, whyNotTaken}},
	{failure: calls.Refused, taken: []doctor.Answer{perhaps}, listened: []doctor.Answer{perhaps}, confidence: result.Possible, quotes: []quoted{whetherListened, whyNotTaken}},
	{failure: calls.TimedOut, listened: []doctor.Answer{yes}, when: isNamed, sentence: noAnswer, remedy: findDrop},
	{failure: calls.TimedOut, listened: []doctor.Answer{perhaps}, taken: []doctor.Answer{no}, when: isNamed, sentence: noAnswer, remedy: findDrop},
	{failure: calls.TimedOut, listened: []doctor.Answer{perhaps}, when: isNamed, confidence: result.Possible, sentence: noAnswer, remedy: findDrop},
	{failure: calls.Unreachable, listened: []doctor.Answer{yes}, sentence: noAnswer, remedy: findDrop},
	{failure: calls.Unreachable, taken: []doctor.Answer{no}, sentence: noAnswer, remedy: findDrop},
	{failure: calls.Unreachable, confidence: result.Possible, sentence: noAnswer, remedy: findDrop},
}

const (
	noAnswer = "{app} got no answer from {to}"
	findDrop = "find out where the packets are lost: call {to} from the node and from another pod, and see the NetworkPolicies that select this pod, the firewalls and the routes between; only if all of them let it through, whether {to} runs"
)

func toSibling(s *subject, y calls.Call) bool {
	return y.To.Loopback() && len(s.Siblings(y.Container)) > 0
}

// toOuterSocket reports whether a call went to a unix socket that nothing of the pod serves.
func toOuterSocket(s *subject, y calls.Call) bool {
	_, is := s.ServedOutside(y.Container, y.To.Host)
	return y.To.Network == doctor.Unix && is && s.Listener(y) == nil
}

// outerSocket sets the remedy for a unix socket that another pod or the node serves. A call that is refused has found the
// file of the socket: its path is right.
func (s *subject) outerSocket(f *result.Finding, y calls.Call) {
	volume, _ := s.ServedOutside(y.Container, y.To.Host)
	where := "on the pod's node"
	if s.Object.Spec.NodeName != "" {
		where = "on node " + s.Object.Spec.NodeName
	}
	f.Evidence = append(f.Evidence, s.Quote(evidence.Time{}, "%s lies in volume %s, of %s alone", y.To.Host, volume, y.Container))
	f.Remedy.Sentence = fmt.Sprintf("see whether the program that serves volume %s runs %s (most often a pod of a DaemonSet there, or a CSI driver), and its log", volume, where)
	if !noFile.MatchString(y.Quote.Text) {
		f.Sentence += "; the file is there, and its server is not"
		f.Remedy.Sentence += "; if that server made its folder anew, restart this pod"
	}
}

// noFile matches what a call says of a unix socket whose file does not exist.
var noFile = regexp.MustCompile(`(?i)no such file|not found|ENOENT`)

// toWrongPort reports whether a call went to a port of the pod itself that none of the siblings declares, although all
// declare ports and had long started: another one is meant.
func toWrongPort(s *subject, y calls.Call) bool {
	all := s.Siblings(y.Container)
	declared := len(all) > 0 && !slices.ContainsFunc(all, func(c *evidence.Container) bool { return s.Spec(c.Name) == nil || len(s.Spec(c.Name).Ports) == 0 })
	return y.To.Loopback() && y.To.Port > 0 && declared && s.Listener(y) == nil && s.MayListen(y) == nil
}

// toHelperNotUp reports whether the pod has a helper that was not up yet, which an unnamed destination may be.
func toHelperNotUp(s *subject, y calls.Call) bool { return !y.To.Known() && s.notYetUp(y) != nil }

// toNoSibling reports whether an unnamed destination cannot be another container of the pod.
func toNoSibling(s *subject, y calls.Call) bool {
	return !y.To.Known() && len(s.Siblings(y.Container)) == 0
}

// toAPI reports whether a call went to the Service of the API server, which the node answers if it has no endpoint there.
func toAPI(s *subject, y calls.Call) bool {
	return y.To.Port == 443 && strings.Contains(calls.WellKnown(y.To, s.Spec(y.Container), y.Quote.Text), calls.APIServer)
}

// toCluster reports whether a call went to an address or a name of the cluster's network, where a Service without endpoints,
// or a policy, refuses a call as well as the destination does.
func toCluster(_ *subject, y calls.Call) bool { return y.To.Private() }
func isUnnamed(_ *subject, y calls.Call) bool { return !y.To.Known() }

func toLoopback(_ *subject, y calls.Call) bool { return y.To.Loopback() }
func isNamed(_ *subject, y calls.Call) bool    { return y.To.Known() }

// isWell reports whether a pod is ready, and a container of it runs since its first start.
func (s *subject) isWell(c *evidence.Container) bool {
	last := c.Last()
	return s.Condition(corev1.PodReady, evidence.APIClock).Known() && last != nil && last.Running && last.Number == 0 && !s.Deleted()
}

// endedBadly reports whether the run that made a call failed.
func (s *subject) endedBadly(y calls.Call) bool {
	r := s.Container(y.Container).Run(y.Run)
	return r != nil && r.Exit != nil && *r.Exit != 0 && (r.Signal == 0 || !s.HasEvent(y.Container, "Killing", "probe"))
}

// around is the time around a failed call in which the proxy's log may say why.
const around = 15 * time.Second

// gaveUp is the least time after which a connection that a proxy did not make was not refused, but not answered.
const gaveUp = 2 * time.Second

// attempted returns the line of the proxy's log about a connection that it did not make for a call.
func (s *subject) attempted(y calls.Call) (evidence.Quote, facts.Attempt, bool) {
	from, to := y.At, y.Last
	from.At, to.At = from.At.Add(-around), to.At.Add(around)
	return s.Said.Unreached(from, to, func(a facts.Attempt) bool {
		return !y.To.Known() || y.To.Loopback() || a.To == "" || y.To.Port == 0 || strings.Contains(a.To+")", fmt.Sprintf(":%d)", y.To.Port))
	})
}

// unreached reports whether the proxy's log says at the time of a call that it did not reach a destination.
func (s *subject) unreached(y calls.Call) bool {
	_, _, tried := s.attempted(y)
	return tried
}

// nameNotResolved finds names that did not resolve to an address.
func nameNotResolved(s *subject) (out []result.Finding) {
	for _, app := range s.Work() {
		for _, y := range s.Calls.By(app.Name, calls.Unresolved) {
			if s.GotOver(y) != nil || s.whileStopping(y) {
				continue
			}
			what, name := "the name "+y.To.Host, y.To.Host
			if name == "" {
				what, name = "a name", "the name that it asked for"
			}
			f := result.Finding{
				Code: "name-not-resolved", Container: app.Name, Confidence: result.Likely, Evidence: []evidence.Quote{y.Quote},
				Sentence: fmt.Sprintf("%s could not resolve %s", app.Name, what),
				Disproof: fmt.Sprintf("an answer of the cluster's DNS for %s at that time", name),
				Remedy:   finding.Remedy{Sentence: "check whether the name is correct, with its namespace, and whether the cluster's DNS answers", Command: s.Kubectl("get service")},
			}
			if y.Named != nil {
				f.Evidence = append(f.Evidence, *y.Named)
			}
			if well := s.EffectOf(y).WellSince; well != nil || calls.NoAnswer(y.Quote.Text) {
				f.Remedy = finding.Remedy{Sentence: fmt.Sprintf("check whether the cluster's DNS answered then, and could be reached; let %s retry", app.Name), Command: "kubectl -n kube-system get pods -l k8s-app=kube-dns -o wide"}
				if well != nil {
					f.Evidence = append(f.Evidence, *well)
				}
			}
			s.beside.Explain(&f, name, witness.Question{Failure: y.Failure, To: y.To, At: y.At, Last: y.Last, Said: y.Quote.Text})
			out = append(out, f)
			break
		}
	}
	return out
}
