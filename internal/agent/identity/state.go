package identity

import (
	"fmt"
	"time"
)

// A Phase is how far a workload is with its certificate.
type Phase string

// The phases. Failing and Expired have a [Fault] that says why.
const (
	Starting Phase = "starting"
	Asking   Phase = "asking"  // the first time
	Have     Phase = "have"    // and nothing stands in the way of the next
	Failing  Phase = "failing" // to get the first one, or to renew
	Expired  Phase = "expired" // without having been renewed
)

// A State is what readiness shows.
type State struct {
	Phase Phase
	Fault *Fault // while Failing or Expired

	NotAfter time.Time // of the certificate that Envoy has; zero: it has none
	Serial   string    // the same one's, hexadecimal
	Reused   bool      // it was there before the agent was

	Since time.Time // when the phase began
	Retry time.Time // when it is tried again, while Failing or Expired
}

// Usable says whether Envoy has a certificate that others take. A failure to renew does
// not change that.
func (s State) Usable(now time.Time) bool { return now.Before(s.NotAfter) }

// String is a sentence for people.
func (s State) String() string {
	at := s.NotAfter.UTC().Format(time.RFC3339)
	switch s.Phase {
	case Asking:
		return "asking the control plane for a certificate"
	case Have:
		return "certificate valid until " + at
	case Failing:
		if !s.NotAfter.IsZero() {
			return fmt.Sprintf("certificate valid until %s; not renewed yet: %s", at, s.reason())
		}
		return "no certificate: " + s.reason()
	case Expired:
		return fmt.Sprintf("certificate expired at %s: %s", at, s.reason())
	}
	return "no certificate yet"
}

func (s State) reason() string {
	if s.Fault == nil {
		return "it was not renewed in time"
	}
	return s.Fault.Reason
}

// State returns the state of this moment, and a channel that is closed when there is a
// newer one.
func (k *Keeper) State() (State, <-chan struct{}) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.state, k.changed
}

// publish makes s the state. Only what a reader would see as new is news.
func (k *Keeper) publish(s State) {
	now := time.Now()
	if h := k.have; h != nil {
		s.NotAfter, s.Serial, s.Reused = h.leaf().NotAfter, h.leaf().SerialNumber.Text(16), h.reused
		if !now.Before(s.NotAfter) {
			s.Phase = Expired
		}
	}
	k.mu.Lock()
	old := k.state
	s.Since = now
	if s.Phase == old.Phase {
		s.Since = old.Since
	}
	k.state = s
	news := s.Phase != old.Phase || s.Serial != old.Serial || s.reason() != old.reason() || s.Retry != old.Retry
	if news {
		close(k.changed)
		k.changed = make(chan struct{})
	}
	k.mu.Unlock()
	if news && k.o.OnState != nil {
		k.o.OnState(s)
	}
}
