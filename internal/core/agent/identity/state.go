package identity

import (
	"fmt"
	"time"
)

// A Phase is a step of getting and keeping the certificate.
type Phase string

// The phases. In Failing and Expired, a [Fault] gives the reason.
const (
	Starting Phase = "starting"
	Asking   Phase = "asking"  // requesting the first certificate
	Have     Phase = "have"    // Envoy has a certificate, and the last request did not fail
	Failing  Phase = "failing" // the last request, the first or a renewal, failed
	Expired  Phase = "expired" // the certificate expired and was not renewed
)

// A State describes the certificate, for readiness and the log.
type State struct {
	Phase Phase
	Fault *Fault // while Failing or Expired

	NotAfter time.Time // of the certificate that Envoy has; zero: it has none
	Serial   string    // of the same certificate, hexadecimal
	Reused   bool      // an earlier agent got the certificate

	Retry time.Time // time of the next request, while Failing or Expired
}

// Usable reports whether Envoy has a certificate that peers accept, even if a renewal has failed.
func (s State) Usable(now time.Time) bool { return now.Before(s.NotAfter) }

// String returns a sentence for people.
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

// State returns the current state. It may be called from any goroutine.
func (k *Keeper) State() State { return *k.state.Load() }

// publish sets the state, and reports it if the difference is visible to readers.
func (k *Keeper) publish(s State) {
	if h := k.have; h != nil {
		s.NotAfter, s.Serial, s.Reused = h.leaf().NotAfter, h.leaf().SerialNumber.Text(16), h.reused
		if !time.Now().Before(s.NotAfter) {
			s.Phase = Expired
		}
	}
	old := k.state.Swap(&s)
	if s.Phase != old.Phase || s.Serial != old.Serial || s.reason() != old.reason() || s.Retry != old.Retry {
		k.o.OnState(s)
	}
}
