package agent

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"outrider.dev/test/agent/harness"
	"outrider.dev/test/process"
)

// holdEnvoy replaces Envoy by a program that executes the real Envoy once release is called.
func holdEnvoy(p *harness.Pod) (release func()) {
	t := p.World.T
	t.Helper()
	door, program := filepath.Join(p.Dir, "door"), filepath.Join(p.Dir, "held-envoy")
	err := unix.Mkfifo(door, 0o644)
	if err == nil {
		err = os.WriteFile(program, fmt.Appendf(nil, "#!/bin/sh\nread -r _ <%s\nexec %s \"$@\"\n", door, p.Envoy), 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	p.Envoy = program
	return func() {
		// Open the FIFO for reading and writing, because opening it only for writing blocks until there
		// is a reader.
		f, err := os.OpenFile(door, os.O_RDWR, 0)
		if err == nil {
			_, err = f.WriteString("go\n")
			t.Cleanup(func() { f.Close() })
		}
		if err != nil {
			t.Error(err)
		}
	}
}

// early makes a mesh with a client whose agent runs, and whose Envoy starts when release is called. The server sends
// a line on each connection to port 91 of vip, which is the second result.
func early(t *testing.T) (client *harness.Agent, called netip.AddrPort, release func()) {
	t.Helper()
	w := harness.New(t)
	w.Service("server", vip, "server", ports...)
	w.Serve()
	c, s := w.Pod("client"), w.Pod("server")
	s.Greet(91)
	w.Known(1, 2)
	s.Agent().Ready()
	release = holdEnvoy(c)
	client = c.Agent()
	process.Eventually(t, "the standby listens", func() bool { return c.Bound(15001) }, client)
	return client, netip.MustParseAddrPort(vip + ":91"), release
}

// served fails the test for each call that got no answer. For each other call it returns the time from the argument
// since until the answer.
func served(t *testing.T, calls []harness.Call, since time.Time) (delays []time.Duration) {
	t.Helper()
	lost := 0
	for i, call := range calls {
		if call.Err != nil {
			if lost++; lost == 1 {
				t.Errorf("connection %d: %v", i, call.Err)
			}
			continue
		}
		delays = append(delays, max(0, call.Served.Sub(since)))
	}
	if lost > 0 {
		t.Errorf("%d of %d were not served", lost, len(calls))
	}
	return delays
}

// After its start, Envoy serves all connections that were opened before. bench/agent measures the delay.
func TestConnectionsBeforeEnvoy(t *testing.T) {
	for _, n := range []int{20, 2000} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			client, called, release := early(t)
			conns := client.Pod.Connections(called, harness.Pace{Total: n})
			process.Eventually(t, "all are connected", func() bool { return conns.Connected() == n }, client)
			if client.Pod.Bound(15007) {
				t.Fatal("Envoy listens already")
			}
			release()
			client.Ready()
			status, _ := client.Status()
			t.Log(spread("from ready to served", served(t, conns.Wait(), status.Since)))
		})
	}
}
