package status

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/core/agent/readiness"
)

// A Metric is a metric of the agent itself.
type Metric struct {
	Name    string // with labels, if it has any
	Help    string
	Counter bool // otherwise it is a gauge
	Value   func() float64
}

// A Target is an endpoint of the app's metrics.
type Target struct {
	Port uint16
	Path string
}

func (t Target) url() string {
	return "http://" + net.JoinHostPort("localhost", strconv.Itoa(int(t.Port))) + t.Path
}

// Limits of one target.
const (
	scrapeSize  = 10 << 20
	scrapeLimit = 5 * time.Second
	envoyLimit  = time.Second // until Envoy's answer begins: an Envoy that hangs must not delay the app's metrics
	lineSize    = 64 << 10
)

// reserved lists the mesh's own ports. The app's metrics cannot be on one of them: scraping it
// would return the mesh's metrics twice, or call the agent itself in a loop (Istio refuses them
// too).
var reserved = []uint16{contract.AdminPort, contract.OutboundPort, contract.DebugPort, contract.InboundPort, contract.TunnelPort,
	contract.StatusPort, contract.ReadinessPort, contract.DNSPort, contract.PrometheusPort}

// ParseTargets parses ISTIO_PROMETHEUS_ANNOTATIONS: the pod's prometheus.io annotations as
// JSON. The field targets, if it is set, replaces path and port. own are the agent's ports, in
// case they are not the default ones. If there is nothing to scrape, ParseTargets returns no
// target and no error.
func ParseTargets(annotations string, own ...uint16) ([]Target, error) {
	if strings.TrimSpace(annotations) == "" {
		return nil, nil
	}
	var in struct {
		Scrape, Path, Port string
		Targets            []struct{ Port, Path string } // their metrics are shown in this order
	}
	if err := json.Unmarshal([]byte(annotations), &in); err != nil {
		return nil, fmt.Errorf("ISTIO_PROMETHEUS_ANNOTATIONS: want a JSON object with scrape, path and port: %w", err)
	}
	if in.Scrape == "false" || in.Port == "" && len(in.Targets) == 0 {
		return nil, nil
	}
	if len(in.Targets) == 0 {
		for _, p := range strings.Split(in.Port, ",") {
			in.Targets = append(in.Targets, struct{ Port, Path string }{p, in.Path})
		}
	}
	var out []Target
	for _, t := range in.Targets {
		target, err := parseTarget(t.Port, t.Path, own)
		if err != nil {
			return nil, err
		}
		out = append(out, target)
	}
	return out, nil
}

func parseTarget(port, path string, own []uint16) (Target, error) {
	n, err := strconv.ParseUint(strings.TrimSpace(port), 10, 16)
	switch {
	case err != nil || n == 0:
		return Target{}, fmt.Errorf("prometheus.io/port: %q is no port", port)
	case slices.Contains(reserved, uint16(n)) || slices.Contains(own, uint16(n)):
		return Target{}, fmt.Errorf("prometheus.io/port: %d is a port of the mesh; name the app's", n)
	}
	t := Target{uint16(n), cmp.Or(path, "/metrics")}
	if t.Path[0] != '/' {
		t.Path = "/" + t.Path
	}
	if _, err := http.NewRequest(http.MethodGet, t.url(), nil); err != nil {
		return Target{}, fmt.Errorf("prometheus.io/path: %q: %w", path, err)
	}
	return t, nil
}

// scrapes counts the scrapes, and the failures of Envoy and of the app.
type scrapes struct{ total, envoyFailed, appFailed atomic.Uint64 }

// own returns the metrics of the agent. Names that begin with istio_ are Istio's.
func (s *Server) own() []Metric {
	board := s.o.Board
	ready := func(l readiness.Level) func() float64 {
		return func() float64 {
			if board.Status(l).Ready {
				return 1
			}
			return 0
		}
	}
	count := func(c *atomic.Uint64) func() float64 { return func() float64 { return float64(c.Load()) } }
	out := []Metric{
		{Name: `outrider_agent_ready{level="outbound"}`, Help: "1 if the proxy is ready, by level.", Value: ready(readiness.Outbound)},
		{Name: `outrider_agent_ready{level="full"}`, Value: ready(readiness.Full)},
		{Name: "outrider_agent_waiters", Help: "Requests that are held until the proxy is ready.", Value: func() float64 { return float64(board.Waiting()) }},
		{Name: "outrider_agent_waiters_refused_total", Help: "Requests that were answered at once because too many were held.", Counter: true, Value: count(&s.waits.refused)},
		{Name: "outrider_agent_scrapes_refused_total", Help: "Scrapes that were refused because too many were made at once.", Counter: true, Value: count(&s.scraping.refused)},
		{Name: "outrider_agent_connections_dropped_total", Help: "Connections that were closed because too many were open.", Counter: true, Value: count(&s.conns.dropped)},
		{Name: "istio_agent_scrapes_total", Help: "Scrapes of the merged metrics.", Counter: true, Value: count(&s.scrapes.total)},
		{Name: `istio_agent_scrape_failures_total{type="envoy"}`, Help: "Targets that did not answer, or not fully, by type.", Counter: true, Value: count(&s.scrapes.envoyFailed)},
		{Name: `istio_agent_scrape_failures_total{type="application"}`, Counter: true, Value: count(&s.scrapes.appFailed)},
	}
	if at, ok := board.First(readiness.Outbound); ok {
		took := func() float64 { return at.Sub(s.o.Journal.Process()).Seconds() }
		for _, name := range []string{"outrider_agent_startup_duration_seconds", "istio_agent_startup_duration_seconds"} {
			out = append(out, Metric{Name: name, Help: "From the begin of the process to the first time that the proxy was ready.", Value: took})
		}
	}
	return append(out, s.o.Metrics...)
}

// expose writes metrics in Prometheus' text format, version 0.0.4. Metrics of one family must be
// adjacent; the first one defines its type and its help text.
func expose(w io.Writer, metrics []Metric) {
	last := ""
	for _, m := range metrics {
		family, _, _ := strings.Cut(m.Name, "{")
		if family != last {
			kind := "gauge"
			if m.Counter {
				kind = "counter"
			}
			fmt.Fprintf(w, "# HELP %s %s\n# TYPE %s %s\n", family, m.Help, family, kind)
			last = family
		}
		fmt.Fprintf(w, "%s %s\n", m.Name, strconv.FormatFloat(m.Value(), 'g', -1, 64))
	}
}

// scraper ignores the proxy settings in the environment, which are meant for the app, and does
// not retry.
var scraper = &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DisableCompression: true}, Timeout: scrapeLimit}

// metrics serves the metrics of the agent, then of Envoy, then of the app. If a source fails, its
// metrics are left out or end after a whole line; the other sources are served all the same.
func (s *Server) metrics(w http.ResponseWriter, r *http.Request) {
	release, ok := s.scraping.acquire(peerFrom(r))
	if !ok {
		w.Header().Set("Retry-After", "1")
		http.Error(w, fmt.Sprintf("too many scrapes at once; a client may have %d", scrapesEach), http.StatusServiceUnavailable)
		return
	}
	defer release()
	if r.Method == http.MethodHead { // no scrape
		s.agentMetrics(w, r)
		return
	}
	s.scrapes.total.Add(1)
	s.agentMetrics(w, r)
	if s.o.Envoy != "" {
		names := &requestNames{own: s.o.Workload}
		s.pass(r.Context(), w, s.o.Envoy, envoyLimit, "Envoy", &s.scrapes.envoyFailed, names.line)
	}
	for _, t := range s.o.App {
		s.pass(r.Context(), w, t.url(), scrapeLimit, "application", &s.scrapes.appFailed, func(line []byte) []byte { return line })
	}
}

// agentMetrics answers with the metrics of the agent alone. They are few, and no other process is asked.
func (s *Server) agentMetrics(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	expose(w, s.own()) // net/http leaves it out of the answer to HEAD
}

// pass copies a target's metrics to w, each line changed by shown. It gives up if the answer does
// not begin within limit.
func (s *Server) pass(ctx context.Context, w io.Writer, url string, limit time.Duration, what string, failures *atomic.Uint64, shown func([]byte) []byte) {
	err := func() error {
		ctx, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		late := time.AfterFunc(limit, func() { cancel(fmt.Errorf("%s: no answer within %s", url, limit)) })
		defer late.Stop()
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		// The merged answer has one format, and every target supports this one.
		req.Header.Set("Accept", "text/plain;version=0.0.4")
		res, err := scraper.Do(req)
		if err != nil {
			return cmp.Or(context.Cause(ctx), err)
		}
		defer res.Body.Close()
		late.Stop()
		if res.StatusCode != http.StatusOK {
			return fmt.Errorf("%s: status %d", url, res.StatusCode)
		}
		return copyLines(w, res.Body, scrapeSize, shown)
	}()
	if err != nil && ctx.Err() == nil {
		failures.Add(1)
		s.o.Log.Warn("metrics not scraped", "of", what, "err", err)
	}
}

// copyLines copies whole lines, at most limit bytes of them. It drops a line that was cut off,
// because half a number is a wrong number, and the end mark of OpenMetrics, because more metrics
// may follow.
func copyLines(w io.Writer, r io.Reader, limit int, shown func([]byte) []byte) error {
	in := bufio.NewReaderSize(r, lineSize)
	for {
		line, err := in.ReadSlice('\n')
		if err != nil && (!errors.Is(err, io.EOF) || len(line) == 0) {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		line = bytes.TrimSpace(line)
		if limit -= len(line) + 1; limit < 0 {
			return errors.New("too much: the rest was left out")
		}
		if bytes.Equal(line, []byte("# EOF")) {
			continue
		}
		if _, err := fmt.Fprintf(w, "%s\n", shown(line)); err != nil {
			return err
		}
	}
}
