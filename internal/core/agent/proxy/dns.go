package proxy

import (
	"context"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"outrider.dev/internal/core/agent/config"
	"outrider.dev/internal/core/agent/dns"
	"outrider.dev/internal/core/agent/readiness"
	"outrider.dev/internal/core/agent/status"
)

// relisten is the pause before the DNS proxy tries to listen again, after another process had its
// port. It is short, because the pod cannot resolve names meanwhile.
const relisten = time.Second

// answerNames runs the DNS proxy until ctx ends. For readiness the proxy only has to answer; it
// need not know any name.
func (a *agent) answerNames(ctx context.Context) {
	options := dns.Options{Port: a.config.Ports.DNS, Domain: meshDomain(a.config.Pod), Log: a.log}
	if a.keeper != nil {
		plane := &dns.ControlPlane{Address: a.config.ControlPlane.Address, TLS: a.keeper.TLS(a.config.ControlPlane.Address)}
		defer plane.Close()
		options.Names = plane.Resolve
	} else {
		a.log.Warn("names of the mesh are not resolved: the control plane serves them with TLS only")
	}
	at := net.JoinHostPort("127.0.0.1", strconv.Itoa(int(a.config.Ports.DNS)))
	reported := ""
	for ctx.Err() == nil {
		if err := a.serveNames(ctx, options, readiness.DNS(at)); err != nil && ctx.Err() == nil {
			a.board.Set(readiness.Names, false, err.Error())
			if err.Error() != reported { // report each reason once, not every second
				reported = err.Error()
				a.problem("answering for names", err)
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(relisten):
		}
	}
}

// serveNames listens and answers. check runs only while it listens: before that, another
// process might answer on the port.
func (a *agent) serveNames(ctx context.Context, o dns.Options, check readiness.Check) error {
	s, err := dns.Listen(o)
	if err != nil {
		return err
	}
	checking, stop := context.WithCancel(ctx)
	var task sync.WaitGroup
	task.Go(func() {
		readiness.Keep(checking, a.board, readiness.Names, readiness.Rates{After: 10 * time.Second}, check)
	})
	defer task.Wait() // so that the caller sets the condition last
	defer stop()
	a.names.Store(s)
	a.journal.Note("names", "answering on port "+strconv.Itoa(int(o.Port)))
	return s.Serve(ctx)
}

// meshDomain returns the cluster's domain: the pod's domain without "NAMESPACE.svc.".
func meshDomain(p config.Pod) string {
	return strings.TrimPrefix(p.Domain, p.Namespace+".svc.")
}

// nameMetrics returns the metrics of the DNS proxy.
func (a *agent) nameMetrics() []status.Metric {
	var out []status.Metric
	for _, m := range []struct {
		name, help string
		gauge      bool
		value      func(dns.Counts) uint64
	}{
		{"questions_total", "Questions for names.", false, func(c dns.Counts) uint64 { return c.Questions }},
		{"mesh_total", "Questions answered as names of the mesh.", false, func(c dns.Counts) uint64 { return c.Mesh }},
		{"cached_total", "Look-ups that needed no question to the control plane.", false, func(c dns.Counts) uint64 { return c.Cached }},
		{"stale_total", "Old answers given because the control plane could not be reached.", false, func(c dns.Counts) uint64 { return c.Stale }},
		{"asked_total", "Questions to the control plane.", false, func(c dns.Counts) uint64 { return c.Queries }},
		{"unanswered_total", "Questions that the control plane did not answer.", false, func(c dns.Counts) uint64 { return c.Unanswered }},
		{"forwarded_total", "Questions passed on to the pod's name servers.", false, func(c dns.Counts) uint64 { return c.Forwarded }},
		{"forward_failures_total", "Questions that no name server answered.", false, func(c dns.Counts) uint64 { return c.Failed }},
		{"refused_total", "Questions beyond what is dealt with at a time.", false, func(c dns.Counts) uint64 { return c.Refused }},
		{"malformed_total", "Messages that are no question that can be answered.", false, func(c dns.Counts) uint64 { return c.Malformed }},
		{"looped_total", "The proxy's own questions that came back to it.", false, func(c dns.Counts) uint64 { return c.Looped }},
		{"names", "Names that are remembered.", true, func(c dns.Counts) uint64 { return c.Names }},
	} {
		out = append(out, status.Metric{Name: "outrider_agent_dns_" + m.name, Help: m.help, Counter: !m.gauge, Value: func() float64 {
			if s := a.names.Load(); s != nil {
				return float64(m.value(s.Counts()))
			}
			return 0
		}})
	}
	return out
}
