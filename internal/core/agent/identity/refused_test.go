package identity

import (
	"context"
	"crypto/tls"
	"net"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"

	"outrider.dev/test/tier"
)

// An openListener counts the open connections.
type openListener struct {
	net.Listener
	mu   sync.Mutex
	now  int
	none chan struct{} // closed while no connection is open
}

func (o *openListener) add(n int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch o.now += n; {
	case o.now == 0:
		close(o.none)
	case o.now == 1 && n == 1:
		o.none = make(chan struct{})
	}
}

func (o *openListener) Accept() (net.Conn, error) {
	c, err := o.Listener.Accept()
	if err != nil {
		return nil, err
	}
	o.add(1)
	return &counted{Conn: c, of: o}, nil
}

type counted struct {
	net.Conn
	of   *openListener
	once sync.Once
}

func (c *counted) Close() error {
	c.once.Do(func() { c.of.add(-1) })
	return c.Conn.Close()
}

// A call that is refused before its request is read leaves no connection open. A control plane that
// counts connections would otherwise refuse the pod's next ones.
func TestARefusedCallLeavesNoConnection(t *testing.T) {
	p := newPlane(t)
	serving := must(p.authority.NewServing(must(parse(planeID)), []string{planeName}, 0))
	s := grpc.NewServer(grpc.Creds(credentials.NewTLS(serving.TLS())), grpc.InTapHandle(func(ctx context.Context, _ *tap.Info) (context.Context, error) {
		return ctx, status.Error(codes.ResourceExhausted, "too many calls")
	}))
	listener := &openListener{Listener: must(net.Listen("tcp", "127.0.0.1:0")), none: make(chan struct{})}
	close(listener.none)
	go s.Serve(listener)
	t.Cleanup(s.Stop)
	o := p.options(t)
	o.Client.Address = listener.Addr().String()
	calls := tier.Times(100, 300)
	t.Logf("%d calls; 300 with OUTRIDER_NIGHTLY=1", calls)
	for range calls {
		if _, err := o.Client.CreateCertificate(t.Context(), Call{CSR: []byte("x"), Certificate: &tls.Certificate{}}); err == nil {
			t.Fatal("a certificate")
		}
	}
	listener.mu.Lock()
	none := listener.none
	listener.mu.Unlock()
	select {
	case <-none:
	case <-time.After(time.Minute):
		listener.mu.Lock()
		defer listener.mu.Unlock()
		t.Errorf("%d connections are open", listener.now)
	}
}
