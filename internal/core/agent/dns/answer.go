package dns

import (
	"context"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"outrider.dev/internal/base/wire"
)

// answer returns the response to a message; nil if the message is not a query.
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
		return q.answer(dnsmessage.RCodeSuccess, q.addresses(q.parsed.Name, loopbacks, time.Hour))
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

// searchChanged empties the cache: with another search list, a short name may stand for another
// full name.
func (s *Server) searchChanged() {
	if s.cache != nil {
		s.cache.clear()
	}
}

// known responds for a name of the mesh. If the name has no address of the queried family, the
// response contains no address, but it is not an error.
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

// outside completes an alias chain that leads out of the mesh: the name servers resolve its last
// name.
func (s *Server) outside(ctx context.Context, q query, chain []dnsmessage.Resource, last dnsmessage.Name, tcp bool) []byte {
	m := dnsmessage.Message{
		Header:    dnsmessage.Header{RecursionDesired: true},
		Questions: []dnsmessage.Question{{Name: last, Type: q.parsed.Type, Class: dnsmessage.ClassINET}},
	}
	next, err := m.Pack()
	if err != nil {
		return q.fail(dnsmessage.RCodeServerFailure)
	}
	s.counts.forwarded.Add(1)
	raw, err := s.forward.send(ctx, query{raw: next, question: questionOf(next), size: smallest}, tcp)
	if err != nil {
		s.failed(ctx, q, err)
		return q.fail(dnsmessage.RCodeServerFailure)
	}
	more, err := addressRecords(raw)
	if err != nil {
		return q.fail(dnsmessage.RCodeServerFailure)
	}
	if isTruncated(raw) {
		return q.reply(codeOf(raw), nil, true)
	}
	return q.answer(codeOf(raw), append(chain, more...))
}

// addressRecords returns the addresses in a response and the aliases that lead to them.
func addressRecords(raw []byte) ([]dnsmessage.Resource, error) {
	var p dnsmessage.Parser
	if _, err := p.Start(raw); err != nil {
		return nil, err
	}
	if err := p.SkipAllQuestions(); err != nil {
		return nil, err
	}
	var out []dnsmessage.Resource
	for {
		h, err := p.AnswerHeader()
		if err == dnsmessage.ErrSectionDone {
			return out, nil
		}
		r := dnsmessage.Resource{Header: h}
		// Parser.Answer would work too, but would link 20 kB for types that are of no use here.
		switch {
		case err != nil:
		case h.Type == dnsmessage.TypeA:
			r.Body, err = pointer(p.AResource())
		case h.Type == dnsmessage.TypeAAAA:
			r.Body, err = pointer(p.AAAAResource())
		case h.Type == dnsmessage.TypeCNAME:
			r.Body, err = pointer(p.CNAMEResource())
		default:
			err = p.SkipAnswer()
		}
		if err != nil {
			return nil, err
		}
		if r.Body != nil {
			out = append(out, r)
		}
	}
}

func pointer[T any](v T, err error) (*T, error) { return &v, err }

// passOn forwards a query to the pod's own name servers.
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
