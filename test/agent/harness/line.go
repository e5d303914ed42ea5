package harness

import (
	"context"
	"net"
	"sync"
	"time"
)

// A Line leads to the control plane of a world. What is sent on it arrives half a round trip
// later.
type Line struct {
	Address string

	trip time.Duration // of a round trip
	dial func(context.Context, string, string) (net.Conn, error)
	mu   sync.Mutex
	all  []*lineConn
}

// A lineConn is one connection. What a side sends has been on one trip more than what it has
// received, so the trips are those of the longest chain of messages, however busy the machine is.
type lineConn struct {
	client, server int // trips of what each side has received
}

// A parcel is a part of what is sent.
type parcel struct {
	data  []byte
	due   time.Time
	trips int
}

// Line makes one.
func (w *World) Line(roundTrip time.Duration) *Line {
	w.T.Helper()
	w.Node.IP("addr", "add", frontAddress+"/32", "dev", "lo")
	l := &Line{Address: frontAddress + ":15112", trip: roundTrip, dial: Dialer(w.Node, 0)}
	from := Listen(w, w.Node, 0, l.Address)
	go func() {
		for {
			c, err := from.Accept()
			if err != nil {
				return
			}
			go l.serve(c)
		}
	}()
	return l
}

// RoundTrips are those of each connection, in the order in which they were made.
func (l *Line) RoundTrips() (out []int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.all {
		out = append(out, c.client/2)
	}
	return out
}

func (l *Line) serve(client net.Conn) {
	defer client.Close()
	server, err := l.dial(context.Background(), "tcp", Discovery)
	if err != nil {
		return
	}
	defer server.Close()
	made := time.Now().Add(l.trip) // the SYN and its answer are a round trip
	c := &lineConn{client: 2}
	l.mu.Lock()
	l.all = append(l.all, c)
	l.mu.Unlock()
	done := make(chan struct{}, 2)
	go func() {
		l.carry(server, client, made, &c.client, &c.server)
		done <- struct{}{}
	}()
	go func() {
		l.carry(client, server, made, &c.server, &c.client)
		done <- struct{}{}
	}()
	<-done
}

// carry carries what one side sends to the other, until one of them ends. Sent and received are
// the trips of what the sender and the receiver have got.
func (l *Line) carry(to, from net.Conn, made time.Time, sender, receiver *int) {
	parcels := make(chan parcel, 1<<16)
	go func() {
		defer close(parcels)
		for {
			buffer := make([]byte, 32<<10)
			n, err := from.Read(buffer)
			if err != nil {
				return
			}
			due := time.Now()
			if due.Before(made) {
				due = made
			}
			l.mu.Lock()
			trips := *sender + 1
			l.mu.Unlock()
			parcels <- parcel{buffer[:n], due.Add(l.trip / 2), trips}
		}
	}()
	for p := range parcels {
		time.Sleep(time.Until(p.due))
		l.mu.Lock()
		*receiver = max(*receiver, p.trips)
		l.mu.Unlock()
		if _, err := to.Write(p.data); err != nil {
			return
		}
	}
}
