package identity

import (
	"slices"
	"testing"
	"time"
)

// report gives the spread of a figure.
func report(b *testing.B, all []time.Duration) {
	slices.Sort(all)
	for name, d := range map[string]time.Duration{"min-ms": all[0], "p50-ms": all[len(all)/2], "max-ms": all[len(all)-1]} {
		b.ReportMetric(float64(d.Microseconds())/1000, name)
	}
}
