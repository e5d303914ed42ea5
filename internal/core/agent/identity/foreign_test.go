package identity

import (
	"crypto/tls"
	"io"
	"strings"
	"testing"
	"time"

	"outrider.dev/internal/base/contract"
)

// The client does not send the token to a control plane that is not outriderd but has the names of
// istiod, even though the pod trusts its root.
func TestForeignControlPlane(t *testing.T) {
	p := newPlane(t)
	istiod := []string{"istiod.istio-system.svc", "istiod.istio-system"}
	for name, tt := range map[string]struct {
		names     []string
		outriderd bool
		refused   bool
	}{
		"configuration from istiod":                     {istiod, true, true},
		"certificates alone, from istiod":               {istiod, false, false},
		"configuration from outriderd with other names": {append([]string{contract.ControlPlaneName}, istiod...), true, false},
	} {
		t.Run(name, func(t *testing.T) {
			serving := must(p.authority.NewServing(must(parse(planeID)), tt.names, 0))
			l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{*must(serving.Certificate())}, NextProtos: []string{"h2"}})
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			sent := make(chan int64, 1)
			go func() {
				conn, err := l.Accept()
				if err != nil {
					sent <- -1
					return
				}
				defer conn.Close()
				conn.SetDeadline(time.Now().Add(60 * time.Second))
				n, _ := io.CopyN(io.Discard, conn, 24) // the preface of HTTP/2 has 24 bytes
				sent <- n
			}()
			c := p.options(t).Client
			c.Address, c.Identity, c.Outriderd = l.Addr().String(), istiod[:1], tt.outriderd
			_, f := request(t, c, 60*time.Second)
			if got := <-sent; (got == 0) != tt.refused {
				t.Errorf("%d bytes are sent after the handshake; want that they are refused: %t", got, tt.refused)
			}
			refused := f != nil && f.Kind == Untrusted && strings.Contains(f.Reason, "and no outriderd: outrider-agent takes its configuration from outriderd only")
			if refused != tt.refused {
				t.Errorf("%v; want that it is refused: %t", f, tt.refused)
			}
		})
	}
}
