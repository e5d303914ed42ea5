package proxy

import (
	"time"

	"outrider.dev/internal/agent/identity"
	"outrider.dev/internal/agent/readiness"
)

// newKeeper makes what gets the certificate, unless nothing needs one.
func (a *agent) newKeeper() (err error) {
	c := a.config
	if c.ControlPlane.Plaintext {
		return nil
	}
	o := identity.Options{
		Identity: identity.ID{TrustDomain: c.Pod.TrustDomain, Namespace: c.Pod.Namespace, ServiceAccount: c.Pod.ServiceAccount},
		Client: identity.Client{
			Address: c.ControlPlane.CA, Identity: c.ControlPlane.Names,
			RootFile: c.ControlPlane.Roots, TokenFile: c.ControlPlane.Token,
		},
		Dir: certificates(c), OutputDir: c.Certificate.Output,
		Key: keyKind(c.Certificate.RSA, c.Certificate.Curve), Life: c.Certificate.Lifetime,
		GraceRatio: c.Certificate.RenewAt, GraceJitter: c.Certificate.Jitter,
		OnState: a.certificate,
	}
	if c.Certificate.FileMounted {
		at := "/etc/certs/" // Istio's place for them
		o.Provided = identity.Provided{Chain: at + identity.ChainFile, Key: at + identity.KeyFile, Roots: at + identity.RootFile}
		o.OutputDir = ""
	}
	a.keeper, err = identity.NewKeeper(o)
	return err
}

func keyKind(rsa int, curve string) identity.KeyKind {
	switch {
	case rsa > 0:
		return identity.RSA2048
	case curve == string(identity.P384):
		return identity.P384
	}
	return identity.P256
}

// certificate puts a state of the certificate on the board.
func (a *agent) certificate(s identity.State) {
	usable := s.Usable(time.Now())
	a.board.Set(readiness.Certificate, usable, s.String())
	if s.Fault != nil {
		refused := s.Fault.Kind == identity.Rejected || s.Fault.Kind == identity.Untrusted
		if refused && !usable {
			a.board.Set(readiness.Identity, false, s.Fault.Reason)
		}
		a.log.Warn("certificate", "phase", string(s.Phase), "kind", string(s.Fault.Kind), "reason", s.Fault.Reason, "retry", s.Retry)
		return
	}
	a.log.Info("certificate", "phase", string(s.Phase), "serial", s.Serial, "not_after", s.NotAfter, "reused", s.Reused)
	a.journal.Note("certificate "+string(s.Phase), s.String())
}
