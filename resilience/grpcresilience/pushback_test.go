package grpcresilience

import "testing"

func FuzzPushback(f *testing.F) {
	for _, seed := range []string{"", "0", "100", "-1", "9223372036854775807", "soon", "1e3"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, v string) {
		if d := pushback(v); d < -1 {
			t.Errorf("%q: %v", v, d)
		}
	})
}

// Any method name must be accepted: the application may be a proxy, which takes names from its clients.
func FuzzMethod(f *testing.F) {
	for _, seed := range []string{"", "/", "/a.B/C", "//", "/grpc.health.v1.Health/Check", "/\xff/x"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, method string) {
		if declaredIdempotent(method) {
			t.Errorf("%q is declared idempotent, and no file here does that", method)
		}
	})
}
