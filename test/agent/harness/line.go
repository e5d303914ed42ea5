package harness

import (
	"context"
	"net"
	"sync"
	"time"
)

// A Line connects pods to the control plane of a world and delays data by half a round trip in each direction.
type Line struct {
	Address string

	trip time.Duration // duration of one round trip
	dial func(context.Context, string, string) (net.Conn, error)
	mu   sync.Mutex
	all  []*lineConn
}

// A lineConn counts the trips on one connection. Each chunk of data has a number: one more than the highest number
// that its sender has received before. So the highest number is the length of the longest chain in which each message
// follows from an earlier one. It does not depend on the load of the machine.
type lineConn struct {
	client, server int // highest number of a chunk that each side has received
}

// A parcel is a chunk of data on its way.
type parcel struct {
	data  []byte
	due   time.Time
	trips int
}

// Line starts a line to the control plane, with this round-trip time.
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

// RoundTrips returns the number of round trips of each connection, in the order in which they were opened.
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
	made := time.Now().Add(l.trip) // the SYN and its answer take one round trip
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

// carry forwards data from one side to the other until one side closes. The argument made is the time at which the
// connection is established; no data arrives earlier. sender and receiver point to the counts in the [lineConn].
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
