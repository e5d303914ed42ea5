package supervise

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestPausesDoubleUntilOneServesLongEnough(t *testing.T) {
	b := standard
	b.ends, b.unready = 1000, 1000
	var h history
	now := time.Unix(0, 0)
	var got []time.Duration
	end := func(served time.Duration) {
		now = now.Add(time.Second)
		pause, why := h.ended(b, now, served, 0.5) // 0.5: no spread
		if why != "" {
			t.Fatal(why)
		}
		got = append(got, pause)
	}
	for range 8 {
		end(0)
	}
	end(999 * time.Millisecond)
	end(time.Second)
	end(3 * time.Second)
	end(0)
	ms := time.Millisecond
	want := []time.Duration{0, 50 * ms, 100 * ms, 200 * ms, 400 * ms, 800 * ms, 1000 * ms, 1000 * ms, 1000 * ms, 0, 0, 50 * ms}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("pauses (-want +got):\n%s", diff)
	}
}

func TestPausesAreSpread(t *testing.T) {
	for jitter, want := range map[float64]time.Duration{0: 75 * time.Millisecond, 0.5: 100 * time.Millisecond, 1: 125 * time.Millisecond} {
		h := history{streak: 2}
		if got, _ := h.ended(standard, time.Unix(0, 0), 0, jitter); got != want {
			t.Errorf("jitter %v: %v, want %v", jitter, got, want)
		}
	}
}

func TestGivingUp(t *testing.T) {
	tests := map[string]struct {
		every, served time.Duration
		want          int // number of ends until it gives up; 0: not within a thousand
	}{
		"never ready":                        {time.Second, 0, 8},
		"ready each time, ends quickly":      {time.Second, time.Millisecond, 30},
		"ready for 3 s each time":            {3100 * time.Millisecond, 3 * time.Second, 0},
		"ready each time, ends now and then": {11 * time.Second, 10 * time.Second, 0},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var h history
			now, got := time.Unix(0, 0), 0
			for i := 1; i <= 1000 && got == 0; i++ {
				now = now.Add(tt.every)
				if _, why := h.ended(standard, now, tt.served, 0); why != "" {
					got = i
				}
			}
			if got != tt.want {
				t.Errorf("given up at %d, want %d", got, tt.want)
			}
			if len(h.ends) > standard.ends {
				t.Errorf("%d ends are kept", len(h.ends))
			}
		})
	}
}
