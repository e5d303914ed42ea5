package agent

import (
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"

	"outrider.dev/test/agent/harness"
	"outrider.dev/test/process"
)

// Inbound connections that were opened before Envoy started reach the application, with REDIRECT and with TPROXY.
func TestInboundConnectionsBeforeEnvoy(t *testing.T) {
	for _, mode := range []string{"REDIRECT", "TPROXY"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			w := harness.New(t)
			w.Capture = []string{"-m", mode}
			w.Service("server", vip, "server", ports...)
			w.Serve()
			s := w.Pod("server")
			s.Env = []string{"ISTIO_META_INTERCEPTION_MODE=" + mode}
			if mode == "TPROXY" {
				s.Capabilities = []uintptr{unix.CAP_NET_ADMIN}
			}
			s.Greet(91)
			w.Known(1, 1)
			release := holdEnvoy(s)
			agent := s.Agent()
			process.Eventually(t, "the standby listens", func() bool { return s.Bound(15006) }, agent)
			const n = 20
			conns := w.Machine("caller").Connections(netip.AddrPortFrom(s.Address, 91), harness.Pace{Total: n})
			process.Eventually(t, "all are connected", func() bool { return conns.Connected() == n }, agent)
			if s.Bound(15016) {
				t.Fatal("Envoy listens already")
			}
			release()
			agent.Ready()
			status, _ := agent.Status()
			t.Log(spread("from ready to served", served(t, conns.Wait(), status.Since)))
		})
	}
}
