package chain

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"outrider.dev/internal/doctor/diagnose/facts"
	"outrider.dev/internal/doctor/diagnose/result"
	"outrider.dev/internal/doctor/evidence"
	"outrider.dev/startup"
)

// An Awaited tells what a proxy that is not ready waits for, by its own log.
type Awaited struct {
	By        string // the proxy
	Container string // the application that it waits for; empty: something else
	Port      int    // of that; 0: not known
	Quote     evidence.Quote
	Back      *evidence.Quote // says that the application waits for the proxy; nil: nothing does
}

var (
	awaitedPort = regexp.MustCompile(`(?i)\bport["']?[ :=]*["']?(\d{2,5})\b`)
	application = regexp.MustCompile(`(?i)\b(?:app|application|user container|workload)\b`)
	waits       = regexp.MustCompile(`(?i)\bwait|not (?:yet )?ready|\bhealthz?\b|\bretry|until\b`)
	ownPort     = regexp.MustCompile(`(?:127\.0\.0\.1|localhost|\[::1\])[:/](\d{2,5})\b`)
)

// Awaits returns what a run of the proxy waits for by the last line in which it says that it waits, and false if it says no
// such thing, or that this came.
func (c *Case) Awaits(run int) (a Awaited, is bool) {
	said := c.Said.In(run, facts.Waits)
	if len(said) == 0 || facts.Came(said[len(said)-1].Text) {
		return a, false
	}
	a = Awaited{By: c.Proxy.Name, Quote: said[len(said)-1]}
	if m := awaitedPort.FindStringSubmatch(a.Quote.Text); m != nil {
		a.Port, _ = strconv.Atoi(m[1])
		a.Container = c.Declares(a.Port, c.Proxy.Name)
	}
	if a.Container == "" && len(c.Apps) == 1 && application.MatchString(a.Quote.Text) {
		a.Container = c.Apps[0].Name
	}
	if a.Container == c.Proxy.Name {
		a.Container = ""
	}
	if a.Container != "" {
		a.Back = c.waitsForProxy(a.Container)
	}
	return a, true
}

// waitsForProxy returns what shows that an application waits for the proxy: its order, the last lines of its logs, or its
// command line; nil: nothing does.
func (c *Case) waitsForProxy(app string) (last *evidence.Quote) {
	if e, is := c.AwaitsProxy(app); is {
		return new(c.Quote(evidence.Time{}, "its order: %s", e.String()))
	}
	is := func(text string) bool {
		m := ownPort.FindStringSubmatch(text)
		if m == nil || !waits.MatchString(text) {
			return false
		}
		n, err := strconv.Atoi(m[1])
		return err == nil && facts.ListensFor(c.Proxy.Name, n) != ""
	}
	for _, t := range c.Tails {
		if i := slices.IndexFunc(t.Lines, func(q evidence.Quote) bool { return is(q.Text) }); i >= 0 && t.Container == app {
			return &t.Lines[i]
		}
	}
	if spec := c.Spec(app); spec != nil {
		if text := strings.Join(slices.Concat(spec.Command, spec.Args), " "); is(text) {
			return new(c.Quote(evidence.Time{}, "the command line of %s: %s", app, c.Show([]byte(text))))
		}
	}
	return nil
}

// Explain changes the finding about a proxy that is not ready to what it waits for.
func (a Awaited) Explain(f *result.Finding) {
	f.Evidence = append(f.Evidence, a.Quote)
	if a.Container == "" {
		f.Sentence = fmt.Sprintf("%s is not ready; by its log, it waits: %s", a.By, Short(a.Quote.Text))
		f.Remedy.Sentence = "see why what it waits for does not come"
		return
	}
	at := ""
	if a.Port > 0 {
		at = fmt.Sprintf(" on port %d", a.Port)
	}
	f.Container, f.Disproof = a.Container, fmt.Sprintf("a line of %s that it found %s", a.By, a.Container)
	f.Sentence = fmt.Sprintf("%s is not ready, since it waits until %s listens%s", a.By, a.Container, at)
	f.Remedy.Sentence = fmt.Sprintf("see why %s does not listen%s: what its log says, and which port its settings name", a.Container, at)
	if a.Back != nil {
		f.Evidence = append(f.Evidence, *a.Back)
		f.Sentence = fmt.Sprintf("%s and %s wait for each other: %s until %s listens%s, and %s, before it does, until %s is ready", a.By, a.Container, a.By, a.Container, at, a.Container, a.By)
		f.Remedy.Sentence = fmt.Sprintf("let %s listen%s first, and wait for %s beside that, or for a part of it that does not need the application (of Dapr /v1.0/healthz/outbound); more time and restarts do not help", a.Container, at, a.By)
	}
}

// Gone adds to a finding about the proxy that the kubelet does not start it again, as in a pod that should end after a run
// without a failure, or after any: nothing takes the calls that are captured then.
func (c *Case) Gone(f *result.Finding) {
	last, policy := c.Proxy.Last(), c.Object.Spec.RestartPolicy
	over := c.Object.Status.Phase == corev1.PodSucceeded || c.Object.Status.Phase == corev1.PodFailed
	if c.Proxy.Kind != startup.Plain || c.Proxy.Waiting != nil || last == nil || last.Exit == nil || !c.ShouldEnd() || *last.Exit != 0 && policy != corev1.RestartPolicyNever || over || c.Deleted() {
		return
	}
	f.Sentence += fmt.Sprintf("; %s ended (%s), and in a pod with restartPolicy %s it is not started again, so that each later call is refused", c.Proxy.Name, facts.ExitText(*last), cmp.Or(policy, "Never or OnFailure"))
	f.Remedy.Sentence += "; this pod does not heal: delete it, so that its owner makes a new one, and let the proxy of such pods be a native sidecar"
}
