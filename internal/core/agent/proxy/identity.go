package proxy

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"outrider.dev/internal/core/agent/envoy"
	"outrider.dev/internal/core/agent/identity"
	"outrider.dev/internal/core/agent/readiness"
)

// foreignLife is the lifetime that is requested from an authority other than outriderd. Istio's agent
// always names one, so such an authority may take a missing lifetime for zero.
const foreignLife = 24 * time.Hour

// newKeeper makes the keeper, which requests the certificate. It returns nil if the control plane is used
// without TLS.
func (a *agent) newKeeper() (*identity.Keeper, error) {
	c := a.config
	if c.ControlPlane.Plaintext {
		return nil, nil
	}
	application := c.Pod
	application.Role = "grpc" // unlike the role in the ID of the pod's Envoy
	o := identity.Options{
		Identity: identity.ID{TrustDomain: c.Pod.TrustDomain, Namespace: c.Pod.Namespace, ServiceAccount: c.Pod.ServiceAccount},
		Client: identity.Client{
			Address: c.ControlPlane.CA, Identity: c.ControlPlane.Names, Outriderd: c.ControlPlane.CA == c.ControlPlane.Address,
			RootFile: c.ControlPlane.Roots, TokenFile: c.ControlPlane.Token,
		},
		Dir: certificates(c), OutputDir: c.Certificate.Output,
		GRPC: identity.GRPCNode{ID: application.ID(), Server: c.ControlPlane.Address},
		Key:  keyKind(c.Certificate.RSA, c.Certificate.Curve), Life: c.Certificate.Lifetime,
		GraceRatio: c.Certificate.RenewAt, GraceJitter: c.Certificate.Jitter,
		OnState: a.certificate,
		OnCertificate: func(chain, key []byte) {
			a.secrets.Set(envoy.SecretName, identity.CertificateSecret(chain, key))
			a.relay.Usable()
		},
		OnRoots: func(roots []byte) { a.secrets.Set(envoy.RootsName, identity.RootsSecret(roots)) },
	}
	if o.Life == 0 && !o.Client.Outriderd {
		o.Life = foreignLife
	}
	if c.Certificate.FileMounted {
		at := "/etc/certs/" // Istio's directory for them
		o.Provided = identity.Provided{Chain: at + identity.ChainFile, Key: at + identity.KeyFile, Roots: at + identity.RootFile}
		o.OutputDir = ""
	}
	k, err := identity.NewKeeper(o)
	if err != nil {
		return nil, err
	}
	return k, k.MakeDirs()
}

// keepSecrets starts to serve secrets to Envoy and to renew them. When it returns, Envoy may be
// started: its subscriptions are accepted, and stored secrets are served.
func (a *agent) keepSecrets(ctx context.Context, tasks *sync.WaitGroup) (err error) {
	if a.keeper == nil {
		return nil
	}
	a.secrets, err = identity.ListenSecrets(identity.SecretOptions{Socket: socket(a.config), Log: a.log, Rejected: a.rejected})
	if err != nil {
		return err
	}
	tasks.Go(func() { a.problem("serving secrets", a.secrets.Serve(ctx)) })
	if err := a.keeper.Prepare(); err != nil {
		return err
	}
	tasks.Go(func() { a.problem("keeping the certificate", a.keeper.Run(ctx)) })
	return nil
}

// rejected reports that Envoy cannot use a secret. The board changes only if Envoy has no earlier
// secret to go on with.
func (a *agent) rejected(r identity.Rejection) {
	why := fmt.Sprintf("Envoy refuses the secret %s: %s", strings.Join(r.Names, ", "), r.Reason)
	a.journal.Fail("secret refused", why)
	if !r.Kept {
		a.board.Set(readiness.Certificate, false, why)
	}
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

// certificate reports a new state of the certificate to the board, the log and the journal.
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
