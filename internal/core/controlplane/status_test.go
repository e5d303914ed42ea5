package controlplane

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"outrider.dev/internal/core/xds"
)

// The status page contains all of its parts, and HTML in the name of a proxy is escaped.
func TestStatusPage(t *testing.T) {
	const hostile = `<script>alert("1")</script>`
	at := started(t, Options{Folder: t.TempDir(), State: t.TempDir(), Plaintext: "127.0.0.1:0", Version: "v1.2.3", Replica: "outriderd-a"})
	conn, err := grpc.NewClient(at.Plaintext, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	stream, err := discovery.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(t.Context())
	if err == nil {
		err = stream.Send(&discovery.DeltaDiscoveryRequest{Node: &core.Node{Id: hostile}, TypeUrl: xds.ListenerType})
	}
	if err == nil {
		_, err = stream.Recv()
	}
	if err != nil {
		t.Fatal(err)
	}
	res, err := http.Get("http://" + at.HTTP + "/debug/status")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	raw, err := io.ReadAll(res.Body)
	page := string(raw)
	if err != nil || res.StatusCode != http.StatusOK || strings.Contains(page, "<script") {
		t.Errorf("%s, %v:\n%s", res.Status, err, page)
	}
	for _, want := range []string{"v1.2.3", "outriderd-a", "0 services", "1 connected to this replica", "root ", "&lt;script&gt;alert(", "not yet", "All of it is read"} {
		if !strings.Contains(page, want) {
			t.Errorf("no %q in:\n%s", want, page)
		}
	}
	if policy := res.Header.Get("Content-Security-Policy"); !strings.Contains(policy, "default-src 'none'") {
		t.Errorf("policy %q", policy)
	}
}

// Requests for /debug are refused if they come from other machines, or from a page of another site in a local
// browser.
func TestDebugPathsAreForThisMachine(t *testing.T) {
	at := started(t, Options{Folder: t.TempDir(), State: t.TempDir()})
	for host, want := range map[string]int{at.HTTP: 200, "localhost:8080": 200, "localhost": 200, "[::1]:1": 200, "evil.example:15014": 403, "evil.example": 403} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+at.HTTP+"/debug/status", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Host = host
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if res.StatusCode != want {
			t.Errorf("host %s: %s; want %d", host, res.Status, want)
		}
	}
}

func TestRowOfAProxy(t *testing.T) {
	rejection := &xds.Rejection{Version: "8", Reason: "no", Time: time.Time{}}
	for name, tt := range map[string]struct {
		types []xds.TypeStatus
		want  row
	}{
		"nothing subscribed":      {nil, row{InSync: true}},
		"all accepted":            {[]xds.TypeStatus{{Type: "Cluster", Sent: "7", Acked: "7"}, {Type: "Listener", Sent: "7", Acked: "7"}}, row{Acked: "7", InSync: true}},
		"a message is on its way": {[]xds.TypeStatus{{Type: "Cluster", Sent: "8", Acked: "7", Pending: 1}}, row{Acked: "7"}},
		"never accepted":          {[]xds.TypeStatus{{Type: "Cluster", Sent: "8"}}, row{}},
		"rejected":                {[]xds.TypeStatus{{Type: "Cluster", Sent: "8", Acked: "7", Rejected: rejection}}, row{Acked: "7", Rejected: "Cluster: no"}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := proxyRow(xds.ProxyStatus{Types: tt.types}); got != tt.want {
				t.Errorf("%+v; want %+v", got, tt.want)
			}
		})
	}
}
