// Package watch watches, from the node, what captures wrote into the network namespaces of pods, and reports the
// namespaces in which it was changed, or in which rules of other programs were, which may take the traffic.
//
// The kernel reports changes of nf_tables, including those by iptables-nft, and of routing to sockets in the same
// namespace. One thread waits for the sockets of all namespaces. Legacy iptables and ipset report nothing, so they are
// read every half second.
//
// Work for a namespace is bounded, whatever its containers do: a reported namespace is not watched again until
// [Watcher.Watch], and other messages are read a few times a second at most.
package watch

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"outrider.dev/internal/core/capture/iptables"
)

const (
	// receiveBuffer is the number of bytes, for each socket, of messages that the kernel keeps until they are read.
	// A full buffer is reported as a change. The kernel doubles the number for its own data; the messages about one
	// capture take half of it.
	receiveBuffer = 64 << 10
	// pause is the time until messages are read again after some that do not matter.
	pause = 50 * time.Millisecond
	// pollInterval is the interval at which is read what the kernel does not report.
	pollInterval = 500 * time.Millisecond
	// maxDatagrams bounds the messages that are read at once. More do not fit into the buffer.
	maxDatagrams = 1024
	// maxDatagram is the size of the read buffer. A longer message counts as a change.
	maxDatagram = 32 << 10
)

// A Watcher watches network namespaces. It is safe for concurrent use.
type Watcher struct {
	epoll func() (int, error)

	mu       sync.Mutex
	spaces   map[string]*space
	bySocket map[int]*space
	buffer   []byte
	rules    []byte // buffer for what is polled
}

// A space is a network namespace. Its sockets keep it alive.
type space struct {
	id             string
	inode          uint64
	filter, routes int // sockets
	polled         *iptables.Unreported
	digest         uint64
	armed, six     bool
}

// New returns a watcher without namespaces.
func New() *Watcher {
	return &Watcher{
		spaces: map[string]*space{}, bySocket: map[int]*space{}, buffer: make([]byte, maxDatagram),
		epoll: sync.OnceValues(func() (int, error) { return unix.EpollCreate1(unix.EPOLL_CLOEXEC) }),
	}
}

// Groups of rtnetlink: routing rules, routes, IPv6 addresses, and links, of which lo matters.
const routeGroups = 1<<(unix.RTNLGRP_LINK-1) | 1<<(unix.RTNLGRP_IPV6_IFADDR-1) | 1<<(unix.RTNLGRP_IPV4_RULE-1) | 1<<(unix.RTNLGRP_IPV6_RULE-1) |
	1<<(unix.RTNLGRP_IPV4_ROUTE-1) | 1<<(unix.RTNLGRP_IPV6_ROUTE-1)

// Watch begins to collect the changes in a sandbox's namespace, without reporting any before [Watcher.Arm]. It
// forgets the changes until now. An error that is [os.ErrNotExist] means that the namespace has ended.
func (w *Watcher) Watch(id, namespace string) error {
	s := &space{id: id, filter: -1, routes: -1}
	err := inside(namespace, func() (err error) {
		var own unix.Stat_t
		if err := unix.Stat("/proc/thread-self/ns/net", &own); err != nil {
			return err
		}
		s.inode = own.Ino
		if s.filter, err = subscribe(unix.NETLINK_NETFILTER, 1<<(unix.NFNLGRP_NFTABLES-1)); err != nil {
			return err
		}
		if s.routes, err = subscribe(unix.NETLINK_ROUTE, routeGroups); err != nil {
			return err
		}
		s.polled, err = iptables.OpenUnreported()
		return err
	})
	w.mu.Lock()
	defer w.mu.Unlock()
	if err == nil {
		s.digest, err = s.polled.Digest(&w.rules)
	}
	w.drop(w.spaces[id])
	if err != nil {
		s.close()
		return fmt.Errorf("watching network namespace %q: %w", namespace, err)
	}
	w.spaces[id] = s
	w.bySocket[s.filter], w.bySocket[s.routes] = s, s
	return nil
}

func subscribe(protocol int, groups uint32) (fd int, err error) {
	fd, err = unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, protocol)
	if err != nil {
		return -1, err
	}
	err = errors.Join(unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, receiveBuffer),
		unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: groups}))
	if err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

func (s *space) close() {
	for _, fd := range []int{s.filter, s.routes} {
		if fd >= 0 {
			unix.Close(fd)
		}
	}
	if s.polled != nil {
		s.polled.Close()
	}
}

// drop closes the sockets of a namespace; nil is allowed. Closing also removes them from epoll.
func (w *Watcher) drop(s *space) {
	if s == nil {
		return
	}
	delete(w.spaces, s.id)
	delete(w.bySocket, s.filter)
	delete(w.bySocket, s.routes)
	s.close()
}

// Remove ends the watch of a sandbox, and lets its namespace end.
func (w *Watcher) Remove(id string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.drop(w.spaces[id])
}

// Len returns the number of namespaces.
func (w *Watcher) Len() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.spaces)
}

// Gone reports whether a watched sandbox's namespace is no longer at the path.
func (w *Watcher) Gone(id, namespace string) bool {
	w.mu.Lock()
	s := w.spaces[id]
	w.mu.Unlock()
	var now unix.Stat_t
	err := unix.Stat(namespace, &now)
	return errors.Is(err, unix.ENOENT) || err == nil && s != nil && s.inode != now.Ino
}

// Once reports whether the changes since [Watcher.Watch] are one transaction of nf_tables, and nothing else. The
// changes are forgotten.
func (w *Watcher) Once(id string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.spaces[id]
	if s == nil {
		return false
	}
	routes := w.read(s, s.routes)
	return w.read(s, s.filter).once() && !routes.routing && !routes.lost
}

// Arm reports the changes since [Watcher.Watch], and the next one, to the function of [Watcher.Run], once. six says that
// IPv6 is captured.
func (w *Watcher) Arm(id string, six bool) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.spaces[id]
	if s == nil {
		return nil
	}
	s.six, s.armed = six, true
	epoll, err := w.epoll()
	for _, fd := range []int{s.filter, s.routes} {
		if err == nil {
			err = rearm(epoll, fd)
		}
	}
	return err
}

func rearm(epoll, fd int) error {
	event := &unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLONESHOT, Fd: int32(fd)}
	err := unix.EpollCtl(epoll, unix.EPOLL_CTL_MOD, fd, event)
	if errors.Is(err, unix.ENOENT) {
		err = unix.EpollCtl(epoll, unix.EPOLL_CTL_ADD, fd, event)
	}
	return err
}

// Run reports changed namespaces until ctx ends, and then ends all watches. The function must not wait.
func (w *Watcher) Run(ctx context.Context, changed func(id string)) error {
	epoll, err := w.epoll()
	if err != nil {
		return err
	}
	ends, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return err
	}
	defer unix.Close(ends)
	if err := rearm(epoll, ends); err != nil {
		return err
	}
	written := make(chan struct{}) // before then the number of the descriptor must not be that of another file
	cancel := context.AfterFunc(ctx, func() {
		defer close(written)
		_, _ = unix.Write(ends, []byte{1, 0, 0, 0, 0, 0, 0, 0})
	})
	defer func() {
		if !cancel() {
			<-written
		}
	}()
	polled := make(chan struct{})
	go func() {
		defer close(polled)
		w.poll(ctx, changed)
	}()
	defer func() {
		<-polled
		w.mu.Lock()
		defer w.mu.Unlock()
		for _, s := range w.spaces { // any order: all are closed
			w.drop(s)
		}
	}()
	events := make([]unix.EpollEvent, 64)
	for ctx.Err() == nil {
		n, err := unix.EpollWait(epoll, events, -1)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("waiting for changes in network namespaces: %w", err)
		}
		for _, e := range events[:max(n, 0)] {
			if id, ok := w.ready(epoll, int(e.Fd)); ok {
				changed(id)
			}
		}
	}
	return nil
}

// ready reads the messages of a socket. It returns the sandbox if they report a change.
func (w *Watcher) ready(epoll, fd int) (id string, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.bySocket[fd]
	if s == nil || !s.armed {
		return "", false
	}
	got := w.read(s, fd)
	if got.lost || got.routing || got.rules {
		s.armed = false
		return s.id, true
	}
	time.AfterFunc(pause, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.bySocket[fd] == s && s.armed {
			_ = rearm(epoll, fd)
		}
	})
	return "", false
}

// poll reads what the kernel does not report, at an interval.
func (w *Watcher) poll(ctx context.Context, changed func(id string)) {
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		for _, id := range w.changedUnreported() {
			changed(id)
		}
	}
}

func (w *Watcher) changedUnreported() (out []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for id, s := range w.spaces { // any order: each is read by itself
		if !s.armed {
			continue
		}
		if digest, err := s.polled.Digest(&w.rules); err != nil || digest != s.digest {
			s.armed = false
			out = append(out, id)
		}
	}
	slices.Sort(out)
	return out
}

// inside runs f in a network namespace, on a thread that ends if it cannot leave the namespace.
func inside(namespace string, f func() error) error {
	result := make(chan error, 1)
	go func() { result <- onThread(namespace, f) }()
	return <-result
}

func onThread(namespace string, f func() error) (err error) {
	other, err := os.Open(namespace)
	if err != nil {
		return err
	}
	defer other.Close()
	runtime.LockOSThread()
	own, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		runtime.UnlockOSThread()
		return err
	}
	defer own.Close()
	if err = unix.Setns(int(other.Fd()), unix.CLONE_NEWNET); err == nil {
		err = f()
	}
	if back := unix.Setns(int(own.Fd()), unix.CLONE_NEWNET); back != nil {
		return errors.Join(err, back) // the thread stays locked, and ends with this goroutine
	}
	runtime.UnlockOSThread()
	return err
}
