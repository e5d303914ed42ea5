package kubeclient

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync"

	"k8s.io/apimachinery/pkg/util/httpstream"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/transport/spdy"
)

// Forward forwards a free port of this machine to a port of a pod until stop is called, like "kubectl port-forward".
// In the pod, connections come from its own loopback address.
func (c *Client) Forward(ctx context.Context, namespace, pod string, port int) (address string, stop func(), err error) {
	address, _, stop, err = c.ForwardTo(ctx, 0, namespace, pod, port)
	return address, stop, err
}

// ForwardTo forwards a port of this machine to a port of a pod. The port of this machine is local, or a free one if
// local is 0. The channel lost receives an error if the forwarding ends before stop is called, for example because
// the pod is deleted.
func (c *Client) ForwardTo(ctx context.Context, local int, namespace, pod string, port int) (address string, lost <-chan error, stop func(), err error) {
	what := fmt.Sprintf("forwarding port %d of pod %s/%s", port, namespace, pod)
	dialer, err := c.dialer(namespace, pod)
	if err != nil {
		return "", nil, nil, fmt.Errorf("%s: %w", what, err)
	}
	ending, ready, ended, gone := make(chan struct{}), make(chan struct{}), make(chan error, 1), make(chan struct{})
	var trouble bytes.Buffer // read only after the forwarder has ended
	f, err := portforward.NewOnAddresses(dialer, []string{"127.0.0.1"}, []string{fmt.Sprintf("%d:%d", local, port)}, ending, ready, io.Discard, &trouble)
	if err != nil {
		return "", nil, nil, fmt.Errorf("%s: %w", what, err)
	}
	go func() {
		defer close(gone)
		ended <- f.ForwardPorts()
	}()
	select {
	case <-ready:
	case err := <-ended:
		return "", nil, nil, fmt.Errorf("%s: %w", what, err)
	case <-ctx.Done():
		close(ending)
		return "", nil, nil, fmt.Errorf("%s: %w", what, ctx.Err())
	}
	ports, err := f.GetPorts()
	if err != nil {
		close(ending)
		return "", nil, nil, fmt.Errorf("%s: %w", what, err)
	}
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(int(ports[0].Local))), ended, sync.OnceFunc(func() { close(ending); <-gone }), nil
}

// dialer returns a dialer that uses WebSockets. It falls back to SPDY if the API server is older than 1.30, or
// behind a proxy that does not support WebSockets.
func (c *Client) dialer(namespace, pod string) (httpstream.Dialer, error) {
	transport, upgrader, err := spdy.RoundTripperFor(c.Config)
	if err != nil {
		return nil, err
	}
	at := c.Core.CoreV1().RESTClient().Post().Resource("pods").Namespace(namespace).Name(pod).SubResource("portforward").URL()
	older := spdy.NewDialer(upgrader, &http.Client{Transport: transport}, http.MethodPost, at)
	tunnel, err := portforward.NewSPDYOverWebsocketDialer(at, c.Config)
	if err != nil {
		return nil, err
	}
	return portforward.NewFallbackDialer(tunnel, older, func(err error) bool {
		return httpstream.IsUpgradeFailure(err) || httpstream.IsHTTPSProxyError(err)
	}), nil
}
