package agent

import (
	"testing"
	"time"

	"outrider.dev/test/agent/harness"
	"outrider.dev/test/process"
)

// When one of two control planes that share their state is killed, the proxies connect to the other one and
// still receive changes.
func TestReplicas(t *testing.T) {
	t.Parallel()
	w := harness.New(t)
	w.Service("server", vip, "server", ports...)
	front, first, second := w.Replicas()
	c, s := w.Pod("client"), w.Pod("server")
	for _, p := range []*harness.Pod{c, s} {
		p.Plane = front
	}
	app(s)
	w.Known(1, 2)
	url, want := "http://"+vip+"/", "server HTTP/1.1"
	server, client := s.Agent(), c.Agent()
	server.Ready()
	client.Ready()
	if err := fresh(c, url, want)(); err != nil {
		t.Fatal(err)
	}
	w.Service("new", "10.96.0.11", "server", ports...)
	w.Known(2, 2)
	load := harness.NewLoad(2, pause, kept(c, url, want))
	first.Kill()
	after := process.Eventually(t, "a new service", func() bool { return fresh(c, "http://10.96.0.11/", want)() == nil }, second, client, server)
	t.Logf("a new service is served %s after the death of one", after.Round(time.Millisecond))
	judge(t, "a known service", load)
}
