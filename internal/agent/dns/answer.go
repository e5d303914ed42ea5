package dns

import (
	"context"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"outrider.dev/internal/wire"
)

// answer returns the answer to a message; nil if there is none, because it is no question.
func (s *Server) answer(ctx context.Context, message []byte, from origin) []byte {
	q, code, ok := parse(message, from.tcp)
	if !ok {
		s.counts.malformed.Add(1)
		return nil
	}
	s.counts.questions.Add(1)
	switch {
	case code != 0:
		s.counts.malformed.Add(1)
		return q.fail(code)
	case s.forward.isOwn(from):
		s.counts.looped.Add(1)
		return q.fail(dnsmessage.RCodeServerFailure)
	case q.isAddress() && isLocal(q.name):
		return q.answer(dnsmessage.RCodeSuccess, q.addresses(q.asked.Name.String(), loopbacks, time.Hour))
	case q.isAddress() && s.cache != nil:
		if candidates := candidates(q.name, s.o.Domain, s.conf.get().search); len(candidates) > 0 {
			a, ttl, ok := s.cache.lookup(ctx, q.name, candidates)
			if ok && a.Known {
				return s.known(ctx, q, a, ttl, from.tcp)
			}
		}
	}
	return s.passOn(ctx, q, from.tcp)
}

// searchChanged forgets names: what they are completed to may be something else now.
func (s *Server) searchChanged() {
	if s.cache != nil {
		s.cache.forget()
	}
}

// known answers for a name of the mesh. One without an address of the queried family
// for has no records, and is still a name.
func (s *Server) known(ctx context.Context, q query, a wire.Answer, ttl time.Duration, tcp bool) []byte {
	s.counts.mesh.Add(1)
	records, last, err := q.chain(a, ttl)
	if err != nil {
		return q.fail(dnsmessage.RCodeServerFailure)
	}
	if a.Outside != "" {
		return s.outside(ctx, q, records, last, tcp)
	}
	return q.answer(dnsmessage.RCodeSuccess, append(records, q.addresses(last, shuffled(a.Addresses), ttl)...))
}

// outside completes a chain that leads out of the mesh with what the name servers say
// about its end.
func (s *Server) outside(ctx context.Context, q query, chain []record, last string, tcp bool) []byte {
	next, ok := newQuery(last, q.asked.Type)
	if !ok {
		return q.fail(dnsmessage.RCodeServerFailure)
	}
	s.counts.forwarded.Add(1)
	raw, err := s.forward.send(ctx, next, tcp)
	if err != nil {
		s.failed(ctx, q, err)
		return q.fail(dnsmessage.RCodeServerFailure)
	}
	more, err := recordsOf(raw)
	if err != nil {
		return q.fail(dnsmessage.RCodeServerFailure)
	}
	if isTruncated(raw) {
		return q.reply(codeOf(raw), nil, true)
	}
	return q.answer(codeOf(raw), append(chain, more...))
}

// newQuery is a query of the proxy's own.
func newQuery(name string, t dnsmessage.Type) (query, bool) {
	n, err := dnsmessage.NewName(name)
	if err != nil {
		return query{}, false
	}
	b := dnsmessage.NewBuilder(nil, dnsmessage.Header{RecursionDesired: true})
	if b.StartQuestions() != nil || b.Question(dnsmessage.Question{Name: n, Type: t, Class: dnsmessage.ClassINET}) != nil {
		return query{}, false
	}
	raw, err := b.Finish()
	if err != nil {
		return query{}, false
	}
	return query{raw: raw, question: questionOf(raw), size: smallest}, true
}

// recordsOf are the addresses of an answer and the aliases that lead to them.
func recordsOf(raw []byte) ([]record, error) {
	var p dnsmessage.Parser
	if _, err := p.Start(raw); err != nil {
		return nil, err
	}
	if err := p.SkipAllQuestions(); err != nil {
		return nil, err
	}
	var out []record
	for {
		r, err := p.Answer()
		if err == dnsmessage.ErrSectionDone {
			return out, nil
		}
		if err != nil {
			return nil, err
		}
		switch r.Body.(type) {
		case *dnsmessage.AResource, *dnsmessage.AAAAResource, *dnsmessage.CNAMEResource:
			out = append(out, record{r.Header.Name.String(), time.Duration(r.Header.TTL) * time.Second, r.Body})
		}
	}
}

// passOn queries the pod's own name servers.
func (s *Server) passOn(ctx context.Context, q query, tcp bool) []byte {
	s.counts.forwarded.Add(1)
	raw, err := s.forward.send(ctx, q, tcp)
	if err != nil {
		s.failed(ctx, q, err)
		return q.fail(dnsmessage.RCodeServerFailure)
	}
	return q.fit(raw)
}

func (s *Server) failed(ctx context.Context, q query, err error) {
	s.counts.failed.Add(1)
	if ctx.Err() == nil {
		s.o.Log.Debug("name not resolved", "name", q.name, "error", err)
	}
}

// Addresses are where the server listens.
func (s *Server) Addresses() []netip.AddrPort { return slices.Clone(s.addresses) }
