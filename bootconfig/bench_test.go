package bootconfig

import (
	"testing"
)

// BenchmarkGet measures the time of Config.Get, from one goroutine and from all processors at once.
func BenchmarkGet(b *testing.B) {
	c, err := Open(b.Context(), Options[settings]{Provider: script(hang)})
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	b.Run("one", func(b *testing.B) {
		b.ReportAllocs()
		n := 0
		for b.Loop() {
			n += c.Get().N
		}
		_ = n
	})
	b.Run("parallel", func(b *testing.B) {
		b.ReportAllocs()
		b.RunParallel(func(p *testing.PB) {
			n := 0
			for p.Next() {
				n += c.Get().N
			}
			_ = n
		})
	})
}
