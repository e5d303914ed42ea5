package controlplane

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"

	"outrider.dev/internal/core/controlplane/conns"
	"outrider.dev/internal/core/xds"
)

// A proxy that reconnects sends all its names, each with a version. The request for 10,000 services with the
// longest names that Kubernetes allows is smaller than maxRequest.
func TestLargestOrdinaryRequestFits(t *testing.T) {
	r := &discovery.DeltaDiscoveryRequest{TypeUrl: xds.EndpointType, InitialResourceVersions: map[string]string{}}
	for i := range 10_000 {
		name := fmt.Sprintf("outbound|65535||%063d.%s.svc.cluster.local", i, strings.Repeat("n", 63))
		r.ResourceNamesSubscribe = append(r.ResourceNamesSubscribe, name)
		r.InitialResourceVersions[name] = "0123456789abcdef"
	}
	if n := proto.Size(r); n > maxRequest {
		t.Errorf("%d bytes; at most %d are received", n, maxRequest)
	}
}

// A scrape waits for its turn. If its client disconnects, it no longer waits.
func TestScrapesWaitForTheirTurn(t *testing.T) {
	g := conns.NewGate(1, 1)
	served := make(chan string, 2)
	h := byTurns(g, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { served <- r.URL.Path }))
	leave, err := g.Enter(t.Context(), netip.MustParseAddr("192.0.2.1"), 1)
	if err != nil {
		t.Fatal(err)
	}
	gone, end := context.WithCancel(t.Context())
	end()
	h(httptest.NewRecorder(), httptest.NewRequestWithContext(gone, "GET", "/gone", nil))
	go h(httptest.NewRecorder(), httptest.NewRequest("GET", "/waits", nil))
	if len(served) > 0 {
		t.Errorf("%s is served; want that it waits", <-served)
	}
	leave()
	if got := <-served; got != "/waits" {
		t.Errorf("%s is served; want the one whose client waits", got)
	}
}

// The turn of a scrape ends even if its client does not read the answer.
func TestScrapeThatIsNotRead(t *testing.T) {
	served := make(chan struct{}, 2)
	h := byTurns(conns.NewGate(1, 1), http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "text", http.StatusTeapot)
		served <- struct{}{}
	}))
	w := unread{httptest.NewRecorder(), make(chan struct{})}
	defer close(w.read)
	go h(w, httptest.NewRequest("GET", "/unread", nil))
	<-served
	other := httptest.NewRecorder()
	h(other, httptest.NewRequest("GET", "/", nil))
	if other.Code != http.StatusTeapot || other.Body.String() != "text\n" || other.Header().Get("Content-Type") == "" {
		t.Errorf("%d %q %v; want what the handler wrote", other.Code, other.Body, other.Header())
	}
}

// An unread response is one that its client does not read.
type unread struct {
	*httptest.ResponseRecorder
	read chan struct{}
}

func (u unread) Write(p []byte) (int, error) {
	<-u.read
	return len(p), nil
}
