package page

import (
	"bytes"
	"testing"
)

// BenchmarkFleet formats a fleet of a thousand pods as a page and as a table.
func BenchmarkFleet(b *testing.B) {
	reports := Made(1000)
	for _, format := range []string{"html", "text", "json"} {
		b.Run(format, func(b *testing.B) {
			var out bytes.Buffer
			for b.Loop() {
				out.Reset()
				if err := Write(&out, reports, Options{Format: format, Fleet: true}); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(out.Len())/float64(len(reports)), "bytes/pod")
		})
	}
}
