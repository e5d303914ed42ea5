package port

import (
	"errors"
	"net"
	"syscall"
	"testing"
)

func TestAHeldPort(t *testing.T) {
	at := Hold(t).String()
	for range 2 { // the port is held before a listener uses it, and afterwards
		if _, err := net.Dial("tcp", at); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("nothing listens, and the answer is %v", err)
		}
		l, err := net.Listen("tcp", at)
		if err != nil {
			t.Fatal(err)
		}
		l.Close()
	}
}
