package proxy

import (
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"outrider.dev/internal/core/agent/envoy"
)

// A connection that Envoy has accepted, and that no counter included when no request was in flight, is waited for: its
// first request may still come. One that has been waited for in vain is not.
func TestFirstRequestsMayCome(t *testing.T) {
	t.Parallel()
	connections := 0
	socket := filepath.Join(t.TempDir(), "admin")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, `{"stats": [{"name": "http.outbound.downstream_cx_active", "value": %d}]}`, connections)
	})}
	go server.Serve(l)
	t.Cleanup(func() { server.Close() })
	o := envoy.Options{}
	o.Admin.Socket = socket
	a := &agent{admin: envoy.NewAdmin(o, time.Minute)}
	directions := []direction{{name: "outbound"}}
	if n := a.awaitAnswered(t.Context(), &directions[0], time.Hour); n != 0 || a.came(t.Context(), directions) {
		t.Errorf("%d requests, or a connection, of none", n)
	}
	connections = 1
	if !a.came(t.Context(), directions) {
		t.Error("a new connection does not count")
	}
	if n := a.awaitAnswered(t.Context(), &directions[0], time.Hour); n != 0 || a.came(t.Context(), directions) {
		t.Errorf("%d requests; want 0, and a connection that stays idle to be given up", n)
	}
}
