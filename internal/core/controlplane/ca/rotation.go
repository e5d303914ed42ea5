package ca

import (
	"bytes"
	"context"
	"crypto"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"outrider.dev/internal/base/wire"
)

// A rotation replaces the root in three steps, each of which is one update of the store. The first
// replica that finds a step due takes it; the others read the result. After a crash between two steps
// the next replica, or the next start, continues.
//
//	publish  the next root is among the roots, so that every proxy trusts it
//	move     after RootSpread, the next root signs
//	retire   when the last certificate that the old root signed has expired, it is removed from the roots
//
// The first step follows a request (the file rotate), or is due when only a fifth of the root's
// lifetime remains. A request during a rotation starts another rotation after the move.

// DefaultRootSpread is the default of [AuthorityOptions.RootSpread]. An hour is ample: the kubelet updates a
// pod's ConfigMaps within two minutes.
const DefaultRootSpread = time.Hour

// leftOfRoot determines when a rotation begins without a request: when 1/leftOfRoot of the root's lifetime
// remains.
const leftOfRoot = 5

// rotation is the content of rotation.json: the times on which replicas must agree.
type rotation struct {
	// Move is the time at which the next root may sign.
	Move time.Time `json:"move,omitzero"`
	// Retire maps roots that no longer sign, by their SHA-256, to the time at which each is removed.
	Retire map[string]time.Time `json:"retire,omitempty"`
	// LongestLife is the maximum lifetime, in seconds, of the certificates that any replica signs; 0:
	// defaultMaxLife.
	LongestLife int64 `json:"longestLifeSeconds,omitempty"`
}

func parseRotation(files map[string][]byte) (r rotation, err error) {
	raw, ok := files[rotationFile]
	if !ok {
		return r, nil
	}
	if err := json.Unmarshal(raw, &r); err != nil {
		return r, fmt.Errorf("%s: %w", rotationFile, err)
	}
	if r.LongestLife < 0 || r.LongestLife > int64(rootLife/time.Second) {
		return r, fmt.Errorf("%s: longestLifeSeconds %d: want 0 to %d", rotationFile, r.LongestLife, int64(rootLife/time.Second))
	}
	return r, nil
}

func (r rotation) longest() time.Duration {
	return max(time.Duration(r.LongestLife)*time.Second, defaultMaxLife)
}

// put writes rotation.json into files, or removes it if it would be empty.
func (r rotation) put(files map[string][]byte) error {
	raw, err := json.Marshal(r)
	if err != nil {
		return err
	}
	files[rotationFile] = raw
	if bytes.Equal(raw, []byte("{}")) {
		delete(files, rotationFile)
	}
	return nil
}

func sumOf(c *x509.Certificate) string {
	sum := sha256.Sum256(c.Raw)
	return hex.EncodeToString(sum[:])
}

// nextRoot returns the root that is published and does not sign yet; nil if there is none.
func nextRoot(files map[string][]byte) (*x509.Certificate, error) {
	raw, ok := files[nextCertFile]
	if !ok {
		return nil, nil
	}
	certs, err := wire.ParseCertificates(raw)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", nextCertFile, err)
	}
	var key crypto.Signer
	if key, err = wire.ParseKey(files[nextKeyFile]); err != nil {
		return nil, fmt.Errorf("%s: %w", nextKeyFile, err)
	}
	if len(certs) != 1 || !wire.Fits(certs[0], key) {
		return nil, fmt.Errorf("%s: want one certificate, of the key in %s", nextCertFile, nextKeyFile)
	}
	return certs[0], nil
}

// errNotOurRoot is the error for a root that outriderd may not rotate, because it did not create that root or
// may not write the store.
var errNotOurRoot = errors.New("only a root that outriderd made, in a store that it may write, is rotated: replace this one where it comes from")

// mayRotate returns an error if outriderd may not rotate the root in a store.
func mayRotate(c Contents, s *signer) error {
	if l, _ := find(c.Files); !c.Own || l != layouts[0] || !s.madeHere() {
		return errNotOurRoot
	}
	return nil
}

// A step is a change of the store that is due now. If none is due, it contains only the time of the next
// step.
type step struct {
	name string   // description for the log; empty: nothing is due
	next Contents // contents after the step
	root *x509.Certificate
	due  time.Time // time of the next step; zero: none follows
}

// plan decides the next step from the contents of the store. It writes nothing.
func (a *Authority) plan(c Contents, s *signer, now time.Time) (step, error) {
	_, requested := c.Files[requestFile]
	if err := mayRotate(c, s); err != nil {
		if requested {
			return step{}, err
		}
		return step{due: a.recordDue}, nil
	}
	r, err := parseRotation(c.Files)
	if err != nil {
		return step{}, err
	}
	next, err := nextRoot(c.Files)
	if err != nil {
		return step{}, err
	}
	begin := s.cert.NotAfter.Add(-s.cert.NotAfter.Sub(s.cert.NotBefore) / leftOfRoot)
	out := step{next: c.clone()}
	files := out.next.Files
	switch old := r.retired(s, now); {
	case a.o.MaxLife > r.longest():
		// The longest lifetime is stored, so that every replica that rotates the root takes it into account.
		out.name = "longer certificates"
		r.LongestLife = int64((a.o.MaxLife + time.Second - 1) / time.Second)
	case old != nil:
		out.name, out.root = "old root retired", old
		delete(r.Retire, sumOf(old))
		files[layouts[0].roots] = wire.MarshalCertificates(slices.DeleteFunc(slices.Clone(s.roots), old.Equal)...)
	case next == nil && (requested || !now.Before(begin)):
		out.name = "next root published"
		out.root, err = a.publish(files, s, &r, now)
	case next != nil && !now.Before(r.moves(next, a.o.RootSpread)):
		out.name, out.root = "next root signs", next
		a.move(files, s, &r, next, now)
	default:
		out.due = begin
		if next != nil {
			out.due = r.moves(next, a.o.RootSpread)
		}
		for _, root := range s.roots {
			if at, ok := r.Retire[sumOf(root)]; ok && !root.Equal(s.root) && at.Before(out.due) {
				out.due = at
			}
		}
		return out, nil
	}
	if err != nil {
		return step{}, err
	}
	return out, r.put(files)
}

// retired returns a root whose time of removal has come, or nil. It never returns the signing root.
func (r rotation) retired(s *signer, now time.Time) *x509.Certificate {
	for _, root := range s.roots {
		if at, ok := r.Retire[sumOf(root)]; ok && !now.Before(at) && !root.Equal(s.root) {
			return root
		}
	}
	return nil
}

// moves returns the time at which the next root may sign.
func (r rotation) moves(next *x509.Certificate, spread time.Duration) time.Time {
	if r.Move.IsZero() { // rotation.json was lost
		return next.NotBefore.Add(clockSkew + spread)
	}
	return r.Move
}

// publish creates the next root. A host receives new roots only when it renews its certificate. So if the
// mesh has hosts, the next root signs only after each of them has renewed its certificate.
func (a *Authority) publish(files map[string][]byte, s *signer, r *rotation, now time.Time) (*x509.Certificate, error) {
	key, rawKey, err := newKey()
	if err != nil {
		return nil, err
	}
	raw, err := newRoot(key, a.o.TrustDomain, now, rootLife)
	if err != nil {
		return nil, err
	}
	certs, err := wire.ParseCertificates(raw)
	if err != nil {
		return nil, err
	}
	spread := a.o.RootSpread
	if a.o.Hosts != nil && a.o.Hosts.Any() {
		spread = max(spread, r.longest())
	}
	r.Move = now.Add(spread).UTC()
	files[nextCertFile], files[nextKeyFile] = raw, rawKey
	files[layouts[0].roots] = wire.MarshalCertificates(append(slices.Clone(s.roots), certs[0])...)
	delete(files, requestFile)
	return certs[0], nil
}

// move makes the next root the signing one. The old root stays trusted for the longest lifetime of the
// certificates it signed, plus RootSpread, because a replica that has not read this step yet still signs with
// it.
func (a *Authority) move(files map[string][]byte, s *signer, r *rotation, next *x509.Certificate, now time.Time) {
	until := now.Add(r.longest() + a.o.RootSpread)
	if until.After(s.cert.NotAfter) {
		until = s.cert.NotAfter // beyond that time no chain would verify
	}
	if r.Retire == nil {
		r.Retire = map[string]time.Time{}
	}
	r.Retire[sumOf(s.root)] = until.UTC()
	r.Move = time.Time{}
	files[layouts[0].cert], files[layouts[0].key] = files[nextCertFile], files[nextKeyFile]
	delete(files, nextCertFile)
	delete(files, nextKeyFile)
	delete(files, layouts[0].chain)
	roots := slices.Clone(s.roots)
	if !slices.ContainsFunc(roots, next.Equal) {
		roots = append(roots, next)
	}
	files[layouts[0].roots] = wire.MarshalCertificates(roots...)
}

// Advance reads the store and takes the steps that are due. It returns the time of the next step; zero: none
// follows.
func (a *Authority) Advance(ctx context.Context) (due time.Time, err error) {
	a.reading.Lock()
	defer a.reading.Unlock()
	for ctx.Err() == nil {
		if err := a.reload(ctx); err != nil {
			return time.Time{}, fmt.Errorf("the authority stays as it was: %w", err)
		}
		next, err := a.plan(a.stored, a.loaded(), a.now())
		if err != nil {
			return time.Time{}, fmt.Errorf("the root in %s is not rotated: %w", a.o.Store, err)
		}
		if next.name == "" {
			return next.due, nil
		}
		err = a.o.Store.Update(ctx, next.next)
		switch {
		case errors.Is(err, ErrConflict): // another replica was first; read again
		case err != nil:
			return time.Time{}, fmt.Errorf("the root in %s is not rotated: %w", a.o.Store, err)
		case next.root != nil:
			a.o.Log.Info("rotation of the root: "+next.name, "root", next.root.Subject.String(), "not_after", next.root.NotAfter)
		}
	}
	return time.Time{}, context.Cause(ctx)
}

// A RotationRequest reports the result of [RequestRotation].
type RotationRequest struct {
	Root      string // subject of the root that signs now
	Requested bool   // false: a rotation was already requested
}

// RequestRotation requests a rotation from the control planes that use a store. It fails if they may not
// rotate its root.
func RequestRotation(ctx context.Context, store Store, now time.Time) (RotationRequest, error) {
	for ctx.Err() == nil {
		c, err := store.Read(ctx)
		if err != nil {
			return RotationRequest{}, fmt.Errorf("reading the authority's files: %w", err)
		}
		s, err := load(store, c.Files, now)
		if err != nil {
			return RotationRequest{}, err
		}
		if err := mayRotate(c, s); err != nil {
			return RotationRequest{}, fmt.Errorf("%s: %w", store, err)
		}
		out := RotationRequest{Root: s.root.Subject.String()}
		if _, ok := c.Files[requestFile]; ok {
			return out, nil
		}
		next := c.clone()
		next.Files[requestFile] = []byte(now.UTC().Format(time.RFC3339) + "\n")
		err = store.Update(ctx, next)
		if err == nil {
			out.Requested = true
			return out, nil
		}
		if !errors.Is(err, ErrConflict) {
			return RotationRequest{}, fmt.Errorf("requesting a rotation: %w", err)
		}
	}
	return RotationRequest{}, context.Cause(ctx)
}
