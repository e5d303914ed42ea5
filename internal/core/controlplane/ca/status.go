package ca

import (
	"context"
	"crypto/x509"
	"fmt"
	"slices"
	"time"

	"outrider.dev/internal/base/wire"
)

// A RootState is the role of a root in a rotation.
type RootState string

// States of roots.
const (
	RootSigns    RootState = "signs"    // it signs certificates
	RootNext     RootState = "next"     // it is published, and will sign
	RootRetiring RootState = "retiring" // it has signed certificates that have not expired yet
	RootTrusted  RootState = "trusted"  // it is trusted, but has not signed here
)

// A RootStatus describes one of the mesh's roots.
type RootStatus struct {
	Subject   string    `json:"subject"`
	SHA256    string    `json:"sha256"` // fingerprint of the certificate
	NotBefore time.Time `json:"notBefore"`
	NotAfter  time.Time `json:"notAfter"`
	State     RootState `json:"state"`
	// Until is the time at which the next root begins to sign, or a retiring root is removed.
	Until time.Time `json:"until,omitzero"`
}

// A RotationStatus describes the progress of the rotation in a store.
type RotationStatus struct {
	Store string       `json:"store"`
	Roots []RootStatus `json:"roots"`
	// Intermediate is the signing certificate, if it is not a root.
	Intermediate *RootStatus `json:"intermediate,omitempty"`
	Requested    bool        `json:"requested"`         // a rotation is requested, and no replica has begun it
	Foreign      string      `json:"foreign,omitempty"` // reason why outriderd does not rotate this root; empty: it does

	cert bool // the store has cert-manager's layout
}

// Root returns the first root in a state; false: there is none.
func (s RotationStatus) Root(in RootState) (RootStatus, bool) {
	for _, r := range s.Roots {
		if r.State == in {
			return r, true
		}
	}
	return RootStatus{}, false
}

// Step describes the current step of the rotation and what it waits for; empty: no rotation is under way.
func (s RotationStatus) Step() string {
	if s.Requested {
		return "requested: a replica publishes the next root"
	}
	if next, ok := s.Root(RootNext); ok {
		return "published: the next root signs from " + next.Until.UTC().Format(time.RFC3339)
	}
	if old, ok := s.Root(RootRetiring); ok {
		return "signs: the old root is removed at " + old.Until.UTC().Format(time.RFC3339)
	}
	return ""
}

// Instead returns what a user must do to replace a root that outriderd does not rotate.
func (s RotationStatus) Instead() string {
	if s.cert {
		return "renew the issuer's certificate in cert-manager: outriderd follows the Secret, and keeps roots that leave it while certificates of them are valid"
	}
	return "replace ca-cert.pem, ca-key.pem, cert-chain.pem and root-cert.pem in the Secret: outriderd follows it, and keeps roots that leave it while certificates of them are valid"
}

// StatusOf reads the progress of the rotation in a store. For the second store see [AuthorityOptions.Record];
// it may be nil.
func StatusOf(ctx context.Context, store, record Store, now time.Time) (RotationStatus, error) {
	out := RotationStatus{Store: store.String()}
	c, err := store.Read(ctx)
	if err != nil {
		return out, fmt.Errorf("reading the authority's files: %w", err)
	}
	s, err := load(store, c.Files, now)
	if err != nil {
		return out, err
	}
	if err := mayRotate(c, s); err != nil {
		out.Foreign = err.Error()
	}
	l, _ := find(c.Files)
	out.cert = l != layouts[0]
	_, out.Requested = c.Files[requestFile]
	seen := c
	if out.Foreign != "" && record != nil {
		if seen, err = record.Read(ctx); err != nil {
			return out, fmt.Errorf("reading the record of roots: %w", err)
		}
	}
	if err := out.add(c, seen, s); err != nil {
		return out, err
	}
	if !s.cert.Equal(s.root) {
		signer := statusOf(s.cert, RootSigns)
		out.Intermediate = &signer
	}
	return out, nil
}

// add adds to out the roots in a store and in the record, with their states.
func (out *RotationStatus) add(c, seen Contents, s *signer) error {
	r, err := parseRotation(seen.Files)
	if err != nil {
		return err
	}
	next, err := nextRoot(c.Files)
	if err != nil {
		return err
	}
	all := slices.Clone(s.roots)
	if raw, ok := seen.Files[layouts[0].roots]; ok {
		former, err := wire.ParseCertificates(raw)
		if err != nil {
			return fmt.Errorf("%s: %w", layouts[0].roots, err)
		}
		all = append(all, slices.DeleteFunc(former, func(f *x509.Certificate) bool { return slices.ContainsFunc(all, f.Equal) })...)
	}
	for _, root := range all {
		one := statusOf(root, RootTrusted)
		switch at, retires := r.Retire[sumOf(root)]; {
		case root.Equal(s.root):
			one.State = RootSigns
			if out.Foreign != "" && !r.Move.IsZero() { // before that time a replica may sign with the previous certificate
				one.State, one.Until = RootNext, r.Move
			}
		case next != nil && root.Equal(next):
			one.State, one.Until = RootNext, r.moves(next, DefaultRootSpread)
		case retires:
			one.State, one.Until = RootRetiring, at
		}
		out.Roots = append(out.Roots, one)
	}
	return nil
}

func statusOf(c *x509.Certificate, state RootState) RootStatus {
	return RootStatus{Subject: c.Subject.String(), SHA256: sumOf(c), NotBefore: c.NotBefore.UTC(), NotAfter: c.NotAfter.UTC(), State: state}
}

// HasRoot reports whether a PEM bundle contains a certificate with this fingerprint.
func HasRoot(pem []byte, sha256 string) bool {
	certs, err := wire.ParseCertificates(pem)
	return err == nil && slices.ContainsFunc(certs, func(c *x509.Certificate) bool { return sumOf(c) == sha256 })
}
