package gobuild

import "testing"

func TestProgressIsToldFromErrors(t *testing.T) {
	var r report
	// Lines come in pieces, as from a pipe.
	for _, piece := range []string{
		"go: downloading k8s.io/api v0.34.4\nk8s.io/ap", "i/core/v1\nvendor/golang.org/x/net\n",
		"# outrider.dev/test/cluster/kube\n./main.go:38:39: cannot use x\nfatal", ": no disk",
	} {
		r.Write([]byte(piece))
	}
	if r.downloaded != 1 || r.compiled != 2 {
		t.Errorf("%d downloaded, %d compiled; want 1 and 2", r.downloaded, r.compiled)
	}
	const want = "\n# outrider.dev/test/cluster/kube\n./main.go:38:39: cannot use x\nfatal: no disk"
	if got := r.tail(); got != want {
		t.Errorf("tail is %q, want %q", got, want)
	}
}
