package proxy

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"sync"

	"outrider.dev/internal/core/agent/config"
	"outrider.dev/internal/core/agent/standby"
)

// standbys holds the standby listeners of both directions. The supervisor opens them while no
// Envoy serves. While an Envoy serves, the standbys are closed: they still listen, but Envoy
// gets the connections.
type standbys struct {
	options []standby.Options
	opened  func(context.Context) // called when they first listen

	mu    sync.Mutex
	all   []*standby.Standby
	fresh bool // listen was called, Open not yet
}

func newStandbys(c config.Config, log *slog.Logger, opened func(context.Context), proof func(from, to netip.AddrPort) bool) *standbys {
	s := &standbys{opened: opened}
	if !hasStandby(c) {
		return s
	}
	// Envoy's relay listeners are on 127.0.0.1, even in a pod without IPv4.
	loopback := netip.MustParseAddr("127.0.0.1")
	for _, d := range []struct {
		port, relay uint16
		transparent bool
	}{
		{c.Ports.Outbound, c.Ports.RelayOutbound, false},
		{c.Ports.Inbound, c.Ports.RelayInbound, interception(c) == tproxy},
	} {
		s.options = append(s.options, standby.Options{
			Port: d.port, Relay: netip.AddrPortFrom(loopback, d.relay), Transparent: d.transparent,
			CapturePorts: capturePorts(c), Proof: proof, Log: log,
		})
	}
	return s
}

// listen opens the standbys for the first time. If it fails, Envoy could not listen either:
// another process has the port, and Envoy tries to bind a port only once. copies becomes the
// option Sockets of each standby.
func (s *standbys) listen(ctx context.Context, copies standby.Copies) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, o := range s.options {
		o.Sockets = copies
		b, err := standby.Listen(ctx, o)
		if err != nil {
			return fmt.Errorf("standing by on port %d: %w", o.Port, err)
		}
		s.all = append(s.all, b)
	}
	s.fresh = true
	s.opened(ctx)
	return nil
}

// Open makes the standbys accept the connections while no Envoy serves.
func (s *standbys) Open() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fresh {
		s.fresh = false
		return nil
	}
	for _, b := range s.all {
		b.Gone()
	}
	return nil
}

// leave stops listening on a port for good. Envoy must close the port next.
func (s *standbys) leave(port uint16) {
	for i, b := range s.list() {
		if s.options[i].Port == port {
			b.Leave()
		}
	}
}

// check looks for listening sockets that Envoy has closed. It is called while Envoy answers.
func (s *standbys) check() {
	for _, b := range s.list() {
		b.Check()
	}
}

// accept reports whether every proof of capture comes to a standby.
func (s *standbys) accept() bool {
	return !slices.ContainsFunc(s.list(), func(b *standby.Standby) bool { return !b.Accepts() })
}

// hold makes all new connections wait until Close or Envoy's end, although Envoy serves. It
// reports whether Envoy has accepted all connections that came before.
func (s *standbys) hold() bool {
	all := s.list()
	for _, b := range all {
		if !b.Hold() {
			return false
		}
	}
	return len(all) > 0
}

func (s *standbys) list() []*standby.Standby {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.all
}

// Close hands the connections over to Envoy. At the end of the agent, when there is no Envoy, the
// held connections end with the process.
func (s *standbys) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var errs []error
	for _, b := range s.all {
		if err := b.Ready(); !errors.Is(err, standby.ErrNotListening) && !errors.Is(err, standby.ErrClosed) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// counts sums up both directions.
func (s *standbys) counts() (sum standby.Counts) {
	for _, b := range s.list() {
		c := b.Counts()
		sum.Held += c.Held
		sum.Relaying += c.Relaying
		sum.Relayed += c.Relayed
		sum.Refused += c.Refused
	}
	return sum
}
