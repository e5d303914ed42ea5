package ca

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"strings"
	"time"
)

// Credentials are what a caller came with.
type Credentials struct {
	Bearer string              // a token, without the word Bearer; empty: none
	Chain  []*x509.Certificate // of its connection, the leaf first; empty: none
}

// A Caller is who asks, once that is proved.
type Caller struct {
	Identity Identity
	Host     string // outside of Kubernetes that it is; empty: it is none
	Method   string // how it was proved, for the log

	// Spend takes note that a credential that may be used once is used, now that nothing
	// else speaks against it, for a key (the SHA-256 of its public half). Nil: nothing to
	// do. The error is as that of an [Authenticator].
	Spend func(ctx context.Context, key [32]byte) error
}

// An Authenticator proves who a caller is. Its error is [ErrOther] if there is no
// credential of its kind, a [*Refusal] if there is one and it does not do, and anything
// else if it cannot tell now.
type Authenticator interface {
	Authenticate(ctx context.Context, c Credentials) (Caller, error)
}

// ErrOther says that a credential is none of an authenticator's kind.
var ErrOther = errors.New("no credential of this kind")

// A Refusal says why a caller does not get what it asks for. The caller reads it: no
// secret is in it.
type Refusal struct{ Reason string }

func (r *Refusal) Error() string { return r.Reason }

func refuse(format string, a ...any) error { return &Refusal{fmt.Sprintf(format, a...)} }

// authenticate asks all in their order: the first that knows the caller wins. An agent
// may come with a token that has expired and a certificate that has not, so one refusal
// is not the end. Refused has all reasons; unsure, what could not be decided.
func authenticate(ctx context.Context, all []Authenticator, c Credentials) (caller Caller, refused, unsure error) {
	var reasons []string
	for _, a := range all {
		caller, err := a.Authenticate(ctx, c)
		var refusal *Refusal
		switch {
		case err == nil:
			return caller, nil, nil
		case errors.Is(err, ErrOther):
		case errors.As(err, &refusal):
			reasons = append(reasons, refusal.Reason)
		default:
			unsure = errors.Join(unsure, err)
		}
	}
	switch {
	case unsure != nil:
		return Caller{}, nil, unsure
	case len(reasons) > 0:
		return Caller{}, &Refusal{strings.Join(reasons, "; ")}, nil
	case c.Bearer != "":
		return Caller{}, refuse("the token is of a kind that this control plane does not know"), nil
	}
	return Caller{}, refuse("neither a token nor a certificate came with the request"), nil
}

// MutualTLS lets a workload renew the certificate that it has.
type MutualTLS struct{ Authority *Authority }

// Authenticate looks at the connection's certificate.
func (m MutualTLS) Authenticate(_ context.Context, c Credentials) (Caller, error) {
	if len(c.Chain) == 0 {
		return Caller{}, ErrOther
	}
	id, err := m.Authority.Identify(c.Chain)
	if err != nil {
		return Caller{}, &Refusal{err.Error()}
	}
	host, _ := hostOf(c.Chain[0], id)
	return Caller{Identity: id, Host: host.Name, Method: "certificate"}, nil
}

// A Reviewer says whose token it is, as Kubernetes' TokenReview does. Its error is as
// that of an [Authenticator].
type Reviewer interface {
	Review(ctx context.Context, token string, audiences []string) (namespace, serviceAccount string, err error)
}

// Reviewed are tokens that somebody else judges.
type Reviewed struct {
	Reviewer    Reviewer
	TrustDomain string
	Audiences   []string
}

// Authenticate asks the reviewer.
func (r Reviewed) Authenticate(ctx context.Context, c Credentials) (Caller, error) {
	if c.Bearer == "" {
		return Caller{}, ErrOther
	}
	namespace, account, err := r.Reviewer.Review(ctx, c.Bearer, r.Audiences)
	if err != nil {
		return Caller{}, err
	}
	return called(Identity{TrustDomain: r.TrustDomain, Namespace: namespace, ServiceAccount: account}, "token review")
}

// called is a caller by a name that came from outside.
func called(id Identity, method string) (Caller, error) {
	if err := id.Check(); err != nil {
		return Caller{}, &Refusal{"the token's " + err.Error()}
	}
	return Caller{Identity: id, Method: method}, nil
}

// Authenticate takes tokens that t made.
func (t *Tokens) Authenticate(_ context.Context, c Credentials) (Caller, error) {
	if !t.Made(c.Bearer) {
		return Caller{}, ErrOther
	}
	claims, err := t.Verify(c.Bearer, t.audience, time.Now())
	if err != nil {
		return Caller{}, &Refusal{err.Error()}
	}
	return called(Identity{TrustDomain: t.trustDomain, Namespace: claims.Namespace, ServiceAccount: claims.ServiceAccount}, "token")
}
