package chain

import (
	"fmt"
	"strconv"
	"strings"

	"outrider.dev/internal/doctor/diagnose/facts"
	"outrider.dev/internal/doctor/diagnose/result"
	"outrider.dev/internal/doctor/diagnose/states"
	"outrider.dev/internal/doctor/evidence"
)

// Elsewhere changes a finding about a probe to whose port nothing listened, if the application's log says that it
// listens on others, or only on the loopback address.
func (c *Case) Elsewhere(f *result.Finding, container, port string) {
	at, quote, local := c.ListensBeside(container, port)
	switch {
	case local:
		f.Sentence = strings.TrimSuffix(f.Sentence, " then") + fmt.Sprintf("; by its log, %s listens on the loopback address only", container)
		f.Evidence = append(f.Evidence, quote)
		f.Remedy.Sentence = fmt.Sprintf("let %s listen on all addresses (0.0.0.0:%s): the kubelet asks the pod's own address", container, port)
	case at != "":
		f.Sentence = strings.TrimSuffix(f.Sentence, " then") + "; " + c.toOther(f, container, port, at, quote)
	}
}

// toOther says that a container listens on other ports than the one that a probe asks, in the rest of a finding and for
// its sentence.
func (c *Case) toOther(f *result.Finding, container, port, at string, quote evidence.Quote) string {
	f.Evidence = append(f.Evidence, quote)
	f.Disproof = fmt.Sprintf("a line of its log that says it listens on port %s", port)
	f.Remedy.Sentence = fmt.Sprintf("let the probes of %s, its containerPort and the Service's targetPort name port %s, or let it listen on %s", container, at, port)
	return fmt.Sprintf("by its log, %s listens on %s", container, at)
}

// AsksElsewhere changes a finding about a container of whose probes no event is left, if one of them asks a port on
// which it does not listen by its log. It returns false if none does, or if the port may be of another container.
func (c *Case) AsksElsewhere(f *result.Finding, container string, kinds ...string) bool {
	spec := c.Spec(container)
	for _, kind := range kinds {
		probe := states.ProbeOf(spec, kind)
		if probe == nil || probe.Exec != nil {
			continue
		}
		port, path := states.Probed("", probe, spec)
		n, _ := strconv.Atoi(port)
		if strings.HasPrefix(path, "/app-health/") || c.Declares(n, container) != "" || c.Proxy != nil && facts.ListensFor(c.Proxy.Name, n) != "" {
			continue
		}
		if at, quote, _ := c.ListensBeside(container, port); at != "" {
			f.Sentence += fmt.Sprintf(": its %s probe asks port %s; %s", kind, port, c.toOther(f, container, port, at, quote))
			return true
		}
	}
	return false
}

// CalledElsewhere finds an application whose callers come to a port on which it does not listen: its proxy says that the port
// refused it, long after the proxy was ready, and the only container that says where it listens does so on other ports.
// targets returns where it is said that a Service leads to a port, if it is.
func (c *Case) CalledElsewhere(targets func(port int) (evidence.Quote, string)) []result.Finding {
	if c.Proxy == nil {
		return nil
	}
	for _, l := range c.Proxy.Logs {
		ready := c.Said.In(l.Run, facts.SaysReady)
		refused := c.Said.In(l.Run, facts.InboundRefused)
		if len(ready) == 0 || len(refused) == 0 {
			continue
		}
		last := refused[len(refused)-1]
		port, _ := facts.RefusedInbound(last.Text)
		n, _ := strconv.Atoi(port)
		if since, known := facts.Between(ready[0], last); !known || since < facts.Settled || n == 0 || facts.Exposes(c.Proxy.Name, n) {
			continue
		}
		app, at, says := "", "", evidence.Quote{}
		for _, w := range c.Apps {
			others, quote, local := c.ListensBeside(w.Name, port)
			switch {
			case quote.Text == "":
			case others == "" && !local || app != "": // it listens there, or which one is meant is not known
				return nil
			default:
				app, at, says = w.Name, others, quote
			}
		}
		if by := c.Declares(n, ""); app == "" || at == "" || by != "" && by != app {
			continue
		}
		f := result.Finding{
			Code: "dependency-down", Container: app, Confidence: result.Likely, Evidence: []evidence.Quote{last, says},
			Sentence: fmt.Sprintf("calls to the pod fail: they come to port %s, where nothing listens; by its log, %s listens on %s", port, app, at),
			Disproof: fmt.Sprintf("a line of its log that says it listens on port %s", port),
		}
		f.Remedy.Sentence = fmt.Sprintf("let the Service's targetPort, and the containerPort of %s, name port %s, or let %s listen on %s", app, at, app, port)
		if q, service := targets(n); service != "" {
			f.Evidence = append(f.Evidence, q)
			f.Sentence = fmt.Sprintf("calls to the pod fail: Service %s leads to port %s, where nothing listens; by its log, %s listens on %s", service, port, app, at)
			f.Remedy.Sentence = fmt.Sprintf("set the targetPort of Service %s to %s, or let %s listen on %s", service, at, app, port)
		}
		return []result.Finding{f}
	}
	return nil
}
