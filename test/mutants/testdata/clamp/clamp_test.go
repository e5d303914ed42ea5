package clamp

import "testing"

func TestClamp(t *testing.T) {
	calls = 0
	for n, want := range map[int]int{1: 2, 3: 3, 9: 4} {
		if got := clamp(n, &bound{2, 4}); got != want {
			t.Errorf("clamp(%d) is %d, want %d", n, got, want)
		}
	}
	if clamp(5, nil) != 5 || clamp(5, &bound{2, 1}) != 5 || calls != 5 {
		t.Error("a bound that is none counts")
	}
}
