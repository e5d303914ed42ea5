package harness

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"outrider.dev/test/process"
)

// Connections are connections that one pod opens as the app's user. Each waits for the server's first bytes. A single
// thread serves them all by epoll, so that they take little processor time from the proxy.
type Connections struct {
	pod  *Pod
	to   unix.Sockaddr
	pace Pace

	epoll     int
	calls     []Call
	open      int // number of open connections
	connected atomic.Int64
	leave     atomic.Bool
	done      chan struct{}
	err       error
}

// A Pace is the rate at which connections are opened.
type Pace struct {
	Total int     // connections; 0 means unlimited, until Leave
	Rate  float64 // new connections per second, even if earlier ones are slow; 0 means all at once
	Limit int     // maximum of simultaneously open connections; 0 means unlimited
}

// A Call is the result of one connection.
type Call struct {
	Begin  time.Time
	Served time.Time // when the first bytes were read
	Err    error
}

// Connections starts to open connections to an IPv4 address, at the given pace, and does not wait for them.
func (p *Pod) Connections(to netip.AddrPort, pace Pace) *Connections {
	p.World.T.Helper()
	c := &Connections{pod: p, to: &unix.SockaddrInet4{Port: int(to.Port()), Addr: to.Addr().As4()}, pace: pace, done: make(chan struct{})}
	go func() {
		defer close(c.done)
		p.As(AppUser, AppUser, func() { c.err = c.run() })
	}()
	return c
}

// Connected returns the number of connections established so far.
func (c *Connections) Connected() int { return int(c.connected.Load()) }

// Leave opens no more connections, waits for the answers on those already opened, and returns all calls.
func (c *Connections) Leave() []Call {
	c.leave.Store(true)
	return c.Wait()
}

// Wait returns all calls, once each has been answered or has failed. The Pace must have a Total.
func (c *Connections) Wait() []Call {
	c.pod.World.T.Helper()
	<-c.done
	if c.err != nil {
		c.pod.World.T.Fatalf("connections: %v", c.err)
	}
	return c.calls
}

func (c *Connections) run() (err error) {
	if c.epoll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return err
	}
	defer unix.Close(c.epoll)
	begin, last := time.Now(), time.Time{}
	for {
		more := !c.leave.Load() && (c.pace.Total == 0 || len(c.calls) < c.pace.Total)
		switch {
		case more:
			last = time.Now()
		case c.open == 0:
			return nil
		case time.Since(last) > process.Patience:
			return fmt.Errorf("%d of %d connections wait for an answer", c.open, len(c.calls))
		}
		// Start few at a time, so that answers are read as soon as they arrive.
		due := 0
		if more {
			due = c.due(time.Since(begin))
		}
		for range min(due, 16) {
			if err := c.call(); err != nil {
				return err
			}
		}
		wait := 1
		if due > 16 {
			wait = 0
		}
		if err := c.receive(wait); err != nil {
			return err
		}
	}
}

// due returns the number of connections to open now.
func (c *Connections) due(since time.Duration) int {
	n := 1 << 20
	if c.pace.Rate > 0 {
		n = int(c.pace.Rate*since.Seconds()) - len(c.calls)
	}
	if c.pace.Total > 0 {
		n = min(n, c.pace.Total-len(c.calls))
	}
	if c.pace.Limit > 0 {
		n = min(n, c.pace.Limit-c.open)
	}
	return n
}

func (c *Connections) call() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	c.calls = append(c.calls, Call{Begin: time.Now()})
	c.open++
	// Close with a reset, so that no connection stays in TIME-WAIT and uses up the local ports.
	err = unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
	if err == nil {
		if err = unix.Connect(fd, c.to); err == unix.EINPROGRESS {
			err = nil
		}
	}
	if err != nil {
		c.end(fd, len(c.calls)-1, err)
		return nil
	}
	return unix.EpollCtl(c.epoll, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{
		Events: unix.EPOLLIN | unix.EPOLLOUT | unix.EPOLLET, Fd: int32(fd), Pad: int32(len(c.calls) - 1)})
}

func (c *Connections) end(fd, i int, err error) {
	c.calls[i].Served, c.calls[i].Err = time.Now(), err
	c.open--
	unix.Close(fd)
}

// receive reads answers for up to wait milliseconds.
func (c *Connections) receive(wait int) error {
	var events [64]unix.EpollEvent
	n, err := unix.EpollWait(c.epoll, events[:], wait)
	if err != nil && err != unix.EINTR {
		return err
	}
	for _, e := range events[:max(n, 0)] {
		var buf [256]byte
		fd, i := int(e.Fd), int(e.Pad)
		if e.Events&unix.EPOLLIN == 0 && e.Events&(unix.EPOLLERR|unix.EPOLLHUP) == 0 {
			c.connected.Add(1)
			continue
		}
		switch n, err := unix.Read(fd, buf[:]); {
		case err == unix.EAGAIN || err == unix.EINTR:
			return errors.New("nothing to read after EPOLLIN")
		case err != nil:
			c.end(fd, i, err)
		case n == 0:
			c.end(fd, i, errors.New("closed without an answer"))
		default:
			c.end(fd, i, nil)
		}
	}
	return nil
}

// Greet serves a port on the pod's IPv4 addresses: it sends a line on each connection, and closes
// the connection when the peer does.
func (p *Pod) Greet(port uint16) {
	p.World.T.Helper()
	l := Listen(p.World, p.Namespace, AppUser, fmt.Sprintf("0.0.0.0:%d", port))
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				c.(*net.TCPConn).SetLinger(0) // close with a reset, which leaves no TIME-WAIT
				io.WriteString(c, "hello\n")
				c.Read(make([]byte, 1))
			}()
		}
	}()
}
