// Package calls finds failed calls in the logs of a pod's containers: where each went, how it failed, when, and whether
// it went to the pod's proxy. The wordings of clients and libraries are tables (wordings.go).
package calls

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"regexp"
	"slices"
	"sync"
	"time"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/doctor"
	"outrider.dev/internal/doctor/evidence"
)

// A Failure is the kind of error that a failed call had, according to the caller's log.
type Failure string

// The failures.
const (
	Refused     Failure = "refused"     // by a kernel, the caller's or the destination's: ECONNREFUSED
	Reset       Failure = "reset"       // the connection was established, and then reset or closed
	TimedOut    Failure = "timed out"   // no answer
	Unresolved  Failure = "unresolved"  // a name had no address
	Unreachable Failure = "unreachable" // no route
	Upstream    Failure = "upstream"    // a proxy responds that it could not reach the destination
	Ended       Failure = "ended"       // a proxy responds that the destination closed the connection before it answered
	Unavailable Failure = "unavailable" // a proxy or the destination responds with status 502, 503 or 504
)

// A Call is a failed call in a container's log.
type Call struct {
	Failure   Failure
	Container string
	Run       int // -1: not known
	To        doctor.Destination
	Presumed  bool            // the failure does not name the destination; it is the only one that the log named before, or the environment
	Named     *evidence.Quote // the variable that names a presumed destination; nil: the log does
	At        evidence.Time
	Likely    evidence.Time // same as At, but computed with the likely zone if the log's zone is not known
	Last      evidence.Time // the likely time of the last similar line
	Quote     evidence.Quote
	More      int  // number of similar lines after the first one
	Undated   bool // the line has no time of its own
	line      int  // the number of the last similar line
}

func (c Call) String() string {
	times := ""
	if c.More > 0 {
		times = fmt.Sprintf(", %d times", c.More+1)
	}
	if !c.To.Known() {
		return fmt.Sprintf("a call to an unknown destination: %s%s", c.Failure, times)
	}
	return fmt.Sprintf("a call to %s: %s%s", c.To, c.Failure, times)
}

// Calls are the failed calls of a pod, in the order of its containers and their logs.
type Calls []Call

// Of returns the failed calls of one run of a container that failed in one of these ways; all ways without one.
func (c Calls) Of(container string, run int, ways ...Failure) []Call {
	return slices.DeleteFunc(c.By(container, ways...), func(y Call) bool { return y.Run != run })
}

// By returns the failed calls of all runs of a container that failed in one of these ways; all ways without one.
func (c Calls) By(container string, ways ...Failure) (out []Call) {
	for _, y := range c {
		if y.Container == container && (len(ways) == 0 || slices.Contains(ways, y.Failure)) {
			out = append(out, y)
		}
	}
	return out
}

// Quotes returns the lines of the failed calls.
func (c Calls) Quotes() (out []evidence.Quote) {
	for _, y := range c {
		out = append(out, y.Quote)
	}
	return out
}

// A Reading has what the logs of a pod's containers say about calls.
type Reading struct {
	Calls     Calls
	Successes []Success
	Listens   []Listen
	Asked     []Asked // the last refusal for each port
	Tails     []Tail
	Reasons   []evidence.Told    // what logs say about the ends of their runs
	Unread    []evidence.Missing // logs that could not be read to their end
}

// An Asked is a line in which a helper says that a port of its own pod, where it asks whether another container is up,
// refused it.
type Asked struct {
	Container string
	Run       int
	Port      uint16
	Quote     evidence.Quote
}

// A Success is a line that says that something worked.
type Success struct {
	Container string
	Run       int
	At        evidence.Time // by the likely zone of the log
	Quote     evidence.Quote
}

// A Tail has the last lines of a log.
type Tail struct {
	Container string
	Run       int
	Lines     []evidence.Quote
}

// search looks for all that a diagnosis needs of the logs of applications.
var search = sync.OnceValue(func() *evidence.Searcher {
	return evidence.Search(append(slices.Clone(wordings), successes, addresses, evidence.Ending, Listening))
})

// ofListening looks for where a proxy listens.
var ofListening = sync.OnceValue(func() *evidence.Searcher { return evidence.Search([]evidence.Pattern{Listening}) })

// proxyListens adds where the proxy says that it listens, if a container called its own pod in vain: it may have called the
// proxy, as programs do that get their configuration and their secrets of one.
func (r *Reading) proxyListens(ctx context.Context, proxy *evidence.Container, secrets bool) error {
	if proxy == nil || !slices.ContainsFunc(r.Calls, func(y Call) bool { return y.To.Loopback() && y.To.Port > 0 }) {
		return nil
	}
	for _, l := range proxy.Logs {
		found, _, _ := l.ScanFor(ctx, ofListening()) // a log that cannot be read is noted where the proxy's logs are read
		for _, h := range found {
			ports, local := PortsIn(h.Line.Text)
			r.Listens = append(r.Listens, Listen{proxy.Name, l.Run, ports, pathOf(h.Line.Text), local, l.Quote(h.Line, secrets)})
		}
	}
	return ctx.Err()
}

// Read scans the logs of all containers; that of the proxy only for where it listens. It fails only if ctx ends.
func Read(ctx context.Context, p *evidence.Pod, proxy *evidence.Container, secrets bool) (out Reading, err error) {
	for _, c := range p.Containers {
		if c == proxy {
			continue
		}
		for _, l := range c.Logs {
			found, last, err := l.ScanFor(ctx, search())
			if ctx.Err() != nil {
				return Reading{}, ctx.Err()
			}
			if err != nil {
				out.Unread = append(out.Unread, evidence.Missing{Kind: l.Source.Kind, What: l.Source.String(), Why: err.Error()})
			}
			if _, assumed := l.InLikelyZone(); len(found) > 0 && assumed != nil {
				for i := range last {
					last[i].Time = last[i].Likely
				}
			}
			out.Calls = out.Calls.add(p, c, l, found, last, secrets)
			tail := Tail{Container: c.Name, Run: l.Run}
			for _, line := range last {
				tail.Lines = append(tail.Lines, l.Quote(line, secrets))
			}
			out.Tails = append(out.Tails, tail)
			if told, is := l.Told(c.Name, found, last, secrets); is {
				out.Reasons = append(out.Reasons, told)
			}
			for _, h := range found {
				switch h.Pattern {
				case successes.Name:
					out.Successes = append(out.Successes, Success{c.Name, l.Run, timeOf(p, c, l, h.Line.Likely), l.Quote(h.Line, secrets)})
				case string(Refused):
					if d := destinationOf(h); d.Loopback() && isProbe.Match(h.Line.Text) {
						out.Asked = slices.DeleteFunc(out.Asked, func(a Asked) bool { return a.Container == c.Name && a.Run == l.Run && a.Port == d.Port })
						out.Asked = append(out.Asked, Asked{c.Name, l.Run, d.Port, l.Quote(h.Line, secrets)})
					}
				case Listening.Name:
					ports, local := PortsIn(h.Line.Text)
					out.Listens = append(out.Listens, Listen{c.Name, l.Run, ports, pathOf(h.Line.Text), local, l.Quote(h.Line, secrets)})
				}
			}
		}
	}
	return out, out.proxyListens(ctx, proxy, secrets)
}

// add adds the failed calls of a run. Calls with the same failure and destination become one, which
// has the first line and the number of the other lines.
func (c Calls) add(p *evidence.Pod, by *evidence.Container, l *evidence.Log, found []evidence.Hit, last []evidence.Line, secrets bool) Calls {
	type key struct {
		failure Failure
		to      doctor.Destination
	}
	first := map[key]int{}
	off, tests := isOff(l, last), ofTests(last)
	awaited, _ := fromCommand(p, by.Name, secrets)
	for _, h := range found {
		if !slices.ContainsFunc(wordings, func(w evidence.Pattern) bool { return w.Name == h.Pattern }) || bytes.Contains(h.Line.Text, []byte(contract.GateSays)) {
			continue // a gate wrote this line: it polls a container that does not listen yet
		}
		if isOfOther(h.Line.Text, p.Object.Name) || isStored(placed(h.Line, timeOf(p, by, l, h.Line.Time))) || belongs(h) || !off && l.Before(h.Line.Likely) || tests && isTested(h, last) {
			continue
		}
		k, presumed := key{Failure(h.Pattern), nameIt(destinationOf(h), awaited)}, false
		if k.to.Loopback() && slices.Contains(healthPorts, k.to.Port) {
			continue // a loop that waits for a proxy, as many images have
		}
		if k.to.Loopback() && isProbe.Match(h.Line.Text) || isPacket.Match(h.Line.Text) && !named(h.Line.Text).Known() {
			continue
		}
		var before *Call // of this run
		if n := len(c); n > 0 && c[n-1].Container == by.Name && c[n-1].Run == l.Run {
			before = &c[n-1]
		}
		if before != nil && before.Failure == k.failure && before.sameAs(k.to, h.Line.Number) {
			first[k] = len(c) - 1
			continue
		}
		if before != nil && before.saidSo(k.failure, k.to, h.Line) {
			before.Failure, before.Quote = k.failure, l.Quote(h.Line, secrets)
			first[k] = len(c) - 1
			continue
		}
		var variable *evidence.Quote
		if !k.to.Known() {
			if k.to, variable, presumed = presume(p, by.Name, found, h, secrets); k.to.Loopback() && throughProxy(k.failure) {
				k.to, variable, presumed = doctor.Destination{}, nil, false // the address of the proxy that answered
			}
		}
		at := momentOf(p, by, l, h, last, h.Line.Likely)
		if i, seen := first[k]; seen {
			c[i].More++
			c[i].Last, c[i].line = at, h.Line.Number
			continue
		}
		// The lines of a stack trace repeat its first line, or tell again what failed before that line.
		if before != nil && h.Line.Continues && before.Failure == k.failure {
			if !before.To.Known() || before.Presumed && !presumed {
				before.To, before.Presumed, before.Named = k.to, presumed, variable
			}
			if beginsAfter(h, before.line) {
				before.Last, before.line = at, h.Line.Number
			}
			continue
		}
		first[k] = len(c)
		c = append(c, Call{
			Failure: k.failure, Container: by.Name, Run: l.Run, To: k.to, Presumed: presumed, Named: variable, At: momentOf(p, by, l, h, last, h.Line.Time), Likely: at, Last: at,
			Quote: l.Quote(h.Line, secrets), Undated: h.Line.Continues || !h.Line.Time.Known(), line: h.Line.Number,
		})
	}
	return c
}

// beginsAfter reports whether the message that the line of a hit continues begins after a line; false, if its beginning is
// too far away to be known.
func beginsAfter(h evidence.Hit, line int) bool {
	for _, head := range slices.Backward(h.Before) {
		if !head.Continues {
			return head.Number > line
		}
	}
	return false
}

var (
	// isProbe matches lines of programs that ask whether another container is up, as Knative's queue-proxy does.
	isProbe = regexp.MustCompile(`(?i)\bprob(?:e|er|ing) (?:error|failed|failure)|aggressive probe`)
	// isPacket matches lines of clients that send packets by UDP, whose loss ends no program.
	isPacket = regexp.MustCompile(`(?i)statsd|submitting packet|\bsendto\b|datagram`)
)

// sameAs reports whether a failed call in the next lines is this one, told again, and completes its destination by the
// one that is told there: curl -v and shells tell an address in one line and a name in another one, or neither first.
// A call without a destination is presumed to be the one of the next lines that have one.
func (c *Call) sameAs(to doctor.Destination, line int) bool {
	const few = 6 // npm has the parts of an error in a line each
	away := line - c.Quote.Source.Line
	switch {
	case !to.Known() || away > few:
		return false
	case !c.To.Known() || c.Presumed:
		c.To, c.Presumed, c.Named = to, away > 1, nil
		return true
	case away == 1 && c.To.Name == "" && to.Name == "" && c.To.Port == to.Port && isAddress(c.To.Host) && !isAddress(to.Host) && !c.To.Loopback() && !to.Loopback():
		c.To.Name = to.Host
		return true
	}
	return false
}

// saidSo reports whether a refusal is the cause of a call that a line just before says to have timed out: the stack trace
// of the same failure has it. Wrappers call any failure to connect a time-out, as Spring's "Connect Timeout Exception".
func (c *Call) saidSo(f Failure, to doctor.Destination, line evidence.Line) bool {
	const few = 12 // lines from the wrapper's own to the causes of the trace
	least, most, ok := line.Likely.Since(c.Last)
	return c.Failure == TimedOut && f == Refused && c.More == 0 && to.Known() && to == c.To && line.Continues && line.Number-c.Quote.Source.Line <= few && ok && least <= time.Second && most <= 2*time.Second
}

// isOff reports whether a whole log lies long before its run by its last times, since a clock is off or it is of another
// run. The only line with a time among others may have that of something else, which it quotes.
func isOff(l *evidence.Log, last []evidence.Line) bool {
	timed := slices.DeleteFunc(slices.Clone(last), func(line evidence.Line) bool { return line.Continues || !line.Time.Known() })
	return len(timed) > 0 && l.Before(timed[len(timed)-1].Time) && (len(timed) > 1 || len(last) == 1)
}

// healthPorts are the ports at which proxies of meshes say whether they are ready: Istio and Outrider,
// Envoy's administration (also 9901, 19000), Linkerd (4191), Consul (20000), Dapr's outbound health is on its API's
// port.
var healthPorts = []uint16{contract.AdminPort, contract.StatusPort, contract.ReadinessPort, 9901, 19000, 4191, 20000}

// presume returns the destination of a call of which the log names none, if only one is likely: the one for which its
// command waits, the address that the environment has for such a server, the only one that the log named before, or the only one of the environment.
func presume(p *evidence.Pod, container string, found []evidence.Hit, h evidence.Hit, secrets bool) (to doctor.Destination, variable *evidence.Quote, is bool) {
	if Failure(h.Pattern) == Unresolved {
		if to, is = nameNear(found, h.Line.Number); is {
			return to, nil, true
		}
	}
	if to, variable = fromCommand(p, container, secrets); variable != nil && Failure(h.Pattern) != Unresolved {
		return to, variable, true
	}
	kind, known := familyOf(h.Line.Text)
	if known {
		if to, variable = fromEnvironment(p, container, kind, secrets); variable != nil {
			return to, variable, true
		}
	}
	if to, is = namedBefore(found, h.Line.Number); is || known {
		return to, nil, is
	}
	to, variable = fromEnvironment(p, container, family{}, secrets)
	return to, variable, variable != nil
}

// nameNear returns the name in the last URL of the few lines before one, if they have no other name.
func nameNear(found []evidence.Hit, line int) (to doctor.Destination, is bool) {
	const few = 4
	for _, h := range found {
		if h.Pattern != addresses.Name || h.Line.Number >= line || h.Line.Number < line-few {
			continue
		}
		for _, e := range endpoints(escapes.Replace(string(h.Line.Text))) {
			name := cmp.Or(e.Name, e.Host)
			if e.Network != "" || isAddress(name) || name == "localhost" {
				continue
			}
			if to.Known() && to.Host != name {
				return doctor.Destination{}, false
			}
			to.Host = name
		}
	}
	return to, to.Known()
}

// throughProxy reports whether a failure is the answer of a proxy about its own call.
func throughProxy(f Failure) bool { return f == Upstream || f == Ended }

// namedBefore returns the destination of the URLs in the lines before one, if they have only one.
func namedBefore(found []evidence.Hit, line int) (to doctor.Destination, is bool) {
	for _, h := range found {
		if h.Pattern != addresses.Name || h.Line.Number >= line {
			continue
		}
		for _, e := range endpoints(escapes.Replace(string(h.Line.Text))) {
			if e.Port == 0 && e.Network == "" {
				continue
			}
			if to.Known() && to != e.Destination {
				return doctor.Destination{}, false
			}
			to = e.Destination
		}
	}
	return to, to.Known()
}

// Placed returns the call with its time by the likely zone of its log, and a quote that states this assumption. The
// quote is nil, and the call is the same, if the zone of the log is known or no zone is likely.
func Placed(p *evidence.Pod, c Call) (Call, *evidence.Quote) {
	l := p.Container(c.Container).Log(c.Run)
	if l == nil || !c.Likely.Known() || c.Likely == c.At {
		return c, nil
	}
	_, assumed := l.InLikelyZone()
	if assumed != nil {
		c.At = c.Likely
	}
	return c, assumed
}
