package node

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestMountsAreRead(t *testing.T) {
	got, err := parseMounts("22 27 0:21 / /proc rw - proc proc rw\n28 27 0:25 / /mnt/a\\040b ro,nosuid shared:1 - tmpfs tmpfs ro\n")
	want := []mountPoint{{"22", "/proc"}, {"28", "/mnt/a b"}}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(mountPoint{})); diff != "" || err != nil {
		t.Errorf("parseMounts (-want +got), %v:\n%s", err, diff)
	}
	if got, err := parseMounts("what is this"); err == nil {
		t.Errorf("taken for %v", got)
	}
}
