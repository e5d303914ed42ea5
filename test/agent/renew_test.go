package agent

import (
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"outrider.dev/test/agent/harness"
	"outrider.dev/test/process"
)

// touched returns the number of addresses to which a test of Envoy's memory connects: OUTRIDER_TOUCHED, or a
// default. Measurements use 3395.
func touched() int {
	n, err := strconv.Atoi(os.Getenv("OUTRIDER_TOUCHED"))
	if err != nil {
		n = 600
	}
	return n
}

// The memory of an Envoy grows if its application connects to many addresses. The agent replaces such an Envoy when
// it has no open connection. No connection is cut, and new connections do not fail.
func TestEnvoyIsRenewed(t *testing.T) {
	t.Parallel()
	n := touched()
	w := harness.New(t)
	renews := []string{"OUTRIDER_RENEW_AFTER=1s"}
	client, _ := pair(w, func(c, _ *harness.Pod) { c.Env = renews })
	used(t, client)
	to := w.Machine("outsider").Address.String()
	twin := w.Pod("twin")
	twin.Env = renews
	other := twin.Agent()
	other.Ready()
	used(t, other)
	renewed(t, client, other, func(p *harness.Pod) {
		var next atomic.Int64
		var touching sync.WaitGroup
		for range 4 {
			touching.Go(func() {
				for i := next.Add(1) - 1; i < int64(n); i = next.Add(1) - 1 {
					c, err := harness.Dialer(p.Namespace, harness.AppUser)(t.Context(), "tcp", net.JoinHostPort(to, fmt.Sprint(20000+i)))
					if err != nil {
						t.Errorf("%d: %v", i, err)
						continue
					}
					io.Copy(io.Discard, c) // until Envoy closes the connection, because the destination refused
					c.Close()
				}
			})
		}
		touching.Wait()
	})
}

// renewed makes the Envoys of two pods grow, first the client's. The client has an open connection, so its Envoy
// must not be replaced, while the Envoy of the other pod must. When the connection is closed, the client's Envoy
// must be replaced too.
func renewed(t *testing.T, client, other *harness.Agent, grow func(*harness.Pod)) {
	kept, err := harness.Dialer(client.Pod.Namespace, harness.AppUser)(t.Context(), "tcp", vip+":90")
	if err != nil {
		t.Fatal(err)
	}
	defer kept.Close()
	echo := func(word string) {
		t.Helper()
		kept.SetDeadline(time.Time{})
		fmt.Fprintln(kept, word)
		if got, err := firstLine(kept); got != word+"\n" {
			t.Errorf("on a connection that is kept: %q, %v", got, err)
		}
	}
	echo("before")
	envoy, plane := client.Envoy(), client.Pod.World.Plane().PID()
	begin := harness.Resident(envoy)
	grow(client.Pod)
	grown, planeGrown := harness.Resident(envoy), harness.Resident(plane)
	load := harness.NewLoad(1, 100*time.Millisecond, fresh(client.Pod, "http://"+vip+"/", "server HTTP/1.1"))
	replaced := func(a *harness.Agent, envoy int) {
		t.Helper()
		process.Eventually(t, "another Envoy of "+a.Pod.Name, func() bool {
			now, ok := a.Child()
			return ok && now != envoy
		}, a)
	}
	first := other.Envoy()
	grow(other.Pod)
	replaced(other, first)
	echo("meanwhile")
	if now := client.Envoy(); now != envoy {
		t.Errorf("Envoy was replaced, by process %d, with a connection open", now)
	}
	kept.Close()
	closed := time.Now()
	replaced(client, envoy)
	after := time.Since(closed)
	client.Ready()
	end := harness.Resident(client.Envoy())
	judge(t, "new connections", load)
	t.Logf("Envoy had %d MiB, %d after them, %d %s after the last connection; the control plane %d and %d",
		begin>>20, grown>>20, end>>20, after.Round(time.Second), planeGrown>>20, harness.Resident(plane)>>20)
	if fell := grown - end; fell < (grown-begin)*3/4 {
		t.Errorf("of %d MiB more %d were given back", (grown-begin)>>20, fell>>20)
	}
}
