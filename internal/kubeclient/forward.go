package kubeclient

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"

	"k8s.io/apimachinery/pkg/util/httpstream"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/transport/spdy"
)

// Forward forwards a port of a pod to this machine until stop is called, as "kubectl
// port-forward" does: the connection comes to the pod from its own loopback.
func (c *Client) Forward(ctx context.Context, namespace, pod string, port int) (address string, stop func(), err error) {
	what := fmt.Sprintf("forwarding port %d of pod %s/%s", port, namespace, pod)
	dialer, err := c.dialer(namespace, pod)
	if err != nil {
		return "", nil, fmt.Errorf("%s: %w", what, err)
	}
	ending, ready, ended := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	var trouble bytes.Buffer // read after the forwarder has ended
	f, err := portforward.NewOnAddresses(dialer, []string{"127.0.0.1"}, []string{"0:" + strconv.Itoa(port)}, ending, ready, io.Discard, &trouble)
	if err != nil {
		return "", nil, fmt.Errorf("%s: %w", what, err)
	}
	go func() { ended <- f.ForwardPorts() }()
	select {
	case <-ready:
	case err := <-ended:
		return "", nil, fmt.Errorf("%s: %w", what, err)
	case <-ctx.Done():
		close(ending)
		return "", nil, fmt.Errorf("%s: %w", what, ctx.Err())
	}
	ports, err := f.GetPorts()
	if err != nil {
		close(ending)
		return "", nil, fmt.Errorf("%s: %w", what, err)
	}
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(int(ports[0].Local))), func() { close(ending); <-ended }, nil
}

// dialer speaks the protocol of the API server: WebSockets, or SPDY with one that is older than
// 1.30 or behind a proxy that knows no WebSockets.
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
