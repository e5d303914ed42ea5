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
	// lies returns a server that answers with a changed ID or question.
	lies := func(change func(q query) query) func(query, bool) []byte {
		return func(q query, _ bool) []byte {
			return change(q).answer(0, []dnsmessage.Resource{record(q.parsed.Name, time.Minute, &dnsmessage.AResource{A: [4]byte{6, 6, 6, 6}})})
		}
	}
	const good = "Success; example.com. A 203.0.113.1"
	tests := map[string]struct {
		first, second func(query, bool) []byte // nil: answers correctly
		want          string
		queries       [2]int // received by each server
	}{
		"only the first is queried":               {want: good, queries: [2]int{1, 0}},
		"a name that does not exist is an answer": {first: fails(dnsmessage.RCodeNameError), want: "NameError", queries: [2]int{1, 0}},
		"no answer":                            {first: silent, want: good, queries: [2]int{1, 1}},
		"a failure":                            {first: fails(dnsmessage.RCodeServerFailure), want: good, queries: [2]int{1, 1}},
		"a refusal":                            {first: fails(dnsmessage.RCodeRefused), want: good, queries: [2]int{1, 1}},
		"failures of both: the last one":       {first: fails(dnsmessage.RCodeServerFailure), second: fails(dnsmessage.RCodeRefused), want: "Refused", queries: [2]int{1, 1}},
		"an answer with another ID is ignored": {first: lies(func(q query) query { q.header.ID++; return q }), want: good, queries: [2]int{1, 1}},
		"an answer to another question is ignored": {first: lies(func(q query) query {
			q.parsed.Name = dnsmessage.MustNewName("example.org.")
			return q
		}), want: good, queries: [2]int{1, 1}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, nil, 2)
			r.servers[0].set(tt.first)
			r.servers[1].set(tt.second)
			if got := text(r.send(t, "udp", question("example.com.", dnsmessage.TypeA, 0))); got != tt.want {
				t.Errorf("answer %s, want %s", got, tt.want)
			}
			queries := [2]int{len(r.servers[0].received()), len(r.servers[1].received())}
			if queries != tt.queries {
				t.Errorf("%v queries, want %v", queries, tt.queries)
			}
		})
	}
}

func TestAServerThatFailedIsTriedLast(t *testing.T) {
	r := newRig(t, nil, 2)
	r.servers[0].set(func(query, bool) []byte { return nil })
	for range 3 {
		r.send(t, "udp", question("example.com.", dnsmessage.TypeA, 0))
	}
	if a, b := len(r.servers[0].received()), len(r.servers[1].received()); a != 1 || b != 3 {
		t.Errorf("%d and %d queries, want 1 and 3", a, b)
	}
}

func TestNoServerAnswers(t *testing.T) {
	r := newRig(t, nil, 0)
	if got := text(r.send(t, "udp", question("example.com.", dnsmessage.TypeA, 0))); got != "ServerFailure" {
		t.Errorf("without a name server: %s", got)
	}
	if r.Counts().Failed != 1 {
		t.Errorf("counts %+v", r.Counts())
	}
}

func TestEveryQueryHasItsOwnPortAndID(t *testing.T) {
	r := newRig(t, nil, 1)
	const n = 50
	for range n {
		r.send(t, "udp", question("example.com.", dnsmessage.TypeA, 0))
	}
	s := r.servers[0]
	s.mu.Lock()
	defer s.mu.Unlock()
	// Ports and IDs are random, so a few may be equal.
	if len(s.sources) < n*8/10 || len(s.ids) < n*8/10 || s.ids[4711] && len(s.ids) == 1 {
		t.Errorf("%d queries from %d ports with %d IDs", n, len(s.sources), len(s.ids))
	}
}

// wide answers with 60 addresses, truncated over UDP.
func wide(q query, tcp bool) []byte {
	if !tcp {
		return q.reply(0, nil, true)
	}
	var all []netip.Addr
	for i := range 60 {
		all = append(all, netip.AddrFrom4([4]byte{203, 0, 113, byte(i)}))
	}
	q.size = maxMessage
	return q.answer(0, q.addresses(q.parsed.Name, all, time.Minute))
}

func TestTruncatedAnswers(t *testing.T) {
	tests := map[string]struct {
		network string
		size    int
		act     func(query, bool) []byte
		want    string
		queries []string
	}{
		"are repeated by TCP, and fit the client": {"udp", 4096, wide, "Success; example.com. A 203.0.113.0", []string{"example.com. A edns 4096", "example.com. A tcp edns 65535"}},
		"or do not fit":                  {"udp", 0, wide, "Success; truncated", []string{"example.com. A", "example.com. A tcp"}},
		"a query by TCP stays TCP":       {"tcp", 0, wide, "Success; example.com. A 203.0.113.0", []string{"example.com. A tcp"}},
		"a server without TCP":           {"udp", 4096, func(q query, tcp bool) []byte { return q.reply(0, nil, true) }, "Success; truncated", []string{"example.com. A edns 4096", "example.com. A tcp edns 65535"}},
		"a short answer is not repeated": {"udp", 1232, nil, "Success; example.com. A 203.0.113.1", []string{"example.com. A edns 1232"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, nil, 1)
			r.servers[0].set(tt.act)
			got := text(r.send(t, tt.network, question("example.com.", dnsmessage.TypeA, tt.size)))
			if !strings.HasPrefix(got, tt.want) {
				t.Errorf("answer %.80s, want %s", got, tt.want)
			}
			if diff := cmp.Diff(tt.queries, r.servers[0].received()); diff != "" {
				t.Errorf("queries (-want +got):\n%s", diff)
			}
		})
	}
}

func TestEDNSOptionsAreForwarded(t *testing.T) {
	r := newRig(t, nil, 1)
	kept := make(chan bool, 1)
	r.servers[0].set(func(q query, _ bool) []byte {
		kept <- strings.Contains(string(q.raw), "kept")
		return upstreamAnswer(q)
	})
	r.send(t, "udp", question("example.com.", dnsmessage.TypeA, 1232))
	if !<-kept {
		t.Error("the name server does not receive the client's option")
	}
}

// A query of the agent that the capture rules redirect back to it is not forwarded again.
func TestOwnQueriesAreNotForwardedAgain(t *testing.T) {
	r := newRig(t, nil, 1)
	// With such rules, the query arrives from the agent's own source address.
	back := make(chan []byte, 1)
	r.servers[0].set(func(q query, _ bool) []byte {
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
		t.Errorf("code %v, counts %+v; want a failure, not a loop", codeOf(raw), r.Counts())
	}
}

func TestParseConf(t *testing.T) {
	at := func(s string) netip.AddrPort { return netip.AddrPortFrom(netip.MustParseAddr(s), 53) }
	tests := map[string]struct {
		text string
		want conf
	}{
		"a pod's": {"search shop.svc.cluster.local svc.cluster.local cluster.local\nnameserver 10.96.0.10\noptions ndots:5\n",
			conf{servers: []netip.AddrPort{at("10.96.0.10")}, search: []string{"shop.svc.cluster.local", "svc.cluster.local", "cluster.local"}, timeout: serverTimeout}},
		"comments, both families, dots and capitals": {"# a\n; b\nnameserver\tfe80::1%eth0\nnameserver ::1\nsearch A.Example. .\n",
			conf{servers: []netip.AddrPort{at("fe80::1%eth0"), at("::1")}, search: []string{"a.example"}, timeout: serverTimeout}},
		"the last search or domain wins":    {"search a b\ndomain c\n", conf{search: []string{"c"}, timeout: serverTimeout}},
		"no more servers than libc queries": {"nameserver 1.1.1.1\nnameserver 1.1.1.2\nnameserver 1.1.1.3\nnameserver 1.1.1.4\n", conf{servers: []netip.AddrPort{at("1.1.1.1"), at("1.1.1.2"), at("1.1.1.3")}, timeout: serverTimeout}},
		"a shorter timeout is used":         {"options rotate timeout:1 attempts:3\n", conf{timeout: time.Second}},
		"a longer timeout is not":           {"options timeout:30\n", conf{timeout: serverTimeout}},
		"malformed lines are ignored":       {"nameserver here\nnameserver\nsearch\noptions timeout:x\nfoo bar\n", conf{timeout: serverTimeout}},
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
			t.Errorf("server %s at once: the file is checked too often", got)
		}
		time.Sleep(checkEvery)
		if got := first(); got != "10.0.0.22" || changes != 1 {
			t.Errorf("server %s after a second, %d changes; want 10.0.0.22", got, changes)
		}
		f.path += ".gone"
		time.Sleep(checkEvery)
		if got := first(); got != "10.0.0.22" {
			t.Errorf("server %s while there is no file; want 10.0.0.22", got)
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
		"a single label":                                {"reviews", pod, []string{"reviews"}},
		"three with svc":                                {"reviews.shop.svc", pod, []string{"reviews.shop.svc"}},
		"a full name":                                   {"reviews.shop.svc.cluster.local", nil, []string{"reviews.shop.svc.cluster.local"}},
		"a short name, completed first":                 {"reviews.web.svc.cluster.local", pod, []string{"reviews.web.svc.cluster.local", "reviews.svc.cluster.local"}},
		"two labels, completed first":                   {"reviews.shop.web.svc.cluster.local", pod, []string{"reviews.shop.web.svc.cluster.local", "reviews.shop.svc.cluster.local"}},
		"three labels, completed first":                 {"reviews.shop.svc.web.svc.cluster.local", pod, []string{"reviews.shop.svc.web.svc.cluster.local", "reviews.shop.svc.svc.cluster.local", "reviews.shop.svc.cluster.local"}},
		"an external name, completed first":             {"example.com.web.svc.cluster.local", pod, []string{"example.com.web.svc.cluster.local", "example.com.svc.cluster.local"}},
		"a name that may exist elsewhere ends the list": {"a.b.web.svc.cluster.local", []string{"web.svc.cluster.local", "corp.example", "svc.cluster.local"}, []string{"a.b.web.svc.cluster.local"}},
		"a full name, completed by another domain":      {"a.b.svc.cluster.local.corp.example", []string{"corp.example"}, []string{"a.b.svc.cluster.local"}},
		"an external name":                              {"example.com", pod, nil},
		"the cluster, but no service":                   {"1-2-3-4.web.pod.cluster.local", pod, nil},
		"a name with another label before the domain":   {"xsvc.cluster.local", pod, nil},
		"the root": {"", pod, nil},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, candidates(tt.name, "cluster.local", tt.search)); diff != "" {
				t.Errorf("candidates (-want +got):\n%s", diff)
			}
		})
	}
}
