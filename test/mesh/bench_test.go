package mesh

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"outrider.dev/internal/core/mesh"
)

// BenchmarkFirstUse measures the first use of a service, which costs its proxy a round trip to the
// control plane.
func BenchmarkFirstUse(b *testing.B) {
	const services = 250
	s := newShop(b)
	for i := range services {
		s.service(fmt.Sprintf("many%d", i), fmt.Sprintf("10.97.0.%d", i+1), "server", port(8080, mesh.HTTP))
	}
	c := s.client.client()
	get(c, "http://10.96.0.1:8080/")
	var times [2][]time.Duration // of a first and a second use
	for i := range services {
		for j := range times {
			begin := time.Now()
			if got := get(c, fmt.Sprintf("http://10.97.0.%d:8080/", i+1)); got[:3] != "200" {
				b.Fatal(got)
			}
			times[j] = append(times[j], time.Since(begin))
		}
	}
	at := func(list []time.Duration, percent int) float64 {
		slices.Sort(list)
		return float64(list[len(list)*percent/100]) / float64(time.Millisecond)
	}
	for _, percent := range []int{50, 99} {
		for j, name := range []string{"first", "second"} {
			b.ReportMetric(at(times[j], percent), fmt.Sprintf("ms-%s-p%d", name, percent))
		}
	}
}
