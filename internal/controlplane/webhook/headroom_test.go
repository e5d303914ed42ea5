package webhook

import (
	"runtime"
	"testing"
)

func TestTheCollectorWaitsUnlessTheOperatorSaysWhen(t *testing.T) {
	next := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.NextGC
	}
	for name, tt := range map[string]struct {
		gogc, limit string
		waits       bool
	}{
		"by default":         {waits: true},
		"GOGC is set":        {gogc: "100"},
		"a limit is set":     {limit: "1GiB"},
		"both are, as usual": {gogc: "100", limit: "off"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("GOGC", tt.gogc)
			t.Setenv("GOMEMLIMIT", tt.limit)
			before := next()
			memory := Headroom()
			if after := next(); (after >= before+headroom) != tt.waits {
				t.Errorf("the collector runs at %d bytes, before %d; want it to wait: %v", after, before, tt.waits)
			}
			runtime.KeepAlive(memory)
		})
	}
}
