package proxy

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"

	"outrider.dev/internal/core/agent/config"
	"outrider.dev/internal/core/agent/standby"
)

// standbys are the standby listeners of both directions, as the supervisor sets them:
// open while no Envoy serves, closed (that is: behind it) while one does.
type standbys struct {
	options []standby.Options
	opened  func(context.Context) // called when they first listen

	mu    sync.Mutex
	all   []*standby.Standby
	fresh bool // listen was called, and Open was not
}

func newStandbys(c config.Config, log *slog.Logger, opened func(context.Context)) *standbys {
	s := &standbys{opened: opened}
	if !hasStandby(c) {
		return s
	}
	// Envoy's listeners for them are there, in a pod without IPv4 too.
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
			CapturePorts: capturePorts(c), Log: log,
		})
	}
	return s
}

// listen opens them for the first time. Where it cannot, Envoy could not either: another
// process has the port, and Envoy tries to bind it only once. copies is
// their option of that sense.
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

// Open takes the connections that no Envoy can.
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

// leave gives a port up for good. Envoy must close it next.
func (s *standbys) leave(port uint16) {
	for i, b := range s.list() {
		if s.options[i].Port == port {
			b.Leave()
		}
	}
}

// check is called while Envoy answers.
func (s *standbys) check() {
	for _, b := range s.list() {
		b.Check()
	}
}

// hold makes all new connections wait, though Envoy serves, until Close or Envoy's end. It
// reports whether Envoy has accepted all that came before.
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

// Close hands over to Envoy. Where there is none, because all comes to an end, what is
// held ends with the process.
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
