package chain

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"outrider.dev/internal/core/pod/podspec"
	"outrider.dev/internal/doctor/diagnose/calls"
	"outrider.dev/internal/doctor/evidence"
	"outrider.dev/startup"
)

// An Unheard is a container that a helper asks, and which does not listen there: so the helper is not ready.
type Unheard struct {
	Container string
	Port      uint16
	At        string // the ports on which it listens by its log; empty: not known
	Quotes    []evidence.Quote
}

// Asks returns the container of the pod that a running helper asks and that does not listen there. It returns false if
// the helper asks none, a container listens on that port by its log, or it is not known which container is meant.
func (c *Case) Asks(helper string) (Unheard, bool) {
	u, said := c.asked(helper)
	if u.Port == 0 {
		return u, false
	}
	for _, of := range c.Containers {
		spec := c.Spec(of.Name)
		if spec == nil || of.Name == helper || of == c.Proxy || of.Kind != startup.Plain || of.Last() == nil || !of.Last().Running {
			continue
		}
		if podspec.Declares(spec, int(u.Port)) || u.Container == "" && len(c.Apps) == 2 {
			u.Container = of.Name
		}
	}
	var ports []string
	for _, l := range c.Listens {
		if slices.Contains(l.Ports, int(u.Port)) && l.Container != helper {
			return u, false
		}
		if l.Container != u.Container || l.Run != c.Container(u.Container).Last().Number {
			continue
		}
		for _, p := range l.Ports {
			if text := fmt.Sprint(p); !slices.Contains(ports, text) {
				ports = append(ports, text)
			}
		}
		if len(l.Ports) > 0 && len(ports) == 1 {
			u.Quotes = append(u.Quotes, l.Quote)
		}
	}
	if len(ports) <= 4 {
		u.At = strings.Join(ports, " and ")
	}
	return u, u.Container != "" && (said || u.At != "")
}

// asked returns the port of its own pod at which a helper was refused, by the log of its run, and true; or the port that
// its environment says it will ask, and false.
func (c *Case) asked(helper string) (u Unheard, said bool) {
	run := c.Container(helper).Last()
	if run == nil || !run.Running {
		return u, false
	}
	for _, y := range c.Calls.Of(helper, run.Number, calls.Refused) {
		if y.To.Loopback() && !y.Presumed && c.GotOver(y) == nil {
			u, said = Unheard{Port: y.To.Port, Quotes: []evidence.Quote{y.Quote}}, true
		}
	}
	for _, a := range c.Asked {
		if a.Container == helper && a.Run == run.Number {
			u, said = Unheard{Port: a.Port, Quotes: []evidence.Quote{a.Quote}}, true
		}
	}
	spec := c.Spec(helper)
	if said || spec == nil {
		return u, said
	}
	for _, e := range spec.Env {
		m := probedPort.FindStringSubmatch(e.Value[:min(len(e.Value), 4096)])
		if n, err := strconv.ParseUint(strings.Join(m[min(1, len(m)):], ""), 10, 16); e.Name == knativeProbe && err == nil {
			u = Unheard{Port: uint16(n), Quotes: []evidence.Quote{c.Quote(evidence.Time{}, "%s of %s: %s", e.Name, helper, c.Show([]byte(e.Value)))}}
		}
	}
	return u, false
}

// knativeProbe is the variable in which Knative's queue-proxy gets the probe of the container beside it. Source:
// knative.dev/serving, pkg/reconciler/revision/resources.
const knativeProbe = "SERVING_READINESS_PROBE"

var probedPort = regexp.MustCompile(`"port": ?"?(\d{1,5})\b`)
