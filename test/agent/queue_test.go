package agent

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"outrider.dev/test/agent/harness"
	"outrider.dev/test/process"
)

// keeps is the agent's log line once it shares Envoy's listening sockets.
const keeps = "keeps the proxy's listening sockets"

// Connections that were not accepted when Envoy exited are served by the next Envoy. Envoy is
// stopped first, so that it accepts none.
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
				process.Eventually(t, "Envoy is stopped", func() bool { return harness.Stopped(envoy) }, victim)
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

// Connections are opened continuously while Envoys are killed, exit by themselves, or are stopped
// and then killed. A connection that was opened before an Envoy's end may have been accepted by it,
// and is lost with it; all others are served. OUTRIDER_CONNECTIONS is the number of connections
// (for a measurement 10000; default 300).
func TestNewConnectionsAtRestarts(t *testing.T) {
	t.Parallel()
	_, client, _ := two(t)
	used(t, client)
	want, _ := strconv.Atoi(os.Getenv("OUTRIDER_CONNECTIONS"))
	if want == 0 {
		want = 300
	}
	dial := harness.Dialer(client.Pod.Namespace, harness.AppUser)
	var made atomic.Int64
	load := harness.NewLoad(16, 0, func() error {
		made.Add(1)
		conn, err := dial(t.Context(), "tcp", vip+":91")
		if err != nil {
			return err
		}
		defer conn.Close()
		if got, err := firstLine(conn); got != "server speaks first\n" {
			return fmt.Errorf("%q: %w", got, err)
		}
		return nil
	})
	// A death is one end of an Envoy, which may have accepted connections until deaf.
	type death struct{ begin, deaf, end time.Time }
	var deaths []death
	ways := []func(envoy int, d *death){
		func(envoy int, _ *death) { unix.Kill(envoy, unix.SIGKILL) },
		func(envoy int, _ *death) { unix.Kill(envoy, unix.SIGTERM) },
		func(envoy int, d *death) {
			unix.Kill(envoy, unix.SIGSTOP)
			process.Eventually(t, "Envoy is stopped", func() bool { return harness.Stopped(envoy) }, client)
			d.deaf = time.Now()
			time.Sleep(20 * time.Millisecond) // some connections arrive
			unix.Kill(envoy, unix.SIGKILL)
		},
	}
	for len(deaths) < len(ways) || int(made.Load()) < want { // the agent gives up after 30 restarts
		process.Eventually(t, "the queue outlives the Envoy", func() bool {
			return strings.Count(client.Log(), `"keeps the proxy's listening sockets","port":15001`) > len(deaths)
		}, client)
		before, envoy := made.Load(), client.Envoy()
		process.Eventually(t, "connections are made", func() bool { return made.Load() >= before+int64(want/21) }, client)
		d := death{begin: time.Now()}
		ways[len(deaths)%len(ways)](envoy, &d)
		process.AwaitEnd(t, envoy)
		if d.end = time.Now(); d.deaf.IsZero() {
			d.deaf = d.end
		}
		next(t, client, len(deaths))
		deaths = append(deaths, d)
	}
	total, slowest, failed := load.Stop()
	accepted, late := 0, time.Duration(0)
	for _, f := range failed {
		excused := false
		for _, d := range deaths {
			if f.Begin.Before(d.deaf) && f.End.After(d.begin) {
				excused, late = true, max(late, f.End.Sub(d.end))
				break
			}
		}
		if !excused || errors.Is(f.Err, syscall.ECONNREFUSED) {
			t.Errorf("%v", f)
		}
		accepted++
	}
	t.Logf("%d connections, %d ends of Envoy, %d lost that an Envoy may have accepted (the last %s after its end), slowest %s",
		total, len(deaths), accepted, late, slowest.Round(time.Millisecond))
}
