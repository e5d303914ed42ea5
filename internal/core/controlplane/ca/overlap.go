package ca

import (
	"bytes"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"outrider.dev/internal/base/wire"
)

// If outriderd may not write the store, another program replaces the root in it. Often that program replaces
// the certificate, key and roots at once. So that no certificate is refused after that, outriderd keeps a
// record of the roots that it has seen.
//
//   - A root that was removed from the store stays trusted until the last certificate that it signed has
//     expired.
//   - A new root is published for RootSpread before it signs. Until then a replica signs with its previous
//     certificate. A replica that starts in that time does not have the previous certificate, and signs with
//     the new one.
//
// The record contains the roots, and the file rotation.json with the times, as in a rotation by outriderd.

// overlap returns a signer that also trusts the roots in the record. It signs as s does; until s may sign, it
// signs as the present signer does. The caller holds a.reading.
func (a *Authority) overlap(ctx context.Context, c Contents, s *signer) (*signer, error) {
	a.recordDue = time.Time{}
	if a.o.Record == nil || mayRotate(c, s) == nil {
		return s, nil
	}
	now, before := a.now(), a.loaded()
	for ctx.Err() == nil {
		record, err := a.o.Record.Read(ctx)
		if err != nil {
			return nil, fmt.Errorf("reading the record of roots: %w", err)
		}
		next, known, r, err := a.remember(record, before, s, now)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", a.o.Record, err)
		}
		if !maps.EqualFunc(next.Files, record.Files, bytes.Equal) {
			if err := a.o.Record.Update(ctx, next); errors.Is(err, ErrConflict) {
				continue // another replica has updated the record
			} else if err != nil {
				return nil, fmt.Errorf("writing the record of roots: %w", err)
			}
		}
		a.recordDue = r.due(now)
		return s.with(known, before, r, now), nil
	}
	return nil, context.Cause(ctx)
}

// remember adds the roots in the store to the record, and removes those whose certificates have all expired.
// The result known contains all trusted roots.
func (a *Authority) remember(record Contents, before, s *signer, now time.Time) (next Contents, known []*x509.Certificate, r rotation, err error) {
	next = record.clone()
	if r, err = parseRotation(record.Files); err != nil {
		return next, nil, r, err
	}
	var seen []*x509.Certificate
	if raw, ok := record.Files[layouts[0].roots]; ok {
		if seen, err = wire.ParseCertificates(raw); err != nil {
			return next, nil, r, fmt.Errorf("%s: %w", layouts[0].roots, err)
		}
	} else if before != nil {
		seen = before.roots // the record was deleted
	}
	if a.o.MaxLife > r.longest() {
		r.LongestLife = int64((a.o.MaxLife + time.Second - 1) / time.Second)
	}
	if !r.Move.IsZero() && !now.Before(r.Move) {
		r.Move = time.Time{}
	}
	known = slices.Clone(s.roots)
	for _, root := range s.roots {
		delete(r.Retire, sumOf(root)) // it is in the store again
		if len(seen) > 0 && !slices.ContainsFunc(seen, root.Equal) {
			r.Move = now.Add(a.o.RootSpread).UTC()
		}
	}
	for _, root := range seen {
		if slices.ContainsFunc(s.roots, root.Equal) {
			continue
		}
		sum := sumOf(root)
		until, ok := r.Retire[sum]
		if !ok {
			until = now.Add(r.longest() + a.o.RootSpread)
			if until.After(root.NotAfter) {
				until = root.NotAfter
			}
		}
		if !now.Before(until) {
			delete(r.Retire, sum)
			continue
		}
		if r.Retire == nil {
			r.Retire = map[string]time.Time{}
		}
		r.Retire[sum] = until.UTC()
		known = append(known, root)
	}
	next.Files[layouts[0].roots] = wire.MarshalCertificates(known...)
	return next, known, r, r.put(next.Files)
}

// due returns the next time after now at which a new root may sign or an old one is removed; zero: there is
// none.
func (r rotation) due(now time.Time) (at time.Time) {
	earlier := func(t time.Time) {
		if t.After(now) && (at.IsZero() || t.Before(at)) {
			at = t
		}
	}
	earlier(r.Move)
	for _, t := range r.Retire { // any order: the earliest is taken
		earlier(t)
	}
	return at
}

// with returns a copy of s that trusts the known roots. Until the root of s may sign, it returns a copy of
// the previous signer instead.
func (s *signer) with(known []*x509.Certificate, before *signer, r rotation, now time.Time) *signer {
	out := *s
	if now.Before(r.Move) && before != nil && !before.root.Equal(s.root) && now.Before(before.cert.NotAfter) && slices.ContainsFunc(known, before.root.Equal) {
		out = *before
	}
	out.roots, out.pool = known, poolOf(known)
	out.raw = slices.Concat(s.raw, wire.MarshalCertificates(known...), out.cert.Raw)
	return &out
}
