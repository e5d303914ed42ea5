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

// The root of a store that is not ours is replaced where it comes from, and often at once: its
// certificate, key and roots change together. So that no certificate is refused then, a record of
// our own keeps the roots that were seen.
//
//   - A root that left the store stays trusted until the last certificate of it has ended.
//   - A root that is new is published for RootSpread before it signs: until then a replica signs
//     with the certificate that it had. A replica that is started meanwhile does not have that, and
//     signs with the new one.
//
// The record has the roots, and the file rotation.json with the times, as a rotation of ours.

// overlap returns the signer with the roots of the record, or the present one with them.
// The caller holds a.reading.
func (a *Authority) overlap(ctx context.Context, c Contents, s *signer) (*signer, error) {
	a.recordDue = time.Time{}
	if a.o.Record == nil || mayRotate(c, s) == nil {
		return s, nil
	}
	now, before := a.now(), a.current.Load()
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
				continue // another replica was first
			} else if err != nil {
				return nil, fmt.Errorf("writing the record of roots: %w", err)
			}
		}
		a.recordDue = r.due(now)
		return s.with(known, before, r, now), nil
	}
	return nil, context.Cause(ctx)
}

// remember adds what is stored now to the record, and removes what has ended. known are all roots
// that are trusted.
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
		delete(r.Retire, sumOf(root)) // it is back
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

// due is when something ends; zero: nothing does.
func (r rotation) due(now time.Time) (at time.Time) {
	earlier := func(t time.Time) {
		if t.After(now) && (at.IsZero() || t.Before(at)) {
			at = t
		}
	}
	earlier(r.Move)
	for _, t := range r.Retire { // any order: the earliest
		earlier(t)
	}
	return at
}

// with returns s with more roots. Until a new root may sign, it returns the former signer.
func (s *signer) with(known []*x509.Certificate, before *signer, r rotation, now time.Time) *signer {
	out := *s
	if now.Before(r.Move) && before != nil && !before.root.Equal(s.root) && now.Before(before.cert.NotAfter) && slices.ContainsFunc(known, before.root.Equal) {
		out = *before
	}
	out.roots, out.pool = known, poolOf(known)
	out.raw = slices.Concat(s.raw, wire.MarshalCertificates(known...), out.cert.Raw)
	return &out
}
