package cluster_test

import (
	"os"
	"slices"
	"testing"
	"time"

	"outrider.dev/test/cluster"
)

// BenchmarkUpDown is where the figures in README.md are from:
//
//	OUTRIDER_E2E=1 go test -run '^$' -bench UpDown -benchtime 7x ./test/cluster
func BenchmarkUpDown(b *testing.B) {
	if os.Getenv("OUTRIDER_E2E") != "1" {
		b.Skip("brings up a real cluster: set OUTRIDER_E2E=1")
	}
	o := cluster.Options{Version: os.Getenv("KUBE"), Runtime: os.Getenv("RUNTIME"), Dir: b.TempDir()}
	if err := cluster.Build(b.Context(), o); err != nil {
		b.Fatal(err)
	}
	var ups, downs, memory []float64
	for b.Loop() {
		start := time.Now()
		c, err := cluster.Up(b.Context(), o)
		if err != nil {
			b.Fatal(err)
		}
		ups = append(ups, time.Since(start).Seconds())
		time.Sleep(2 * time.Second) // what is started last settles
		now, _, err := c.Memory()
		if err != nil {
			b.Error(err)
		}
		memory = append(memory, float64(now>>20))
		start = time.Now()
		if err := c.Down(); err != nil {
			b.Fatal(err)
		}
		downs = append(downs, time.Since(start).Seconds())
	}
	for unit, samples := range map[string][]float64{"s-up": ups, "s-down": downs, "MiB": memory} {
		slices.Sort(samples)
		b.ReportMetric(samples[0], unit+"-min")
		b.ReportMetric(samples[len(samples)/2], unit+"-median")
		b.ReportMetric(samples[len(samples)-1], unit+"-max")
	}
	b.ReportMetric(0, "ns/op") // would count the pauses
}
