package startup

import "testing"

func TestDistance(t *testing.T) {
	for _, tt := range []struct {
		a, b string
		want int
	}{
		{"", "", 0}, {"start", "start", 0}, {"", "gate", 4},
		{"strat", "start", 1}, {"pakr", "park", 1}, {"ab", "ba", 1}, // neighbours swapped
		{"stat", "start", 1}, {"starrt", "start", 1}, {"stert", "start", 1},
		{"trats", "start", 3}, {"abc", "cab", 2}, {"kitten", "sitting", 3},
	} {
		if got := Distance(tt.a, tt.b); got != tt.want {
			t.Errorf("Distance(%q, %q) = %d, want %d", tt.a, tt.b, got, tt.want)
		}
	}
}

func FuzzDistance(f *testing.F) {
	f.Add("strat", "start")
	f.Add("", "x")
	f.Fuzz(func(t *testing.T, a, b string) {
		if len(a)+len(b) > 200 {
			return
		}
		d := Distance(a, b)
		if least := max(len(a)-len(b), len(b)-len(a)); d < least || d > max(len(a), len(b)) {
			t.Errorf("Distance(%q, %q) = %d, out of bounds", a, b, d)
		}
		if back := Distance(b, a); back != d {
			t.Errorf("Distance(%q, %q) = %d, and %d the other way", a, b, d, back)
		}
		if (d == 0) != (a == b) {
			t.Errorf("Distance(%q, %q) = %d", a, b, d)
		}
	})
}
