package identity

import (
	"fmt"
	"time"
)

// A Phase of getting and keeping the certificate.
type Phase string

// The phases. Failing and Expired have a [Fault] with the reason.
const (
	Starting Phase = "starting"
	Asking   Phase = "asking"  // requesting the first one
	Have     Phase = "have"    // and the last request did not fail
	Failing  Phase = "failing" // to get the first one, or to renew
	Expired  Phase = "expired" // without having been renewed
)

// A State is what readiness and the log show of the certificate.
type State struct {
	Phase Phase
	Fault *Fault // while Failing or Expired

	NotAfter time.Time // of the certificate that Envoy has; zero: it has none
	Serial   string    // the same one's, hexadecimal
	Reused   bool      // it was there before the agent was

	Retry time.Time // when it is tried again, while Failing or Expired
}

// Usable returns whether Envoy has a certificate that peers accept. A failure to renew does
// not change that.
func (s State) Usable(now time.Time) bool { return now.Before(s.NotAfter) }

// String is a sentence for people.
func (s State) String() string {
	at := s.NotAfter.UTC().Format(time.RFC3339)
	switch s.Phase {
	case Asking:
		return "requesting a certificate from the control plane"
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

// State returns the current state.
func (k *Keeper) State() State {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.state
}

// publish makes s the state, and reports it if a reader would see a difference.
func (k *Keeper) publish(s State) {
	if h := k.have; h != nil {
		s.NotAfter, s.Serial, s.Reused = h.leaf().NotAfter, h.leaf().SerialNumber.Text(16), h.reused
		if !time.Now().Before(s.NotAfter) {
			s.Phase = Expired
		}
	}
	k.mu.Lock()
	old := k.state
	k.state = s
	k.mu.Unlock()
	if s.Phase != old.Phase || s.Serial != old.Serial || s.reason() != old.reason() || s.Retry != old.Retry {
		k.o.OnState(s)
	}
}
