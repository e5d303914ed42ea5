package localpod

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// A prober connects to a pod from its node, as a kubelet does: capture rules of the pod
// apply to its probes too.
type prober struct {
	node  *Node
	pod   string // its address
	agent string
}

func (p *Pod) prober() prober {
	return prober{p.node, p.facts.addrs[0].String(), fmt.Sprintf("kube-probe/1.%d", p.facts.Kube.Minor)}
}

// dial connects from the node's network.
func (a prober) dial(ctx context.Context, network, address string) (conn net.Conn, err error) {
	entered := a.node.Do(func() error {
		conn, err = (&net.Dialer{}).DialContext(ctx, network, address)
		return nil
	})
	return conn, errors.Join(entered, err)
}

func (a prober) tcp(ctx context.Context, host string, port int) error {
	conn, err := a.dial(ctx, "tcp", net.JoinHostPort(cmp.Or(host, a.pod), strconv.Itoa(port)))
	if err != nil {
		return err
	}
	return conn.Close()
}

// http sends the kubelet's request: status 200 to 399 is success, and so is a redirect to
// another host, which is not followed. Source: pkg/probe/http/http.go of kubernetes v1.34.4.
func (a prober) http(ctx context.Context, h *corev1.HTTPGetAction, port int, judge bool) error {
	scheme := strings.ToLower(cmp.Or(string(h.Scheme), "http"))
	target, err := url.Parse(h.Path)
	if err != nil { // the kubelet takes it as a path
		target = &url.URL{Path: h.Path}
	}
	target.Scheme, target.Host = scheme, net.JoinHostPort(cmp.Or(h.Host, a.pod), strconv.Itoa(port))
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, target.String(), nil)
	if err != nil {
		return err
	}
	request.Header = http.Header{"User-Agent": {a.agent}, "Accept": {"*/*"}, "Connection": {"close"}}
	for _, header := range h.HTTPHeaders {
		request.Header.Add(header.Name, header.Value)
		if http.CanonicalHeaderKey(header.Name) == "Host" {
			request.Host = header.Value
		}
	}
	// The kubelet does not look at certificates: the pod's is for its name, not its address.
	transport := &http.Transport{DialContext: a.dial, DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
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

// grpc calls grpc.health.v1.Health/Check, over HTTP/2 without TLS.
// Source: the gRPC protocol over HTTP/2 (PROTOCOL-HTTP2.md) and health.proto.
func (a prober) grpc(ctx context.Context, port int, service string) error {
	var protocols http.Protocols
	protocols.SetUnencryptedHTTP2(true)
	transport := &http.Transport{DialContext: a.dial, Protocols: &protocols, DisableKeepAlives: true}
	target := "http://" + net.JoinHostPort(a.pod, strconv.Itoa(port)) + "/grpc.health.v1.Health/Check"
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, target, bytes.NewReader(framed(healthRequest(service))))
	if err != nil {
		return err
	}
	request.Header = http.Header{"Content-Type": {"application/grpc"}, "Te": {"trailers"}, "User-Agent": {a.agent}}
	response, err := transport.RoundTrip(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, 64<<10))
	if err != nil {
		return err
	}
	status := cmp.Or(response.Trailer.Get("Grpc-Status"), response.Header.Get("Grpc-Status"))
	if status != "0" {
		return fmt.Errorf("gRPC status %q, HTTP status %d: %s", status, response.StatusCode,
			cmp.Or(response.Trailer.Get("Grpc-Message"), response.Header.Get("Grpc-Message")))
	}
	serving, err := servingStatus(body)
	if err != nil {
		return err
	}
	if serving != 1 {
		return fmt.Errorf("gRPC health status %d, want 1 (SERVING)", serving)
	}
	return nil
}

// healthRequest is HealthCheckRequest{service}: field 1, a string.
func healthRequest(service string) []byte {
	if service == "" {
		return nil
	}
	return append(binary.AppendUvarint([]byte{1<<3 | 2}, uint64(len(service))), service...)
}

// framed is a message as gRPC sends it: not compressed, its length, itself.
func framed(message []byte) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(message))), message...)
}

// servingStatus reads HealthCheckResponse{status}: field 1, an enum; 0 if it is not there.
func servingStatus(body []byte) (uint64, error) {
	if len(body) < 5 || body[0] != 0 || int(binary.BigEndian.Uint32(body[1:])) != len(body)-5 {
		return 0, fmt.Errorf("gRPC answer of %d bytes is not one plain message", len(body))
	}
	message, status := body[5:], uint64(0)
	for len(message) > 0 {
		tag, n := binary.Uvarint(message)
		if n <= 0 || tag&7 != 0 { // the message has no other field that is needed
			return status, nil
		}
		value, m := binary.Uvarint(message[n:])
		if m <= 0 {
			return 0, errors.New("gRPC answer ends within a field")
		}
		if tag>>3 == 1 {
			status = value
		}
		message = message[n+m:]
	}
	return status, nil
}
