package agent

import (
	"flag"
	"slices"
	"testing"
	"time"

	"outrider.dev/test/agent/harness"
	"outrider.dev/test/process"
)

var allDelays = flag.Bool("delays", false, "try round trips of 0, 250 and 500 ms to the control plane too")

// maxRoundTrips is the maximum number of round trips on each of a new pod's connections until the proxy is
// ready: one for TCP, one for TLS, one for the certificate or the configuration, and one in reserve. If the
// workload has used services before (prewarmed), the proxy also receives their clusters, and then requests
// the endpoints.
const maxRoundTrips, maxRoundTripsPrewarmed = 4, 6

// A long round-trip time to the control plane delays the start of a proxy by a fixed number of round trips.
// It does not make first calls fail.
func TestDelayToControlPlane(t *testing.T) {
	t.Parallel()
	delays := []time.Duration{time.Second}
	if *allDelays {
		delays = []time.Duration{0, 250 * time.Millisecond, 500 * time.Millisecond, time.Second}
	}
	for _, delay := range delays {
		t.Run(delay.String(), func(t *testing.T) {
			w := harness.New(t)
			w.Service("server", vip, "server", ports...)
			w.Service("other", "10.96.0.11", "server", ports...)
			w.Serve()
			line := w.Line(delay)
			c, s := w.Pod("client"), w.Pod("server")
			c.Plane = line.Address
			app(s)
			w.Known(2, 2)
			s.Agent().Ready()
			for i, what := range []string{"a new pod", "a new agent, with its certificate"} {
				most := []int{maxRoundTrips, maxRoundTripsPrewarmed}[i]
				before := len(line.RoundTrips())
				begin := time.Now()
				a := c.Agent()
				a.Ready()
				trips := line.RoundTrips()[before:]
				t.Logf("%s: ready after %s, round trips of its connections: %v", what, time.Since(begin).Round(time.Millisecond), trips)
				if delay > 0 && slices.Max(trips) > most {
					t.Errorf("%s: %v round trips, want at most %d", what, trips, most)
				}
				for _, url := range []string{"http://" + vip + "/", "http://10.96.0.11/"} {
					begin := time.Now()
					if err := fresh(c, url, "server HTTP/1.1")(); err != nil {
						t.Errorf("%s: the first call: %v", what, err)
					}
					t.Logf("%s: a first call took %s", what, time.Since(begin).Round(time.Millisecond))
				}
				for _, service := range []string{"server", "other"} {
					process.Eventually(t, "the endpoints of "+service+" are kept", func() bool { return c.Kept(service, 80) }, a)
				}
				envoy := a.Envoy()
				a.Kill()
				process.AwaitEnd(t, envoy)
			}
		})
	}
}
