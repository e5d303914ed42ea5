package ca

import (
	"context"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4/jwt"
)

// Credentials are the proofs of identity that a caller has sent.
type Credentials struct {
	Bearer string              // a token, without the word Bearer; empty: none
	Chain  []*x509.Certificate // the certificates of its connection, the leaf first; empty: none
}

// A Caller is an authenticated client.
type Caller struct {
	Identity Identity
	Host     string    // the host outside of Kubernetes; empty: the caller is no host
	Pod      string    // the pod to which the token is bound, for the log; empty: none
	Method   string    // method of authentication, for the log
	Expiry   time.Time // expiry of the token; zero: it does not expire

	// Spend marks a one-time credential as used. The key is the SHA-256 of the requester's public key. Spend
	// is called last, when nothing else can refuse the request. It is nil for credentials that may be used
	// often. It returns the same kinds of errors as an [Authenticator].
	Spend func(key [32]byte) error
}

// An Authenticator checks one kind of credential. It returns [ErrOther] if the caller has no credential
// of this kind, a [*Refusal] if the credential is invalid, and any other error if it cannot be checked
// now.
type Authenticator interface {
	Authenticate(ctx context.Context, c Credentials) (Caller, error)
}

// ErrOther means that the caller has no credential of the kind that an authenticator checks.
var ErrOther = errors.New("no credential of this kind")

// A Refusal is the reason why a request is denied. It is sent to the caller, so it must not contain a secret.
type Refusal struct{ Reason string }

func (r *Refusal) Error() string { return r.Reason }

func refuse(format string, a ...any) error { return &Refusal{fmt.Sprintf(format, a...)} }

// ErrTokenNeeded is the refusal of a renewal without a token in a cluster.
var ErrTokenNeeded = &Refusal{"in a cluster a certificate is not renewed by itself: send the pod's token, which shows that the pod still exists"}

// authenticate tries all authenticators in order and returns the first success. It continues after a refusal,
// because an agent may have an expired token and a valid certificate. The error is a [*Refusal] with all
// reasons, unless some credential could not be checked.
func authenticate(ctx context.Context, all []Authenticator, c Credentials) (Caller, error) {
	var reasons []string
	var unchecked error
	for _, a := range all {
		caller, err := a.Authenticate(ctx, c)
		var refusal *Refusal
		switch {
		case err == nil:
			return caller, nil
		case errors.Is(err, ErrOther):
		case errors.As(err, &refusal):
			reasons = append(reasons, refusal.Reason)
		default:
			unchecked = errors.Join(unchecked, err)
		}
	}
	switch {
	case unchecked != nil:
		return Caller{}, unchecked
	case len(reasons) > 0:
		return Caller{}, &Refusal{strings.Join(reasons, "; ")}
	case c.Bearer != "":
		return Caller{}, refuse("the token is of a kind that this control plane does not know")
	}
	return Caller{}, refuse("neither a token nor a certificate came with the request")
}

// MutualTLS authenticates callers by the certificate of their connection, so that a caller can renew that
// certificate.
type MutualTLS struct {
	Authority *Authority
	// MayRenew returns a [*Refusal] if a workload may not renew its certificate without any other credential.
	// It is not called for hosts, which may renew while they are declared. If MayRenew is nil, only hosts may
	// renew.
	MayRenew func(Identity) error
}

// Authenticate returns the caller with the identity in the connection's certificate.
func (m MutualTLS) Authenticate(_ context.Context, c Credentials) (Caller, error) {
	if len(c.Chain) == 0 {
		return Caller{}, ErrOther
	}
	id, err := m.Authority.Identify(c.Chain)
	if err != nil {
		return Caller{}, &Refusal{err.Error()}
	}
	host, ok := hostOf(c.Chain[0], id)
	if !ok {
		if m.MayRenew == nil {
			return Caller{}, ErrTokenNeeded
		}
		if err := m.MayRenew(id); err != nil {
			return Caller{}, err
		}
	}
	return Caller{Identity: id, Host: host.Name, Method: "certificate"}, nil
}

// A Subject is the holder of a token.
type Subject struct{ Namespace, ServiceAccount, Pod string }

// A Reviewer returns the subject of a token, as Kubernetes' TokenReview does. It returns the same kinds
// of errors as an [Authenticator].
type Reviewer interface {
	Review(ctx context.Context, token string, audiences []string) (Subject, error)
}

// Reviewed authenticates callers by tokens that a [Reviewer] verifies.
type Reviewed struct {
	Reviewer    Reviewer
	TrustDomain string
	Audiences   []string
}

// Authenticate passes the caller's token to the reviewer.
func (r Reviewed) Authenticate(ctx context.Context, c Credentials) (Caller, error) {
	if c.Bearer == "" {
		return Caller{}, ErrOther
	}
	of, err := r.Reviewer.Review(ctx, c.Bearer, r.Audiences)
	if err != nil {
		return Caller{}, err
	}
	caller, err := newCaller(Identity{TrustDomain: r.TrustDomain, Namespace: of.Namespace, ServiceAccount: of.ServiceAccount}, "token review")
	caller.Pod, caller.Expiry = of.Pod, expiryOf(c.Bearer)
	return caller, err
}

// expiryOf reads the expiry of a verified token; zero: it has none.
func expiryOf(token string) time.Time {
	_, rest, _ := strings.Cut(token, ".")
	body, _, _ := strings.Cut(rest, ".")
	text, err := base64.RawURLEncoding.DecodeString(body)
	var claims jwt.Claims
	if err != nil || json.Unmarshal(text, &claims) != nil || claims.Expiry == nil {
		return time.Time{}
	}
	return claims.Expiry.Time()
}

// newCaller returns the caller with an identity from a token. It returns a [*Refusal] if the identity is
// invalid.
func newCaller(id Identity, method string) (Caller, error) {
	if err := id.Check(); err != nil {
		return Caller{}, &Refusal{"the token's " + err.Error()}
	}
	return Caller{Identity: id, Method: method}, nil
}
