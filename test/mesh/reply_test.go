package mesh

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"outrider.dev/internal/core/mesh"
	"outrider.dev/internal/core/xds"
	"outrider.dev/internal/core/xds/resource"
	"outrider.dev/test/process"
)

// A response that a proxy generates names the proxy, the destination and the reason.
func TestReplies(t *testing.T) {
	t.Parallel()
	s := newShop(t, func(r *resource.Source) { r.FirstUseTimeout = 4 * time.Second }) // short, because the test waits for it
	only := []mesh.Match{{Path: &mesh.Text{Kind: mesh.Prefix, Value: "/slow"}}}
	to := []mesh.Backend{{Namespace: namespace, Name: "web", Port: 8080, Weight: 1}}
	s.route("web", "web", 8080, mesh.Route{Matches: only, Backends: to, Timeout: 100 * time.Millisecond})
	plain := s.plain.v4.String()
	s.replies(t, map[string]reply{
		"no endpoint":             {to: "10.96.0.6:8080", status: 503, direction: "outbound", text: "no endpoint is ready"},
		"the application refuses": {to: "10.96.0.1:8082", status: 503, direction: "inbound", text: "no connection to "},
		"a pod refuses":           {to: plain + ":8082", status: 503, direction: "outbound", text: "no connection to " + plain + ":8082"},
		"no route":                {to: "10.96.0.1:8080", status: 404, direction: "routed", text: "no route of this service matches"},
		"the route's timeout":     {to: "10.96.0.1:8080", path: "/slow", status: 504, direction: "routed", text: "no response within the timeout of the route"},
	})

	// Make the control plane send the cluster of a service, but not its routes.
	s.line.silence(xds.VirtualHostType)
	s.service("mute", "10.96.0.8", "server", port(8080, mesh.HTTP))
	s.route("mute", "mute", 8080)
	s.replies(t, map[string]reply{
		"no virtual host": {to: "10.96.0.8:8080", status: 504, direction: "routed", text: "the control plane sent no routes of this service in time"},
	})

	s.service("late", "10.96.0.9", "server", port(8080, mesh.HTTP))
	s.service("later", "10.96.0.10", "server", port(8080, mesh.HTTP))
	s.route("later", "later", 8080)
	s.down()
	const why = "the control plane sent no cluster for this address in time"
	s.replies(t, map[string]reply{
		"no control plane, by address": {to: "10.96.0.9:8080", status: 503, direction: "outbound", text: why},
		"no control plane, by route":   {to: "10.96.0.10:8080", status: 503, direction: "outbound", text: why},
	})
	t.Run("no control plane, gRPC", func(t *testing.T) {
		ctx, cancel := context.WithTimeout(context.Background(), process.Patience)
		defer cancel()
		_, err := s.client.healthClient(t, "10.96.0.9:8080").Check(ctx, &healthpb.HealthCheckRequest{})
		if status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), why) {
			t.Errorf("%v; want Unavailable with %q", err, why)
		}
	})
}

// A reply is the response that a proxy is expected to send in place of the server.
type reply struct {
	to, path        string
	status          int
	direction, text string
}

// replies checks the responses to all requests, as text and as JSON. The requests are concurrent, because some take
// long.
func (s *shop) replies(t *testing.T, all map[string]reply) {
	t.Run("", func(t *testing.T) {
		for name, want := range all {
			for _, accept := range []string{"", "text/html, application/json;q=0.9"} {
				t.Run(name+" "+accept, func(t *testing.T) {
					t.Parallel()
					s.reply(t, want, accept)
				})
			}
		}
	})
}

func (s *shop) reply(t *testing.T, want reply, accept string) {
	r, err := http.NewRequest("GET", "http://"+want.to+want.path, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Host = "called.example"
	if accept != "" {
		r.Header.Set("Accept", accept)
	}
	res, err := s.client.client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	raw, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != want.status {
		t.Fatalf("%d %s, %v; want %d", res.StatusCode, raw, err, want.status)
	}
	if accept == "" {
		line := fmt.Sprintf(`^outrider \(%s\): called\.example at \S+: %s.* \([A-Z,]+, \w.*\)\n$`, want.direction, regexp.QuoteMeta(want.text))
		if !regexp.MustCompile(line).Match(raw) {
			t.Errorf("%q, want %s", raw, line)
		}
		return
	}
	var got struct{ Proxy, Host, Address, Reason, Details, Message string }
	if err := json.Unmarshal(raw, &got); err != nil || res.Header.Get("Content-Type") != "application/json" {
		t.Fatalf("%s: %s, %v", res.Header.Get("Content-Type"), raw, err)
	}
	if got.Proxy != want.direction || got.Host != "called.example" || got.Address == "" || got.Reason == "" || got.Details == "" || got.Message == "" {
		t.Errorf("%+v", got)
	}
}

// A proxy sends the client's identity to its application, and a client cannot forge it.
func TestForwardedCertificate(t *testing.T) {
	s := newShop(t)
	const forged = "By=spiffe://cluster.local/ns/shop/sa/server;URI=spiffe://cluster.local/ns/shop/sa/admin"
	s.route("web", "web", 8080)
	caller := regexp.MustCompile(`^By=spiffe://cluster\.local/ns/shop/sa/server;Hash=[0-9a-f]{64};Subject="[^"]*";URI=spiffe://cluster\.local/ns/shop/sa/client$`)
	none := regexp.MustCompile(`^$`)
	for name, tt := range map[string]struct {
		from *pod
		to   string
		want *regexp.Regexp
	}{
		"by route, mutual TLS":                {s.client, "10.96.0.1:8080", caller},
		"by address, mutual TLS":              {s.client, "10.96.0.3:7000", caller},
		"to a pod, mutual TLS":                {s.client, s.server.v4.String() + ":8083", caller},
		"plainly":                             {s.plain, s.server.v4.String() + ":8083", none},
		"to one without a proxy, from a mesh": {s.client, "10.96.0.5:8080", none},
	} {
		t.Run(name, func(t *testing.T) {
			for _, written := range []string{"", forged} {
				r, err := http.NewRequest("GET", "http://"+tt.to+"/peer", nil)
				if err != nil {
					t.Fatal(err)
				}
				if written != "" {
					r.Header.Set("X-Forwarded-Client-Cert", written)
				}
				res, err := tt.from.client().Do(r)
				if err != nil {
					t.Fatal(err)
				}
				defer res.Body.Close()
				if got, err := io.ReadAll(res.Body); err != nil || res.StatusCode != 200 || !tt.want.Match(got) {
					t.Errorf("caller wrote %q: %d %q, %v; want %s", written, res.StatusCode, got, err, tt.want)
				}
			}
		})
	}
}

// The response to a request whose backend is missing contains the backend's name.
func TestMissingBackends(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	hidden := s.service("hidden", "10.96.0.20", "server", port(8080, mesh.HTTP))
	hidden.Namespace, hidden.ExportTo = "vault", []string{"."}
	s.source.set(hidden)
	for i, b := range []mesh.Backend{{Namespace: namespace, Name: "nowhere", Port: 8080}, {Namespace: "vault", Name: "hidden", Port: 8080}, {Namespace: namespace, Name: "web", Port: 81}} {
		b.Weight = 1
		name, vip := fmt.Sprint("front", i), fmt.Sprint("10.96.1.", i+1)
		s.service(name, vip, "server", port(8080, mesh.HTTP))
		s.route(name, name, 8080, mesh.Route{Backends: []mesh.Backend{b}})
		want := fmt.Sprintf("500 outrider (routed): the backend %s/%s:%d of the route %s/%s/0 does not exist, needs a ReferenceGrant, or is not visible to this client's namespace\n", b.Namespace, b.Name, b.Port, namespace, name)
		if got := get(s.client.client(), "http://"+vip+":8080/"); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
