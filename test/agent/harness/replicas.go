package harness

import (
	"context"
	"io"
	"net"
	"net/http"

	"outrider.dev/test/process"
)

// Replicas starts two control planes that share their state. It returns them and the address of the
// Service in front of them, which connects a client to the first control plane if that one accepts, otherwise to the
// second.
func (w *World) Replicas() (front string, first, second *process.Process) {
	w.T.Helper()
	w.Serve("--listen", Discovery)
	first, second = w.plane, w.servePlane("--listen", otherPlane+":15012", "--http", otherPlane+":15024", "--webhook", "off")
	process.Eventually(w.T, "the second control plane serves", func() bool {
		c := NewClient(w.Node, 0)
		defer c.Close()
		return c.Get("http://"+otherPlane+":15024/ready").Status == http.StatusOK
	}, second)
	front = frontAddress + ":15012"
	w.Node.IP("addr", "add", frontAddress+"/32", "dev", "lo")
	go w.forward(Listen(w, w.Node, 0, front), Discovery, otherPlane+":15012")
	return front, first, second
}

// forward forwards connections until the listener is closed.
func (w *World) forward(l net.Listener, to ...string) {
	dial := Dialer(w.Node, 0)
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer c.Close()
			for _, address := range to {
				ctx, cancel := context.WithTimeout(context.Background(), process.Patience)
				behind, err := dial(ctx, "tcp", address)
				cancel()
				if err != nil {
					continue
				}
				go func() {
					defer behind.Close()
					io.Copy(behind, c)
				}()
				io.Copy(c, behind)
				return
			}
		}()
	}
}
