package localpod

import (
	"testing"

	"golang.org/x/sys/unix"

	"outrider.dev/test/ns"
)

// If a node is closed while a connection attempt still runs, the attempt fails. It must not enter another
// namespace whose file has got the same number.
func TestAClosedNamespaceIsNotEntered(t *testing.T) {
	ns.RequireRoot(t)
	s, err := openSpace("thread-self", unix.CLONE_NEWNET)
	if err != nil {
		t.Fatal(err)
	}
	if err := inside(func() error { return nil }, s); err != nil {
		t.Error(err)
	}
	s.Close()
	if err := inside(func() error { return nil }, s); err == nil {
		t.Error("a closed namespace was entered")
	}
}
