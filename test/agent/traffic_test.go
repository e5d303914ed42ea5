package agent

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	health1 "google.golang.org/grpc/health/grpc_health_v1"

	"outrider.dev/test/agent/harness"
	"outrider.dev/test/process"
)

// Each kind of traffic passes through the app's proxy and, over mutual TLS, through the other app's proxy.
func TestTraffic(t *testing.T) {
	t.Parallel()
	w, client, server := two(t)
	outsider := w.Machine("outsider")
	direct := "http://" + server.Pod.Address.String() + "/"
	if err := fresh(outsider, direct, "server HTTP/1.1")(); err != nil {
		t.Errorf("an outsider, where mutual TLS is not required: %v", err)
	}
	w.Manifest("strict", strict)
	process.Eventually(t, "an outsider is refused", func() bool { return fresh(outsider, direct, "server HTTP/1.1")() != nil }, w.Plane(), server)
	dial := harness.Dialer(client.Pod.Namespace, harness.AppUser)
	get := func(port int, path string) harness.Answer {
		c := harness.NewClient(client.Pod.Namespace, harness.AppUser)
		defer c.Close()
		return c.Get(fmt.Sprintf("http://%s:%d%s", vip, port, path))
	}
	t.Run("HTTP", func(t *testing.T) {
		if err := get(80, "/").Want("server HTTP/1.1"); err != nil {
			t.Error(err)
		}
	})
	t.Run("HTTP/2", func(t *testing.T) {
		var p http.Protocols
		p.SetUnencryptedHTTP2(true)
		tr := &http.Transport{DialContext: dial, Protocols: &p}
		defer tr.CloseIdleConnections()
		c := harness.Client{Client: &http.Client{Transport: tr, Timeout: process.Patience}}
		if err := c.Get("http://" + vip + ":81/").Want("server HTTP/2.0"); err != nil {
			t.Error(err)
		}
	})
	t.Run("gRPC", func(t *testing.T) {
		conn, err := grpc.NewClient("passthrough:///"+vip+":82", grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithContextDialer(func(ctx context.Context, to string) (net.Conn, error) { return dial(ctx, "tcp", to) }))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		ctx, cancel := context.WithTimeout(t.Context(), process.Patience)
		defer cancel()
		got, err := health1.NewHealthClient(conn).Check(ctx, &health1.HealthCheckRequest{})
		if got.GetStatus() != health1.HealthCheckResponse_SERVING {
			t.Errorf("%v, %v", got, err)
		}
	})
	t.Run("WebSocket", func(t *testing.T) {
		tr := &http.Transport{DialContext: dial}
		req, _ := http.NewRequestWithContext(t.Context(), "GET", "http://"+vip+"/socket", nil)
		req.Header.Set("Connection", "Upgrade")
		req.Header.Set("Upgrade", "websocket")
		res, err := tr.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		both, ok := res.Body.(io.ReadWriter)
		if res.StatusCode != http.StatusSwitchingProtocols || !ok {
			t.Fatalf("%s", res.Status)
		}
		io.WriteString(both, "frame")
		buf := make([]byte, 5)
		if _, err := io.ReadFull(both, buf); err != nil || string(buf) != "frame" {
			t.Errorf("%q, %v", buf, err)
		}
	})
	t.Run("TCP", func(t *testing.T) {
		c, err := dial(t.Context(), "tcp", vip+":90")
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		io.WriteString(c, "echo\n")
		if got, err := firstLine(c); got != "echo\n" {
			t.Errorf("%q, %v", got, err)
		}
	})
	t.Run("the server first", func(t *testing.T) {
		c, err := dial(t.Context(), "tcp", vip+":91")
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if got, err := firstLine(c); got != "server speaks first\n" {
			t.Errorf("%q, %v", got, err)
		}
	})
	t.Run("a pod by its own address", func(t *testing.T) {
		c := harness.NewClient(client.Pod.Namespace, harness.AppUser)
		defer c.Close()
		if err := c.Get(direct).Want("server HTTP/1.1"); err != nil {
			t.Error(err)
		}
	})
}
