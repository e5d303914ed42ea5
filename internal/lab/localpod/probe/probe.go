// Package probe makes the requests of a kubelet's hooks and probes, by HTTP, TCP and gRPC, and evaluates the
// answers as a kubelet does.
package probe

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	corev1 "k8s.io/api/core/v1"
)

// A Prober makes requests to a pod.
type Prober struct {
	Dial  func(ctx context.Context, network, address string) (net.Conn, error)
	Pod   string // IP address of the pod
	Agent string // value of the header User-Agent
}

// TCP succeeds if the connection is accepted.
func (p Prober) TCP(ctx context.Context, host string, port int) error {
	conn, err := p.Dial(ctx, "tcp", net.JoinHostPort(cmp.Or(host, p.Pod), strconv.Itoa(port)))
	if err != nil {
		return err
	}
	return conn.Close()
}

// HTTP sends the request of a hook or probe. If judge is true, statuses 200 to 399 are a success, and so is a
// redirect to another host, which is not followed; if it is false, any response is a success. Source:
// pkg/probe/http/http.go of kubernetes v1.34.4.
func (p Prober) HTTP(ctx context.Context, h *corev1.HTTPGetAction, port int, judge bool) error {
	scheme := strings.ToLower(cmp.Or(string(h.Scheme), "http"))
	target, err := url.Parse(h.Path)
	if err != nil { // like the kubelet, treat it as a path
		target = &url.URL{Path: h.Path}
	}
	target.Scheme, target.Host = scheme, net.JoinHostPort(cmp.Or(h.Host, p.Pod), strconv.Itoa(port))
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, target.String(), nil)
	if err != nil {
		return err
	}
	request.Header = http.Header{"User-Agent": {p.Agent}, "Accept": {"*/*"}, "Connection": {"close"}}
	for _, header := range h.HTTPHeaders {
		request.Header.Add(header.Name, header.Value)
		if http.CanonicalHeaderKey(header.Name) == "Host" {
			request.Host = header.Value
		}
	}
	// Like the kubelet, do not verify certificates: they contain names, and the request goes to an address.
	transport := &http.Transport{DialContext: p.Dial, DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	defer transport.CloseIdleConnections()
	client := http.Client{Transport: transport, CheckRedirect: func(next *http.Request, via []*http.Request) error {
		if next.URL.Hostname() != via[0].URL.Hostname() {
			return http.ErrUseLastResponse
		}
		if len(via) >= 10 {
			return errors.New("stopped after 10 redirects")
		}
		return nil
	}}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, 10<<10))
	switch {
	case !judge:
		return nil
	case err != nil:
		return err
	case response.StatusCode >= 200 && response.StatusCode < 400:
		return nil
	}
	return fmt.Errorf("HTTP status %d: %s", response.StatusCode, strings.TrimSpace(string(body[:min(len(body), 200)])))
}

// GRPC calls grpc.health.v1.Health/Check, without TLS. Source: pkg/probe/grpc/grpc.go of kubernetes v1.34.4.
func (p Prober) GRPC(ctx context.Context, port int, service string) error {
	dial := func(ctx context.Context, address string) (net.Conn, error) { return p.Dial(ctx, "tcp", address) }
	conn, err := grpc.NewClient("passthrough:///"+net.JoinHostPort(p.Pod, strconv.Itoa(port)), grpc.WithContextDialer(dial),
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithUserAgent(p.Agent))
	if err != nil {
		return err
	}
	defer conn.Close()
	answer, err := healthpb.NewHealthClient(conn).Check(ctx, &healthpb.HealthCheckRequest{Service: service})
	if err != nil {
		return err
	}
	if answer.Status != healthpb.HealthCheckResponse_SERVING {
		return fmt.Errorf("gRPC health status %s, want SERVING", answer.Status)
	}
	return nil
}
