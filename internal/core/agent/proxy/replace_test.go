package proxy

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"outrider.dev/internal/core/agent/envoy"
)

// withStat returns an agent whose Envoy has one statistic.
func withStat(t *testing.T, name string, value func() int) *agent {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "admin")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	admin := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, `{"stats": [{"name": %q, "value": %d}]}`, name, value())
	})}
	go admin.Serve(l)
	t.Cleanup(func() { admin.Close() })
	return &agent{admin: envoy.NewAdmin(envoy.Options{Admin: envoy.Endpoint{Socket: socket}}, time.Minute)}
}

// A connection that Envoy has accepted, and that no counter included when no request was in flight, is waited for: its
// first request may still come. One that has been waited for in vain is not.
func TestFirstRequestsMayCome(t *testing.T) {
	t.Parallel()
	connections := make(chan int, 1)
	a := withStat(t, "http.outbound.downstream_cx_active", func() int {
		n := <-connections
		connections <- n
		return n
	})
	directions := []direction{{name: "outbound"}}
	connections <- 0
	if n := a.awaitAnswered(t.Context(), &directions[0], time.Hour); n != 0 || a.came(t.Context(), directions) {
		t.Errorf("%d requests, or a connection, of none", n)
	}
	<-connections
	connections <- 1
	if !a.came(t.Context(), directions) {
		t.Error("a new connection does not count")
	}
	if n := a.awaitAnswered(t.Context(), &directions[0], time.Hour); n != 0 || a.came(t.Context(), directions) {
		t.Errorf("%d requests; want 0, and a connection that stays idle to be given up", n)
	}
}

// An Envoy whose applications have ended stays for the clients of the mesh that are connected, also at ports of bytes.
func TestConnectedClientsGetAnswers(t *testing.T) {
	t.Parallel()
	for _, name := range []string{
		"listener.0.0.0.0_15006.downstream_cx_active", "listener.0.0.0.0_15006.downstream_pre_cx_active", "http.inbound.downstream_rq_active",
	} {
		answers := make(chan int, 4)
		a := withStat(t, name, func() int { return <-answers })
		for n := range 4 { // the first answer shows that there were clients of the mesh
			answers <- 3 - n
		}
		a.awaitAnswers(t.Context())
		if n := len(answers); n > 0 {
			t.Errorf("%s: it returned %d answers before the last", name, n)
		}
	}
}

// A drain begins when each listener that Envoy has got serves, or when the time for that is over.
func TestDrainAwaitsListenersThatDoNotServeYet(t *testing.T) {
	t.Parallel()
	answers := make(chan int, 3)
	a := withStat(t, "listener_manager.total_listeners_warming", func() int { return <-answers })
	for n := range 3 {
		answers <- 2 - n
	}
	a.awaitWarm(t.Context())
	if n := len(answers); n != 0 {
		t.Errorf("it returned %d answers before the last", n)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	a.awaitWarm(ended)
}
