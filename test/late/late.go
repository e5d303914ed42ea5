// Package late makes connections whose first bytes come late.
package late

import (
	"context"
	"crypto/tls"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"outrider.dev/test/process"
)

// Pause is longer than a proxy waits for first bytes.
const Pause = 250 * time.Millisecond

// lateness is how long after the connect the first bytes come: at once, within the time in
// which a proxy waits for them, and after it.
var lateness = []time.Duration{0, 150 * time.Millisecond, 250 * time.Millisecond, 600 * time.Millisecond, 1200 * time.Millisecond, 5 * time.Second}

// A Call is what a client does on a connection once it has been silent.
type Call struct {
	Name, To string
	Talk     func(net.Conn) error
}

// Run opens 100 connections for each lateness, in turn those of the calls, all at once. None may
// fail.
func Run(t *testing.T, dial func(ctx context.Context, network, to string) (net.Conn, error), calls []Call) {
	t.Helper()
	const each, shown = 100, 3
	var all sync.WaitGroup
	failed := make([]atomic.Int64, len(lateness))
	for i := range each {
		call := calls[i%len(calls)]
		for j, wait := range lateness {
			c, err := dial(t.Context(), "tcp", call.To)
			if err != nil {
				t.Fatalf("%s: %v", call.Name, err)
			}
			all.Go(func() {
				defer c.Close()
				time.Sleep(wait)
				c.SetDeadline(time.Now().Add(process.Patience))
				if err := call.Talk(c); err != nil && failed[j].Add(1) <= shown {
					t.Errorf("%s, first byte after %s: %v", call.Name, wait, err)
				}
			})
		}
	}
	all.Wait()
	for i, wait := range lateness {
		t.Logf("first byte after %s: %d of %d failed", wait, failed[i].Load(), each)
	}
}

// Config is a client's TLS as a proxy's, with a certificate of the mesh in PEM.
func Config(chain, key []byte) (*tls.Config, error) {
	c, err := tls.X509KeyPair(chain, key)
	return &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"outrider"}, Certificates: []tls.Certificate{c}}, err
}

// Hello is a call by TLS, with the first record in pieces that end at these numbers of bytes,
// and a pause after each.
func Hello(config *tls.Config, talk func(net.Conn) error, ends ...int) func(net.Conn) error {
	return func(c net.Conn) error {
		secure := tls.Client(&inPieces{c, ends}, config)
		if err := secure.Handshake(); err != nil {
			return err
		}
		return talk(secure)
	}
}

type inPieces struct {
	net.Conn
	ends []int
}

func (p *inPieces) Write(b []byte) (int, error) {
	begin := 0
	for _, end := range p.ends {
		if _, err := p.Conn.Write(b[begin:end]); err != nil {
			return begin, err
		}
		begin = end
		time.Sleep(Pause)
	}
	p.ends = nil
	n, err := p.Conn.Write(b[begin:])
	return begin + n, err
}
