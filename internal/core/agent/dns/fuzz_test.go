package dns

import (
	"context"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/net/dns/dnsmessage"
)

func seeds(f *testing.F) {
	for _, name := range []string{reviews + ".", "localhost.", "example.com.", "out.shop.svc.cluster.local.", "."} {
		for _, kind := range []dnsmessage.Type{dnsmessage.TypeA, dnsmessage.TypeAAAA, dnsmessage.TypePTR, dnsmessage.TypeAXFR} {
			q := question(name, kind, 1232)
			f.Add(q)
			p, _, _ := parse(q, false)
			f.Add(upstreamAnswer(p))
		}
	}
	f.Add([]byte{0, 0, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0xc0, 12, 0, 1, 0, 1})
	f.Add([]byte{0, 0, 1, 0, 0, 1, 0, 0, 0, 0, 0, 1, 1, 'a', 0, 0, 1, 0, 1, 0, 0, 41, 0, 1, 0, 0, 0, 0, 0, 0})
}

// Every message gets a response that matches it, or none.
func FuzzQuestions(f *testing.F) {
	seeds(f)
	conf := filepath.Join(f.TempDir(), "resolv.conf")
	put(f, conf, "search shop.svc.cluster.local svc.cluster.local cluster.local\n")
	var s *Server
	atSomePort(f, func(port uint16) (err error) {
		s, err = Listen(Options{Port: port, Names: resolverOf(shop), ResolvConf: conf})
		return err
	})
	f.Cleanup(func() { s.Close() })
	f.Fuzz(func(t *testing.T, raw []byte) {
		for _, tcp := range []bool{false, true} {
			answer := s.answer(context.Background(), raw, origin{tcp: tcp})
			if answer == nil {
				continue
			}
			if idOf(answer) != idOf(raw) || answer[2]&0x80 == 0 {
				t.Errorf("%x is answered with %x, which has another ID or is no answer", raw, answer)
			}
			q, _, _ := parse(raw, tcp)
			if q.question != nil && !answers(answer, idOf(raw), q.question) {
				t.Errorf("%x is answered with %x, which has another question", raw, answer)
			}
			if len(answer) > max(q.size, headerSize+len(q.question)) {
				t.Errorf("%d bytes for a client that accepts %d", len(answer), q.size)
			}
		}
	})
}

// Every answer of a name server is parsed or refused.
func FuzzAnswers(f *testing.F) {
	seeds(f)
	f.Fuzz(func(t *testing.T, raw []byte) {
		q, _, _ := parse(question(reviews+".", dnsmessage.TypeA, 0), false)
		answers(raw, 4711, q.question)
		records, err := addressRecords(raw)
		if err != nil {
			return
		}
		if out := q.answer(codeOf(raw), records); len(out) > q.size || idOf(out) != 4711 {
			t.Errorf("%x becomes %x", raw, out)
		}
	})
}

func FuzzConf(f *testing.F) {
	f.Add("search a b\nnameserver 10.0.0.1\noptions timeout:1\n", "x.a")
	f.Add("nameserver ::1%\x00\nsearch "+strings.Repeat("a ", 100), "reviews.shop.svc")
	f.Fuzz(func(t *testing.T, text, name string) {
		c := parseConf([]byte(text), 53)
		if len(c.servers) > maxServers || len(c.search) > maxSearch || c.timeout <= 0 || c.timeout > serverTimeout {
			t.Errorf("%q is read as %+v", text, c)
		}
		for _, s := range c.servers {
			if s.Port() != 53 || s.Addr() == (netip.Addr{}) {
				t.Errorf("%q has server %v", text, s)
			}
		}
		for _, n := range candidates(name, "cluster.local", c.search) {
			if n == "" || n != name && len(n) > 255 {
				t.Errorf("%q with %q has candidate %q", name, text, n)
			}
		}
	})
}
