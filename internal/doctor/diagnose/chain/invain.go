package chain

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"

	"outrider.dev/internal/base/finding"
	"outrider.dev/internal/core/pod/podspec"
	"outrider.dev/internal/core/pod/shell"
	"outrider.dev/internal/doctor/diagnose/facts"
	"outrider.dev/internal/doctor/diagnose/result"
	"outrider.dev/internal/doctor/evidence"
	"outrider.dev/internal/doctor/evidence/why"
	"outrider.dev/startup"
)

// Programs by which scripts ask whether a name has an address, and whether a destination answers.
var (
	lookups = []string{"nslookup", "dig", "host", "getent"}
	dials   = []string{"nc", "ncat", "netcat", "telnet", "curl", "wget", "ping", "pg_isready", "mysqladmin", "redis-cli", "grpc_health_probe", "grpcurl", "wait-for-it", "wait-for-it.sh", "wait-for", "wait-for.sh", "wait4x"}
)

// WaitsUntil returns for what a container that runs waits, by its command, if that does nothing else: the words of a sentence
// that begin with "until"; empty: it may do something else.
func (c *Case) WaitsUntil(container string) string {
	of, spec := c.Container(container), c.Spec(container)
	if of == nil || spec == nil || of.Last() == nil || !of.Last().Running {
		return ""
	}
	var all []string
	for _, one := range shell.Awaits(podspec.BehindGate(spec)) {
		all = append(all, fmt.Sprintf("until %q succeeds", Short(c.Show([]byte(one)))))
	}
	return strings.Join(all, ", ")
}

// InVain finds init containers that have long waited for a name or for a destination: their commands do nothing else, and
// no log says how the calls fail. A pod with a proxy is left out, since that may keep the calls from their destination.
func (c *Case) InVain() (out []result.Finding) {
	for _, of := range c.Inits {
		run, spec := of.Last(), c.Spec(of.Name)
		if of.Kind != startup.Init || run == nil || !run.Running || spec == nil || c.Proxy != nil || len(c.Calls.Of(of.Name, run.Number)) > 0 {
			continue
		}
		lasts, known := c.Age()
		if run.Started.Known() {
			lasts = c.Now().Sub(run.Started.At)
		}
		awaited := shell.Awaits(podspec.BehindGate(spec))
		if !known || lasts < facts.Young || len(awaited) != 1 || shell.IsLocal(awaited[0]) {
			continue
		}
		out = append(out, c.inVain(of.Name, awaited[0], *run, lasts)...)
	}
	return append(out, c.saysItWaits()...)
}

// saysItWaits finds applications of a pod that should end whose last lines say nothing but that they wait, long after their
// start. A helper that runs on is not the cause then.
func (c *Case) saysItWaits() (out []result.Finding) {
	if !c.ShouldEnd() || c.Deleted() {
		return nil
	}
	for _, app := range c.Apps {
		run := app.Last()
		if run == nil || !run.Running {
			continue
		}
		last := c.LastLines(app.Name, run.Number, mostAlike)
		from := len(last)
		for from > 0 && why.Say(last[from-1].Text) == why.Say(last[len(last)-1].Text) {
			from--
		}
		if last = last[from:]; len(last) < QuotedLines || !saysWaits.MatchString(last[0].Text) {
			continue
		}
		lasts, known := c.Age()
		for _, since := range []evidence.Time{last[0].At, run.Started} { // the log may have a clock of its own
			if least, _, timed := last[len(last)-1].At.Since(since); timed && (!known || least > lasts) {
				lasts, known = least, true
			}
		}
		if !known || lasts < facts.Young {
			continue
		}
		says := Short(why.Say(last[0].Text))
		out = append(out, result.Finding{
			Code: "dependency-down", Container: app.Name, Confidence: result.Likely,
			Sentence: fmt.Sprintf("%s runs on, and waits: for %s or longer its log has said nothing else than: %s", app.Name, facts.Duration(lasts), says),
			Evidence: []evidence.Quote{c.Quote(run.Started, "%s started, and runs since", app.Name), last[0], last[len(last)-1]},
			Disproof: fmt.Sprintf("a line of %s about something else since then", app.Name),
			Remedy:   finding.Remedy{Sentence: fmt.Sprintf("see who holds, or should give, what %s waits for; to end another container of the pod does not help", app.Name)},
		})
	}
	return out
}

// mostAlike is the number of last lines of a log that are looked at.
const mostAlike = 64

// saysWaits matches a line of a program that waits for something outside it.
var saysWaits = regexp.MustCompile(`(?i)\bwait(?:s|ing)? (?:for|on|until)\b`)

// inVain returns the finding about a command for whose success a container has waited for some time; none if it is not known
// for what the command asks.
func (c *Case) inVain(container, command string, run evidence.Run, lasts time.Duration) []result.Finding {
	f := result.Finding{
		Container: container, Confidence: result.Likely,
		Sentence: fmt.Sprintf("%s has waited for %s until %q succeeds", container, facts.Duration(lasts), Short(c.Show([]byte(command)))),
		Evidence: append([]evidence.Quote{c.Quote(run.Started, "%s started, and runs; its command does nothing but wait", container)}, c.LastLines(container, run.Number, QuotedLines)...),
		Disproof: "a success of this command in the pod",
	}
	switch words := strings.Fields(command); {
	case slices.Contains(lookups, path.Base(words[0])):
		f.Code = "name-not-resolved"
		f.Remedy = finding.Remedy{Sentence: "check whether the name is correct, with its namespace, and whether the cluster's DNS answers", Command: c.Kubectl("get service")}
	case slices.Contains(dials, path.Base(words[0])):
		f.Code = "dependency-down"
		f.Remedy = finding.Remedy{Sentence: "check whether what it asks for exists, runs, and has endpoints if it is a Service, and whether a NetworkPolicy lets this pod reach it", Command: c.Kubectl("get service,endpointslices")}
	default:
		return nil
	}
	return []result.Finding{f}
}
