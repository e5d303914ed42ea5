package dns

import (
	"context"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/net/dns/dnsmessage"
)

func TestNameServersThatFail(t *testing.T) {
	fails := func(code dnsmessage.RCode) func(query, bool) []byte {
		return func(q query, _ bool) []byte { return q.fail(code) }
	}
	silent := func(query, bool) []byte { return nil }
	// lies answers falsely before it answers.
	lies := func(change func(q query) query) func(query, bool) []byte {
		return func(q query, _ bool) []byte {
			return change(q).answer(0, []record{{q.asked.Name.String(), time.Minute, &dnsmessage.AResource{A: [4]byte{6, 6, 6, 6}}}})
		}
	}
	const good = "Success; example.com. A 203.0.113.1"
	tests := map[string]struct {
		first, second func(query, bool) []byte // nil: as it should
		want          string
		asked         [2]int // questions to each
	}{
		"the first is asked alone":               {want: good, asked: [2]int{1, 0}},
		"a name that is not there is an answer":  {first: fails(dnsmessage.RCodeNameError), want: "NameError", asked: [2]int{1, 0}},
		"one that is silent":                     {first: silent, want: good, asked: [2]int{1, 1}},
		"one that fails":                         {first: fails(dnsmessage.RCodeServerFailure), want: good, asked: [2]int{1, 1}},
		"one that refuses":                       {first: fails(dnsmessage.RCodeRefused), want: good, asked: [2]int{1, 1}},
		"all that fail, as the last one says":    {first: fails(dnsmessage.RCodeServerFailure), second: fails(dnsmessage.RCodeRefused), want: "Refused", asked: [2]int{1, 1}},
		"an answer with another ID is not taken": {first: lies(func(q query) query { q.header.ID++; return q }), want: good, asked: [2]int{1, 1}},
		"nor one to another question": {first: lies(func(q query) query {
			q.asked.Name = dnsmessage.MustNewName("example.org.")
			return q
		}), want: good, asked: [2]int{1, 1}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, nil, 2)
			r.servers[0].does(tt.first)
			r.servers[1].does(tt.second)
			if got := said(r.send(t, "udp", question("example.com.", dnsmessage.TypeA, 0))); got != tt.want {
				t.Errorf("answer %s, want %s", got, tt.want)
			}
			asked := [2]int{len(r.servers[0].questions()), len(r.servers[1].questions())}
			if asked != tt.asked {
				t.Errorf("asked %v times, want %v", asked, tt.asked)
			}
		})
	}
}

func TestAServerThatFailedIsTriedLast(t *testing.T) {
	r := newRig(t, nil, 2)
	r.servers[0].does(func(query, bool) []byte { return nil })
	for range 3 {
		r.send(t, "udp", question("example.com.", dnsmessage.TypeA, 0))
	}
	if a, b := len(r.servers[0].questions()), len(r.servers[1].questions()); a != 1 || b != 3 {
		t.Errorf("asked %d and %d times, want 1 and 3", a, b)
	}
}

func TestNoServerAnswers(t *testing.T) {
	r := newRig(t, nil, 0)
	if got := said(r.send(t, "udp", question("example.com.", dnsmessage.TypeA, 0))); got != "ServerFailure" {
		t.Errorf("without a name server: %s", got)
	}
	if r.Counts().Failed != 1 {
		t.Errorf("counts %+v", r.Counts())
	}
}

func TestEveryQuestionHasItsOwnPortAndID(t *testing.T) {
	r := newRig(t, nil, 1)
	const n = 50
	for range n {
		r.send(t, "udp", question("example.com.", dnsmessage.TypeA, 0))
	}
	s := r.servers[0]
	s.mu.Lock()
	defer s.mu.Unlock()
	// Both are drawn: two may be the same.
	if len(s.sources) < n*8/10 || len(s.ids) < n*8/10 || s.ids[4711] && len(s.ids) == 1 {
		t.Errorf("%d questions from %d ports with %d IDs", n, len(s.sources), len(s.ids))
	}
}

// wide answers with 60 addresses, cut over UDP.
func wide(q query, tcp bool) []byte {
	if !tcp {
		return q.reply(0, nil, true)
	}
	var all []netip.Addr
	for i := range 60 {
		all = append(all, netip.AddrFrom4([4]byte{203, 0, 113, byte(i)}))
	}
	q.size = maxMessage
	return q.answer(0, q.addresses(q.asked.Name.String(), all, time.Minute))
}

func TestAnswersThatWereCut(t *testing.T) {
	tests := map[string]struct {
		network string
		size    int
		act     func(query, bool) []byte
		want    string
		asked   []string
	}{
		"are asked for by TCP, and fit the client": {"udp", 4096, wide, "Success; example.com. A 203.0.113.0", []string{"example.com. A edns 4096", "example.com. A tcp edns 65535"}},
		"or do not":                  {"udp", 0, wide, "Success; cut", []string{"example.com. A", "example.com. A tcp"}},
		"a client by TCP is by TCP":  {"tcp", 0, wide, "Success; example.com. A 203.0.113.0", []string{"example.com. A tcp"}},
		"a server that has no TCP":   {"udp", 4096, func(q query, tcp bool) []byte { return q.reply(0, nil, true) }, "Success; cut", []string{"example.com. A edns 4096", "example.com. A tcp edns 65535"}},
		"one that is not cut is not": {"udp", 1232, nil, "Success; example.com. A 203.0.113.1", []string{"example.com. A edns 1232"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, nil, 1)
			r.servers[0].does(tt.act)
			got := said(r.send(t, tt.network, question("example.com.", dnsmessage.TypeA, tt.size)))
			if !strings.HasPrefix(got, tt.want) {
				t.Errorf("answer %.80s, want %s", got, tt.want)
			}
			if diff := cmp.Diff(tt.asked, r.servers[0].questions()); diff != "" {
				t.Errorf("asked (-want +got):\n%s", diff)
			}
		})
	}
}

func TestOptionsOfEDNSArePassedOn(t *testing.T) {
	r := newRig(t, nil, 1)
	kept := make(chan bool, 1)
	r.servers[0].does(func(q query, _ bool) []byte {
		kept <- strings.Contains(string(q.raw), "kept")
		return upstreamAnswer(q)
	})
	r.send(t, "udp", question("example.com.", dnsmessage.TypeA, 1232))
	if !<-kept {
		t.Error("the name server does not see the client's option")
	}
}

// A capture that takes the agent's own questions for an app's sends them back: here, a
// name server that is the proxy's own port by another way.
func TestItsOwnQuestionsAreNotPassedOnAgain(t *testing.T) {
	r := newRig(t, nil, 1)
	// What the rules do: it arrives from where it was sent.
	back := make(chan []byte, 1)
	r.servers[0].does(func(q query, _ bool) []byte {
		r.forward.mu.Lock()
		var from origin
		for from = range r.forward.own {
		}
		r.forward.mu.Unlock()
		back <- r.answer(context.Background(), q.raw, from)
		return upstreamAnswer(q)
	})
	r.send(t, "udp", question("example.com.", dnsmessage.TypeA, 0))
	if raw := <-back; codeOf(raw) != dnsmessage.RCodeServerFailure || r.Counts().Looped != 1 {
		t.Errorf("code %v, counts %+v; want a failure, not a circle", codeOf(raw), r.Counts())
	}
}

func TestParseConf(t *testing.T) {
	at := func(s string) netip.AddrPort { return netip.AddrPortFrom(netip.MustParseAddr(s), 53) }
	tests := map[string]struct {
		text string
		want conf
	}{
		"a pod's": {"search shop.svc.cluster.local svc.cluster.local cluster.local\nnameserver 10.96.0.10\noptions ndots:5\n",
			conf{servers: []netip.AddrPort{at("10.96.0.10")}, search: []string{"shop.svc.cluster.local", "svc.cluster.local", "cluster.local"}, timeout: one}},
		"comments, both families, dots and capitals": {"# a\n; b\nnameserver\tfe80::1%eth0\nnameserver ::1\nsearch A.Example. .\n",
			conf{servers: []netip.AddrPort{at("fe80::1%eth0"), at("::1")}, search: []string{"a.example"}, timeout: one}},
		"the last of search and domain counts": {"search a b\ndomain c\n", conf{search: []string{"c"}, timeout: one}},
		"no more servers than libc asks":       {"nameserver 1.1.1.1\nnameserver 1.1.1.2\nnameserver 1.1.1.3\nnameserver 1.1.1.4\n", conf{servers: []netip.AddrPort{at("1.1.1.1"), at("1.1.1.2"), at("1.1.1.3")}, timeout: one}},
		"a shorter time is kept":               {"options rotate timeout:1 attempts:3\n", conf{timeout: time.Second}},
		"a longer one is not":                  {"options timeout:30\n", conf{timeout: one}},
		"what is wrong is passed over":         {"nameserver here\nnameserver\nsearch\noptions timeout:x\nfoo bar\n", conf{timeout: one}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got := parseConf([]byte(tt.text), 53)
			if diff := cmp.Diff(tt.want, got, cmp.AllowUnexported(conf{}), cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b })); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestResolvConfIsReadAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "resolv.conf")
		put(t, path, "nameserver 10.0.0.1\nnameserver 127.0.0.1\n")
		changes := 0
		f := &confFile{path: path, port: 53, changed: func() { changes++ },
			own: func(a netip.AddrPort) bool { return a == netip.MustParseAddrPort("127.0.0.1:53") }}
		first := func() string {
			if c := f.get(); len(c.servers) == 1 {
				return c.servers[0].Addr().String()
			}
			return "not one"
		}
		if got := first(); got != "10.0.0.1" {
			t.Fatalf("server %s; want 10.0.0.1, and not the proxy itself", got)
		}
		put(t, path, "nameserver 10.0.0.22\n")
		if got := first(); got != "10.0.0.1" || changes != 0 {
			t.Errorf("server %s at once: the file is looked at too often", got)
		}
		time.Sleep(look)
		if got := first(); got != "10.0.0.22" || changes != 1 {
			t.Errorf("server %s after a second, %d changes; want 10.0.0.22", got, changes)
		}
		f.path += ".gone"
		time.Sleep(look)
		if got := first(); got != "10.0.0.22" {
			t.Errorf("server %s while there is no file; want what it was", got)
		}
	})
}

func TestCandidates(t *testing.T) {
	pod := []string{"web.svc.cluster.local", "svc.cluster.local", "cluster.local"}
	tests := map[string]struct {
		name   string
		search []string
		want   []string
	}{
		"a single label":                       {"reviews", pod, []string{"reviews"}},
		"three with svc":                       {"reviews.shop.svc", pod, []string{"reviews.shop.svc"}},
		"a whole name":                         {"reviews.shop.svc.cluster.local", nil, []string{"reviews.shop.svc.cluster.local"}},
		"a short name, completed first":        {"reviews.web.svc.cluster.local", pod, []string{"reviews.web.svc.cluster.local", "reviews.svc.cluster.local"}},
		"two labels, completed first":          {"reviews.shop.web.svc.cluster.local", pod, []string{"reviews.shop.web.svc.cluster.local", "reviews.shop.svc.cluster.local"}},
		"three labels, completed first":        {"reviews.shop.svc.web.svc.cluster.local", pod, []string{"reviews.shop.svc.web.svc.cluster.local", "reviews.shop.svc.svc.cluster.local", "reviews.shop.svc.cluster.local"}},
		"a name of elsewhere, completed first": {"example.com.web.svc.cluster.local", pod, []string{"example.com.web.svc.cluster.local", "example.com.svc.cluster.local"}},
		"nothing is skipped that may be there": {"a.b.web.svc.cluster.local", []string{"web.svc.cluster.local", "corp.example", "svc.cluster.local"}, []string{"a.b.web.svc.cluster.local"}},
		"a whole name in another's list":       {"a.b.svc.cluster.local.corp.example", []string{"corp.example"}, []string{"a.b.svc.cluster.local"}},
		"elsewhere":                            {"example.com", pod, nil},
		"the cluster, but no service":          {"1-2-3-4.web.pod.cluster.local", pod, nil},
		"a name that only looks like it":       {"xsvc.cluster.local", pod, nil},
		"the root":                             {"", pod, nil},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, candidates(tt.name, "cluster.local", tt.search)); diff != "" {
				t.Errorf("candidates (-want +got):\n%s", diff)
			}
		})
	}
}
