package agent

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"outrider.dev/test/agent/harness"
	"outrider.dev/test/process"
)

// When one of two control planes that share their state is killed, the proxies connect to the other.
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

// When a control plane is killed and restarted repeatedly under load, services in use are not
// affected; a new service is answered, or refused with the reason and answered later.
func TestControlPlaneIsKilledOften(t *testing.T) {
	t.Parallel()
	w, client, _ := two(t)
	used(t, client)
	const news = 200
	addServices(w, news+1)
	want := "server HTTP/1.1"
	// Before the control plane is killed, the agent has to know that this network contains
	// services: until then, connections to an unknown address are passed through.
	process.Eventually(t, "a service of the network is used", func() bool { return fresh(client.Pod, "http://"+newAddress(news)+"/", want)() == nil }, w.Plane(), client)
	// Use kept connections: on a slow machine a new one may be silent for 200 ms, and is then
	// treated as TCP, which uses another cluster.
	known := harness.NewLoad(2, pause, kept(client.Pod, "http://"+vip+"/", want))
	var mu sync.Mutex
	next, refused := 0, []string{}
	unused := harness.NewLoad(2, pause, func() error {
		mu.Lock()
		url := "http://" + newAddress(next%news) + "/"
		next++
		mu.Unlock()
		c := harness.NewClient(client.Pod.Namespace, harness.AppUser)
		defer c.Close()
		got := c.Get(url)
		// On a slow machine a connection may be silent for 200 ms; it is then treated as TCP and
		// refused with a reset. There the control plane may also be away between a cluster and its
		// endpoints for so long (15 s) that Envoy continues without them.
		away := slices.ContainsFunc([]string{planeIsAway, "the control plane sent no cluster for this address in time", "no endpoint is ready"}, func(why string) bool {
			return strings.Contains(got.Body, why)
		})
		if got.Err != nil || got.Status == 503 && away {
			mu.Lock()
			refused = append(refused, url)
			mu.Unlock()
			return nil
		}
		return got.Want(want)
	})
	for range 5 {
		time.Sleep(300 * time.Millisecond) // let the services be used for a while
		w.Plane().Kill()
		w.Serve()
		process.Eventually(t, "the proxy is connected", func() bool { return strings.Contains(w.Proxies(), "client.shop") }, w.Plane(), client)
	}
	judge(t, "a known service", known)
	judge(t, "new services", unused)
	t.Logf("%d new services, %d refused at first", min(next, news), len(refused))
	for _, url := range refused {
		process.Eventually(t, url, func() bool { return fresh(client.Pod, url, want)() == nil }, w.Plane(), client)
	}
}

// addServices adds n services of the server, at addresses from newAddress on, to a world that already has one.
func addServices(w *harness.World, n int) {
	w.T.Helper()
	var list strings.Builder
	for i := range n {
		fmt.Fprintf(&list, "---\napiVersion: v1\nkind: Service\nmetadata: {name: new-%d, namespace: shop}\n"+
			"spec: {clusterIP: %s, selector: {app: server}, ports: [{name: http, port: 80}]}\n", i, newAddress(i))
	}
	w.Manifest("news", list.String())
	w.Known(1+n, 2)
}

func newAddress(i int) string { return fmt.Sprintf("10.97.%d.%d", i/250, i%250+1) }
