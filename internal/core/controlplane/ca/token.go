package ca

import (
	"cmp"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
)

// DefaultAudience is the audience of tokens that prove an identity to the authority. The name is
// Istio's.
const DefaultAudience = "istio-ca"

// Limits and defaults of tokens.
const (
	maxToken   = 16 << 10
	tokenSkew  = time.Minute // maximum difference between the issuer's clock and ours
	defaultTTL = time.Hour
)

// Tokens issues and verifies service account tokens without Kubernetes: JSON web tokens (RFC 7519)
// signed with ES256.
type Tokens struct {
	key         func() tokenKey // returns the current key
	trustDomain string
	issuer      string
}

// A tokenKey signs tokens. They contain its ID.
type tokenKey struct {
	*ecdsa.PrivateKey
	id string
}

var errTokenKey = errors.New("the key must be ECDSA P-256")

func newTokenKey(key *ecdsa.PrivateKey) (tokenKey, error) {
	if key.Curve != elliptic.P256() {
		return tokenKey{}, errTokenKey
	}
	der, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return tokenKey{}, err
	}
	sum := sha256.Sum256(der)
	return tokenKey{key, base64.RawURLEncoding.EncodeToString(sum[:12])}, nil
}

// derivedTokenKey derives a key from the authority's key. It is for an authority whose files outriderd may
// not write, so that all replicas have the same key.
func derivedTokenKey(authority crypto.Signer) (tokenKey, error) {
	secret, err := x509.MarshalPKCS8PrivateKey(authority)
	if err != nil {
		return tokenKey{}, err
	}
	for try := 0; ; try++ {
		raw, err := hkdf.Key(sha256.New, secret, nil, fmt.Sprint("outrider token ", try), 32)
		if err != nil {
			return tokenKey{}, err
		}
		// About one number in 2^32 is too large for the curve; then another one is derived.
		if key, err := ecdsa.ParseRawPrivateKey(elliptic.P256(), raw); err == nil {
			return newTokenKey(key)
		}
	}
}

// Tokens returns the issuer and verifier of tokens for this authority. All replicas use the same key: it is
// in the store's file token-key.pem, or derived from the authority's key.
func (a *Authority) Tokens() *Tokens {
	return tokensBy(func() tokenKey { return a.loaded().tokens }, a.o.TrustDomain)
}

func tokensBy(key func() tokenKey, trustDomain string) *Tokens {
	return &Tokens{key: key, trustDomain: trustDomain, issuer: "https://outriderd." + trustDomain}
}

// NewTokens returns an issuer and verifier with the key in a directory (token-key.pem). It creates the key if
// there is none.
func NewTokens(dir, trustDomain string) (*Tokens, error) {
	path := filepath.Join(dir, tokenKeyFile)
	var key tokenKey
	err := withLock(dir, func() error {
		signer, err := loadOrMakeKey(path)
		if err != nil {
			return err
		}
		ec, ok := signer.(*ecdsa.PrivateKey)
		if !ok {
			return fmt.Errorf("%s: %w", path, errTokenKey)
		}
		if key, err = newTokenKey(ec); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("loading the key of tokens: %w", err)
	}
	return tokensBy(func() tokenKey { return key }, trustDomain), nil
}

// A Claim is the content of a token.
type Claim struct {
	Namespace      string
	ServiceAccount string
	Audiences      []string      // default: [DefaultAudience]
	TTL            time.Duration // default 1h
}

// claims are the claims in a service account token of Kubernetes.
type claims struct {
	jwt.Claims
	Kubernetes kubernetesClaims `json:"kubernetes.io"`
}

type kubernetesClaims struct {
	Namespace      string `json:"namespace"`
	ServiceAccount struct {
		Name string `json:"name"`
	} `json:"serviceaccount"`
}

// Issue returns a signed token for a claim. It fails if the identity is invalid or the TTL is negative.
func (t *Tokens) Issue(c Claim, now time.Time) (string, error) {
	if err := (Identity{TrustDomain: t.trustDomain, Namespace: c.Namespace, ServiceAccount: c.ServiceAccount}).Check(); err != nil {
		return "", fmt.Errorf("making a token: %w", err)
	}
	if c.TTL < 0 {
		return "", fmt.Errorf("making a token: the TTL must be positive, not %s", c.TTL)
	}
	if len(c.Audiences) == 0 {
		c.Audiences = []string{DefaultAudience}
	}
	body := claims{Claims: jwt.Claims{
		Issuer: t.issuer, Subject: "system:serviceaccount:" + c.Namespace + ":" + c.ServiceAccount,
		Audience: c.Audiences, ID: rand.Text(),
		IssuedAt: jwt.NewNumericDate(now), NotBefore: jwt.NewNumericDate(now), Expiry: jwt.NewNumericDate(now.Add(cmp.Or(c.TTL, defaultTTL))),
	}}
	body.Kubernetes.Namespace, body.Kubernetes.ServiceAccount.Name = c.Namespace, c.ServiceAccount
	by := t.key()
	key := jose.SigningKey{Algorithm: jose.ES256, Key: jose.JSONWebKey{Key: by.PrivateKey, KeyID: by.id}}
	signer, err := jose.NewSigner(key, (&jose.SignerOptions{}).WithType("JWT"))
	if err != nil {
		return "", fmt.Errorf("making a token: %w", err)
	}
	token, err := jwt.Signed(signer).Claims(body).Serialize()
	if err != nil {
		return "", fmt.Errorf("making a token: %w", err)
	}
	return token, nil
}

var errNotJWT = errors.New("the token is no JSON web token")

// parse parses a token whose header names this key. It does not verify the signature.
func (k tokenKey) parse(token string) (*jwt.JSONWebToken, error) {
	parts := strings.Split(token, ".")
	if len(token) > maxToken || len(parts) != 3 || strings.ContainsAny(token, "\r\n") {
		return nil, errNotJWT
	}
	for _, part := range parts {
		// go-jose ignores unused trailing bits in base64, so several texts would count as the same token.
		if _, err := base64.RawURLEncoding.Strict().DecodeString(part); err != nil {
			return nil, errNotJWT
		}
	}
	parsed, err := jwt.ParseSigned(token, []jose.SignatureAlgorithm{jose.ES256})
	if err != nil || parsed.Headers[0].KeyID != k.id {
		return nil, errors.New("the token is not signed by this control plane's key")
	}
	return parsed, nil
}

// Verify returns the claim in a token, if t issued the token for this audience and it is valid at now. No
// error contains the token.
func (t *Tokens) Verify(token, audience string, now time.Time) (Claim, error) {
	by := t.key()
	parsed, err := by.parse(token)
	if err != nil {
		return Claim{}, err
	}
	if err := parsed.Claims(by.Public()); err != nil {
		return Claim{}, errors.New("the token's signature is wrong")
	}
	var body claims
	switch err := parsed.UnsafeClaimsWithoutVerification(&body); { // parsed.Claims has verified the signature
	case err != nil:
		return Claim{}, errors.New("the token's claims cannot be read")
	case body.Issuer != t.issuer:
		return Claim{}, fmt.Errorf("the token is of issuer %q; this is %q", body.Issuer, t.issuer)
	case !body.Audience.Contains(audience):
		return Claim{}, fmt.Errorf("the token is for audience %q; it must be for %q", []string(body.Audience), audience)
	case !now.Before(body.Expiry.Time()):
		return Claim{}, fmt.Errorf("the token expired at %s", body.Expiry.Time().UTC().Format(time.RFC3339))
	case now.Add(tokenSkew).Before(body.NotBefore.Time()):
		return Claim{}, fmt.Errorf("the token is valid only from %s; is a clock wrong?", body.NotBefore.Time().UTC().Format(time.RFC3339))
	}
	return Claim{
		Namespace: body.Kubernetes.Namespace, ServiceAccount: body.Kubernetes.ServiceAccount.Name,
		Audiences: body.Audience, TTL: body.Expiry.Time().Sub(now),
	}, nil
}

// Authenticate accepts tokens that t issued for [DefaultAudience].
func (t *Tokens) Authenticate(_ context.Context, c Credentials) (Caller, error) {
	if _, err := t.key().parse(c.Bearer); err != nil {
		return Caller{}, ErrOther
	}
	now := time.Now()
	claim, err := t.Verify(c.Bearer, DefaultAudience, now)
	if err != nil {
		return Caller{}, &Refusal{err.Error()}
	}
	caller, err := newCaller(Identity{TrustDomain: t.trustDomain, Namespace: claim.Namespace, ServiceAccount: claim.ServiceAccount}, "token")
	caller.Expiry = now.Add(claim.TTL)
	return caller, err
}
