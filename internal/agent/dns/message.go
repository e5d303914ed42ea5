package dns

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"strings"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"outrider.dev/internal/wire"
)

// Types and codes that package dnsmessage does not name.
const (
	typeIXFR = dnsmessage.Type(251)

	headerSize = 12
	smallest   = 512 // bytes that everybody takes over UDP
)

// A query is a message with one question.
type query struct {
	raw      []byte // the whole message
	question []byte // its question, as it is in raw
	header   dnsmessage.Header
	asked    dnsmessage.Question // zero if its name cannot be written with dots
	name     string              // the queried name, in lower case, without a dot at its end
	size     int                 // of the answer, at most
	edns     bool
}

// parse reads a query. With a code it cannot be dealt with, and is answered with that;
// unless ok is false: then it is none.
func parse(raw []byte, tcp bool) (q query, code dnsmessage.RCode, ok bool) {
	q = query{raw: raw, size: smallest}
	if tcp {
		q.size = maxMessage
	}
	var p dnsmessage.Parser
	var err error
	if q.header, err = p.Start(raw); err != nil || q.header.Response {
		return q, 0, false
	}
	if q.header.OpCode != 0 {
		return q, dnsmessage.RCodeNotImplemented, true
	}
	if q.question = questionOf(raw); q.question == nil {
		return q, dnsmessage.RCodeFormatError, true
	}
	if asked, err := p.Question(); err == nil {
		q.asked = asked
		q.name = strings.ToLower(strings.TrimSuffix(asked.Name.String(), "."))
		q.options(&p, tcp)
	}
	if q.asked.Type == dnsmessage.TypeAXFR || q.asked.Type == typeIXFR {
		return q, dnsmessage.RCodeNotImplemented, true
	}
	return q, 0, true
}

// options reads what the client says with EDNS: here, how long an answer it takes.
func (q *query) options(p *dnsmessage.Parser, tcp bool) {
	if p.SkipAllQuestions() != nil || p.SkipAllAnswers() != nil || p.SkipAllAuthorities() != nil {
		return
	}
	for {
		h, err := p.AdditionalHeader()
		if err != nil {
			return
		}
		if h.Type == dnsmessage.TypeOPT {
			q.edns = true
			if !tcp {
				q.size = max(smallest, int(h.Class))
			}
			return
		}
		if p.SkipAdditional() != nil {
			return
		}
	}
}

// questionOf returns the bytes of a message's question, if it has just one.
func questionOf(raw []byte) []byte {
	if len(raw) < headerSize || binary.BigEndian.Uint16(raw[4:]) != 1 {
		return nil
	}
	at := headerSize
	for at < len(raw) && raw[at] != 0 {
		if raw[at] > 63 { // a pointer: there is nothing before it to point to
			return nil
		}
		at += 1 + int(raw[at])
	}
	at += 1 + 4
	if at > len(raw) {
		return nil
	}
	return raw[headerSize:at]
}

// answers says whether raw can be the answer to question, sent with an ID. A server that
// did not understand may leave the question out.
func answers(raw []byte, id uint16, question []byte) bool {
	if len(raw) < headerSize || binary.BigEndian.Uint16(raw) != id || raw[2]&0x80 == 0 {
		return false
	}
	if binary.BigEndian.Uint16(raw[4:]) == 0 {
		return codeOf(raw) != dnsmessage.RCodeSuccess
	}
	return bytes.EqualFold(questionOf(raw), question)
}

func codeOf(raw []byte) dnsmessage.RCode { return dnsmessage.RCode(raw[3] & 0xf) }
func isTruncated(raw []byte) bool        { return raw[2]&2 != 0 }

// isAddress reports whether q queries addresses.
func (q query) isAddress() bool {
	return q.asked.Class == dnsmessage.ClassINET && (q.asked.Type == dnsmessage.TypeA || q.asked.Type == dnsmessage.TypeAAAA)
}

// fit is a server's answer as the client gets it: with the client's ID, and cut if the
// client does not take so much.
func (q query) fit(raw []byte) []byte {
	if len(raw) > q.size {
		return q.reply(codeOf(raw), nil, true)
	}
	binary.BigEndian.PutUint16(raw, q.header.ID)
	return raw
}

// A record is one of those that the proxy writes.
type record struct {
	name string // with a dot at its end
	ttl  time.Duration
	body dnsmessage.ResourceBody
}

// fail is an answer without records.
func (q query) fail(code dnsmessage.RCode) []byte { return q.reply(code, nil, false) }

// answer is an answer with records, cut if they are too many.
func (q query) answer(code dnsmessage.RCode, records []record) []byte {
	out := q.reply(code, records, false)
	if len(out) > q.size {
		return q.reply(code, nil, true)
	}
	return out
}

// reply writes an answer. What cannot be written, as a name with a label that is too long,
// makes it a failure.
func (q query) reply(code dnsmessage.RCode, records []record, truncated bool) []byte {
	h := dnsmessage.Header{ID: q.header.ID, Response: true, OpCode: q.header.OpCode, RecursionDesired: q.header.RecursionDesired,
		RecursionAvailable: true, CheckingDisabled: q.header.CheckingDisabled, RCode: code, Truncated: truncated}
	head := q.head(h)
	if q.asked.Name.Length == 0 || q.question == nil {
		return head
	}
	b := dnsmessage.NewBuilder(make([]byte, 0, smallest), h)
	b.EnableCompression()
	err := b.StartQuestions()
	if err == nil {
		err = b.Question(q.asked)
	}
	if err == nil {
		err = write(&b, records)
	}
	if err == nil && q.edns {
		err = opt(&b)
	}
	out, end := b.Finish()
	if err != nil || end != nil {
		h.RCode = dnsmessage.RCodeServerFailure
		return q.head(h)
	}
	return out
}

// head is an answer without a record: the header, and the question as it came.
func (q query) head(h dnsmessage.Header) []byte {
	b := dnsmessage.NewBuilder(nil, h)
	out, err := b.Finish()
	if err != nil {
		return nil
	}
	if q.question != nil {
		binary.BigEndian.PutUint16(out[4:], 1)
		out = append(out, q.question...)
	}
	return out
}

func write(b *dnsmessage.Builder, records []record) error {
	if err := b.StartAnswers(); err != nil {
		return err
	}
	for _, r := range records {
		name, err := dnsmessage.NewName(r.name)
		if err != nil {
			return err
		}
		h := dnsmessage.ResourceHeader{Name: name, Class: dnsmessage.ClassINET, TTL: uint32(max(1, r.ttl/time.Second))}
		switch body := r.body.(type) {
		case *dnsmessage.AResource:
			err = b.AResource(h, *body)
		case *dnsmessage.AAAAResource:
			err = b.AAAAResource(h, *body)
		case *dnsmessage.CNAMEResource:
			err = b.CNAMEResource(h, *body)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// opt says that EDNS is understood, and what is taken over UDP.
func opt(b *dnsmessage.Builder) error {
	if err := b.StartAdditionals(); err != nil {
		return err
	}
	var h dnsmessage.ResourceHeader
	if err := h.SetEDNS0(maxQuery, dnsmessage.RCodeSuccess, false); err != nil {
		return err
	}
	return b.OPTResource(h, dnsmessage.OPTResource{})
}

// chain is the records from the queried name to the last alias of an answer, and that.
func (q query) chain(a wire.Answer, ttl time.Duration) (records []record, last string, err error) {
	last = q.asked.Name.String()
	for _, alias := range append(a.Aliases[:len(a.Aliases):len(a.Aliases)], a.Outside) {
		if alias == "" || strings.EqualFold(alias+".", last) {
			continue
		}
		to, err := dnsmessage.NewName(alias + ".")
		if err != nil {
			return nil, "", err
		}
		records = append(records, record{last, ttl, &dnsmessage.CNAMEResource{CNAME: to}})
		last = alias + "."
	}
	return records, last, nil
}

// addresses are the records of a name, of the queried family.
func (q query) addresses(name string, all []netip.Addr, ttl time.Duration) (records []record) {
	for _, a := range all {
		switch a = a.Unmap(); {
		case a.Is4() && q.asked.Type == dnsmessage.TypeA:
			records = append(records, record{name, ttl, &dnsmessage.AResource{A: a.As4()}})
		case a.Is6() && q.asked.Type == dnsmessage.TypeAAAA:
			records = append(records, record{name, ttl, &dnsmessage.AAAAResource{AAAA: a.As16()}})
		}
	}
	return records
}
