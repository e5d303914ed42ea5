package ca

import (
	"cmp"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// DefaultAudience is whom a token is for that buys a certificate: Istio's name.
const DefaultAudience = "istio-ca"

// Limits of tokens.
const (
	maxToken   = 16 << 10
	tokenSkew  = time.Minute // between the clock that made a token and the one that reads it
	defaultTTL = time.Hour
)

// Tokens makes and verifies tokens where no Kubernetes does: JSON web tokens (RFC 7519)
// signed by ES256, with the claims of a service account's.
type Tokens struct {
	key         *ecdsa.PrivateKey
	trustDomain string
	issuer      string
	id          string // of the key
	audience    string // that Authenticate wants
}

// NewTokens uses the key in a directory (token-key.pem), and makes one if there is none.
// Empty audience: [DefaultAudience].
func NewTokens(dir, trustDomain, audience string) (*Tokens, error) {
	path := filepath.Join(dir, "token-key.pem")
	var tokens *Tokens
	err := alone(dir, func() error {
		signer, err := loadOrMakeKey(path)
		if err != nil {
			return err
		}
		key, ok := signer.(*ecdsa.PrivateKey)
		if !ok || key.Curve != elliptic.P256() {
			return fmt.Errorf("%s: a key of another kind; use ECDSA P-256", path)
		}
		der, err := x509.MarshalPKIXPublicKey(key.Public())
		if err != nil {
			return err
		}
		sum := sha256.Sum256(der)
		tokens = &Tokens{key: key, trustDomain: trustDomain, issuer: "https://outriderd." + trustDomain,
			id: base64.RawURLEncoding.EncodeToString(sum[:12]), audience: cmp.Or(audience, DefaultAudience)}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("the key of tokens: %w", err)
	}
	return tokens, nil
}

// A Claim is what a token says.
type Claim struct {
	Namespace      string
	ServiceAccount string
	Audiences      []string      // default: [DefaultAudience]
	TTL            time.Duration // default 1h
}

type header struct {
	Algorithm string `json:"alg"`
	Kind      string `json:"typ,omitempty"`
	Key       string `json:"kid"`
}

type named struct {
	Name string `json:"name"`
}

type claims struct {
	Issuer     string   `json:"iss"`
	Subject    string   `json:"sub"`
	Audiences  []string `json:"aud"`
	ID         string   `json:"jti"`
	Issued     int64    `json:"iat"`
	NotBefore  int64    `json:"nbf"`
	Expires    int64    `json:"exp"`
	Kubernetes struct {
		Namespace      string `json:"namespace"`
		ServiceAccount named  `json:"serviceaccount"`
	} `json:"kubernetes.io"`
}

// Issue makes a token.
func (t *Tokens) Issue(c Claim, now time.Time) (string, error) {
	if err := (Identity{TrustDomain: t.trustDomain, Namespace: c.Namespace, ServiceAccount: c.ServiceAccount}).Check(); err != nil {
		return "", fmt.Errorf("making a token: %w", err)
	}
	if c.TTL < 0 {
		return "", fmt.Errorf("making a token: a life of %s; use more than nothing", c.TTL)
	}
	if len(c.Audiences) == 0 {
		c.Audiences = []string{DefaultAudience}
	}
	body := claims{
		Issuer: t.issuer, Subject: "system:serviceaccount:" + c.Namespace + ":" + c.ServiceAccount,
		Audiences: c.Audiences, ID: rand.Text(),
		Issued: now.Unix(), NotBefore: now.Unix(), Expires: now.Add(cmp.Or(c.TTL, defaultTTL)).Unix(),
	}
	body.Kubernetes.Namespace, body.Kubernetes.ServiceAccount.Name = c.Namespace, c.ServiceAccount
	signed := encode(header{Algorithm: "ES256", Kind: "JWT", Key: t.id}) + "." + encode(body)
	sum := sha256.Sum256([]byte(signed))
	r, s, err := ecdsa.Sign(rand.Reader, t.key, sum[:])
	if err != nil {
		return "", fmt.Errorf("making a token: %w", err)
	}
	signature := make([]byte, 64)
	r.FillBytes(signature[:32])
	s.FillBytes(signature[32:])
	return signed + "." + base64.RawURLEncoding.EncodeToString(signature), nil
}

func encode(v any) string {
	raw, err := json.Marshal(v)
	if err != nil {
		panic(err) // texts and numbers
	}
	return base64.RawURLEncoding.EncodeToString(raw)
}

// Made says whether a token names t's key. It proves nothing.
func (t *Tokens) Made(token string) bool {
	if len(token) > maxToken {
		return false
	}
	first, _, _ := strings.Cut(token, ".")
	h, err := decode[header](first)
	return err == nil && h.Key == t.id
}

// Verify returns what a token says if t made it, for an audience, and it is valid at
// now. What is wrong is said without the token.
func (t *Tokens) Verify(token, audience string, now time.Time) (Claim, error) {
	parts := strings.Split(token, ".")
	if len(token) > maxToken || len(parts) != 3 {
		return Claim{}, errors.New("the token is no JSON web token")
	}
	if h, err := decode[header](parts[0]); err != nil || h.Algorithm != "ES256" || h.Key != t.id {
		return Claim{}, errors.New("the token is not signed by this control plane's key")
	}
	signature, err := strict.DecodeString(parts[2])
	sum := sha256.Sum256([]byte(parts[0] + "." + parts[1]))
	if err != nil || len(signature) != 64 ||
		!ecdsa.Verify(&t.key.PublicKey, sum[:], new(big.Int).SetBytes(signature[:32]), new(big.Int).SetBytes(signature[32:])) {
		return Claim{}, errors.New("the token's signature is wrong")
	}
	body, err := decode[claims](parts[1])
	switch {
	case err != nil:
		return Claim{}, errors.New("the token's claims cannot be read")
	case body.Issuer != t.issuer:
		return Claim{}, fmt.Errorf("the token is of issuer %q; this is %q", body.Issuer, t.issuer)
	case !slices.Contains(body.Audiences, audience):
		return Claim{}, fmt.Errorf("the token is for audience %q; wanted is %q", body.Audiences, audience)
	case !now.Before(time.Unix(body.Expires, 0)):
		return Claim{}, fmt.Errorf("the token expired at %s", time.Unix(body.Expires, 0).UTC().Format(time.RFC3339))
	case now.Add(tokenSkew).Before(time.Unix(body.NotBefore, 0)):
		return Claim{}, fmt.Errorf("the token is valid from %s on only; is a clock wrong?", time.Unix(body.NotBefore, 0).UTC().Format(time.RFC3339))
	}
	return Claim{
		Namespace: body.Kubernetes.Namespace, ServiceAccount: body.Kubernetes.ServiceAccount.Name,
		Audiences: body.Audiences, TTL: time.Unix(body.Expires, 0).Sub(now),
	}, nil
}

// strict takes one way of writing only, so that no two texts are one token.
var strict = base64.RawURLEncoding.Strict()

func decode[T any](part string) (out T, err error) {
	raw, err := strict.DecodeString(part)
	if err != nil {
		return out, err
	}
	return out, json.Unmarshal(raw, &out)
}
