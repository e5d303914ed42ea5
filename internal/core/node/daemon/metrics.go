package daemon

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"
)

// metricsTimeout limits each request for metrics.
const metricsTimeout = 10 * time.Second

// serveMetrics serves metrics until ctx ends. Only the leading process does: it is the one that captures. If the
// port is taken, it tries again, because the process that led before may still be ending.
func (d *daemon) serveMetrics(ctx context.Context) error {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /metrics", d.metrics)
	server := &http.Server{Handler: mux, ReadTimeout: metricsTimeout, WriteTimeout: metricsTimeout, IdleTimeout: metricsTimeout, MaxHeaderBytes: 8 << 10}
	defer context.AfterFunc(ctx, func() { server.Close() })()
	for pause := time.Second; ; pause = min(2*pause, retryMax) {
		l, err := net.Listen("tcp", d.Metrics)
		if err == nil {
			d.Log.Info("metrics", "address", l.Addr().String())
			err = server.Serve(l)
		}
		if ctx.Err() != nil || errors.Is(err, http.ErrServerClosed) {
			<-ctx.Done()
			return nil
		}
		d.Log.Warn("no metrics", "address", d.Metrics, "error", err, "again", pause)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
		}
	}
}

// metrics writes the metrics in Prometheus' text format.
func (d *daemon) metrics(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	s := d.captures.Stats()
	for _, m := range []struct {
		name, kind, help string
		value            uint64
	}{
		{"outrider_node_captures", "gauge", "Captured pods on this node whose captures are watched.", uint64(s.Watched)},
		{"outrider_node_captures_not_in_place", "gauge", "Captured pods whose capture could not be repaired, or is changed all the time.", uint64(s.NotInPlace)},
		{"outrider_node_capture_repairs_total", "counter", "Captures that were changed and written again.", s.Repairs},
	} {
		fmt.Fprintf(w, "# HELP %s %s\n# TYPE %s %s\n%s %d\n", m.name, m.help, m.name, m.kind, m.name, m.value)
	}
}
