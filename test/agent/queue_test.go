package agent

import (
	"net"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"outrider.dev/test/agent/harness"
	"outrider.dev/test/process"
)

// keeps is the agent's log message after it has duplicated the descriptors of Envoy's listening sockets.
const keeps = "keeps the proxy's listening sockets"

// Connections that Envoy had not accepted when it exited are served by the next Envoy. In this test Envoy is
// stopped by SIGSTOP before the connections are opened, so that it accepts none.
func TestQueueOfADeadEnvoy(t *testing.T) {
	t.Parallel()
	for _, direction := range []string{"outbound", "inbound"} {
		t.Run(direction, func(t *testing.T) {
			t.Parallel()
			w, victim, server := two(t)
			caller, to := victim.Pod, net.JoinHostPort(vip, "91")
			used(t, victim)
			if direction == "inbound" {
				victim, caller, to = server, w.Machine("outsider"), net.JoinHostPort(server.Pod.Address.String(), "91")
			}
			dial := harness.Dialer(caller.Namespace, harness.AppUser)
			for life := range 2 {
				envoy := victim.Envoy()
				process.Eventually(t, "the agent keeps the sockets", func() bool { return strings.Count(victim.Log(), keeps) == 2*(life+1) }, victim)
				if err := unix.Kill(envoy, unix.SIGSTOP); err != nil {
					t.Fatal(err)
				}
				process.Eventually(t, "Envoy is stopped", func() bool { return process.Stopped(envoy) }, victim)
				var queued [200]net.Conn
				for i := range queued {
					conn, err := dial(t.Context(), "tcp", to)
					if err != nil {
						t.Fatal(err)
					}
					defer conn.Close()
					queued[i] = conn
				}
				harness.KillAndWatch(t, envoy)
				var reading sync.WaitGroup
				for i, conn := range queued {
					reading.Go(func() {
						if got, err := firstLine(conn); got != "server speaks first\n" {
							t.Errorf("life %d, connection %d: %q, %v", life, i, got, err)
						}
					})
				}
				reading.Wait()
				victim.Ready()
			}
		})
	}
}
