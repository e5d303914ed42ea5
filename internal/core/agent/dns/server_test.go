package dns

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/net/dns/dnsmessage"

	"outrider.dev/internal/base/wire"
)

const reviews = "reviews.shop.svc.cluster.local"

var shop = map[string]wire.Answer{
	reviews:                         known(reviews, "10.96.0.1"),
	"reviews":                       known(reviews, "10.96.0.1"),
	"dual.shop.svc.cluster.local":   known("dual.shop.svc.cluster.local", "10.96.0.2", "fd96::2"),
	"cart.web.svc.cluster.local":    known("cart.web.svc.cluster.local", "10.96.0.3"),
	"cart.web.svc":                  known("cart.web.svc.cluster.local", "10.96.0.3"),
	"empty.shop.svc.cluster.local":  known("empty.shop.svc.cluster.local"),
	"out.shop.svc.cluster.local":    {Known: true, Aliases: []string{"out.shop.svc.cluster.local"}, Outside: "db.example.com", TTL: 30 * time.Second},
	"longer.shop.svc.cluster.local": {Known: true, Aliases: []string{"longer.shop.svc.cluster.local"}, Outside: strings.Repeat("a", 64) + ".com", TTL: 30 * time.Second},
	"near.shop.svc.cluster.local": {Known: true, Aliases: []string{"near.shop.svc.cluster.local", reviews},
		Addresses: []netip.Addr{netip.MustParseAddr("10.96.0.1")}, TTL: 30 * time.Second},
}

func TestAnswers(t *testing.T) {
	const a, aaaa = dnsmessage.TypeA, dnsmessage.TypeAAAA
	tests := map[string]struct {
		name string
		kind dnsmessage.Type
		want string
		from string // query that the name server must receive; empty: none
	}{
		"a name of the mesh":                    {name: reviews + ".", kind: a, want: "Success; reviews.shop.svc.cluster.local. A 10.96.0.1"},
		"in the letters of the query":           {name: "ReViews.shop.svc.cluster.local.", kind: a, want: "Success; ReViews.shop.svc.cluster.local. A 10.96.0.1"},
		"a family without an address":           {name: reviews + ".", kind: aaaa, want: "Success"},
		"a service with both families":          {name: "dual.shop.svc.cluster.local.", kind: aaaa, want: "Success; dual.shop.svc.cluster.local. AAAA fd96::2"},
		"a service without an endpoint":         {name: "empty.shop.svc.cluster.local.", kind: a, want: "Success"},
		"a single label is an alias":            {name: "reviews.", kind: a, want: "Success; reviews. CNAME reviews.shop.svc.cluster.local.; reviews.shop.svc.cluster.local. A 10.96.0.1"},
		"a name completed by the resolver":      {name: "cart.web.shop.svc.cluster.local.", kind: a, want: "Success; cart.web.shop.svc.cluster.local. CNAME cart.web.svc.cluster.local.; cart.web.svc.cluster.local. A 10.96.0.3"},
		"a full name completed by the resolver": {name: "cart.web.svc.cluster.local.shop.svc.cluster.local.", kind: a, want: "Success; cart.web.svc.cluster.local.shop.svc.cluster.local. CNAME cart.web.svc.cluster.local.; cart.web.svc.cluster.local. A 10.96.0.3"},
		"an external name, resolved":            {name: "out.shop.svc.cluster.local.", kind: a, want: "Success; out.shop.svc.cluster.local. CNAME db.example.com.; db.example.com. A 203.0.113.1", from: "db.example.com. A"},
		"an external name with a long label":    {name: "longer.shop.svc.cluster.local.", kind: a, want: "ServerFailure"},
		"an external name within the mesh":      {name: "near.shop.svc.cluster.local.", kind: a, want: "Success; near.shop.svc.cluster.local. CNAME reviews.shop.svc.cluster.local.; reviews.shop.svc.cluster.local. A 10.96.0.1"},
		"localhost, without a server":           {name: "localhost.", kind: a, want: "Success; localhost. A 127.0.0.1"},
		"localhost, by IPv6":                    {name: "app.localhost.", kind: aaaa, want: "Success; app.localhost. AAAA ::1"},

		"another name":                       {name: "example.com.", kind: a, want: "Success; example.com. A 203.0.113.1", from: "example.com. A"},
		"a service that does not exist":      {name: "gone.shop.svc.cluster.local.", kind: a, want: "Success; gone.shop.svc.cluster.local. A 203.0.113.1", from: "gone.shop.svc.cluster.local. A"},
		"another type of a name of the mesh": {name: reviews + ".", kind: dnsmessage.TypeTXT, want: "Success", from: reviews + ". TXT"},
		"an address":                         {name: "1.0.96.10.in-addr.arpa.", kind: dnsmessage.TypePTR, want: "Success", from: "1.0.96.10.in-addr.arpa. PTR"},
		"a whole zone":                       {name: "cluster.local.", kind: dnsmessage.TypeAXFR, want: "NotImplemented"},
	}
	r := newRig(t, resolverOf(shop), 1)
	for name, tt := range tests {
		for _, network := range []string{"udp", "tcp"} {
			t.Run(name+" by "+network, func(t *testing.T) {
				before := len(r.servers[0].received())
				if diff := cmp.Diff(tt.want, text(r.send(t, network, question(tt.name, tt.kind, 0)))); diff != "" {
					t.Errorf("answer (-want +got):\n%s", diff)
				}
				var want []string
				if tt.from != "" {
					want = []string{tt.from}
					if network == "tcp" {
						want[0] += " tcp"
					}
				}
				if diff := cmp.Diff(want, r.servers[0].received()[before:], cmp.Transformer("", func(s []string) string { return fmt.Sprint(s) })); diff != "" {
					t.Errorf("forwarded (-want +got):\n%s", diff)
				}
			})
		}
	}
}

func TestUnsupportedMessages(t *testing.T) {
	r := newRig(t, resolverOf(shop), 1)
	two := question(reviews+".", dnsmessage.TypeA, 0)
	binary.BigEndian.PutUint16(two[4:], 2)
	status := question(reviews+".", dnsmessage.TypeA, 0)
	status[2] |= 2 << 3
	tests := map[string]struct {
		message []byte
		want    string
	}{
		"two questions":      {two, "FormatError"},
		"none":               {[]byte{0x12, 0x67, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0}, "FormatError"},
		"a status":           {status, "NotImplemented"},
		"a name without end": {append([]byte{0x12, 0x67, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0}, 3, 'a', 'b'), "FormatError"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := text(r.send(t, "udp", tt.message)); !strings.HasPrefix(got, tt.want) {
				t.Errorf("answer %s, want %s", got, tt.want)
			}
		})
	}
	if n := len(r.servers[0].received()); n != 0 {
		t.Errorf("%d queries were forwarded", n)
	}
}

func TestANameWithADotInALabelIsForwarded(t *testing.T) {
	r := newRig(t, resolverOf(shop), 1)
	seen := make(chan []byte, 1)
	r.servers[0].set(func(q query, _ bool) []byte {
		seen <- slices.Clone(q.question)
		return q.fail(dnsmessage.RCodeNameError)
	})
	message := append([]byte{0x12, 0x67, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0}, 3, 'a', '.', 'b', 3, 'c', 'o', 'm', 0, 0, 1, 0, 1)
	answer := r.send(t, "udp", message)
	got := <-seen
	if idOf(answer) != 0x1267 || codeOf(answer) != dnsmessage.RCodeNameError || !bytes.Equal(got, message[headerSize:]) {
		t.Errorf("answer %x, forwarded question %x", answer, got)
	}
}

func TestHeadlessServicesAndLongAnswers(t *testing.T) {
	const name = "many.shop.svc.cluster.local"
	many := known(name)
	for i := range 100 {
		many.Addresses = append(many.Addresses, netip.AddrFrom4([4]byte{10, 0, 1, byte(i)}))
	}
	r := newRig(t, resolverOf(map[string]wire.Answer{name: many}), 1)
	count := func(raw []byte) int { return strings.Count(text(raw), " A 10.0.1.") }
	cut := r.send(t, "udp", question(name+".", dnsmessage.TypeA, 0))
	if !isTruncated(cut) || len(cut) > smallest || count(cut) != 0 {
		t.Errorf("without EDNS: %d bytes, %s; want it truncated", len(cut), text(cut))
	}
	for network, size := range map[string]int{"udp": 4096, "tcp": 0} {
		if raw := r.send(t, network, question(name+".", dnsmessage.TypeA, size)); isTruncated(raw) || count(raw) != 100 {
			t.Errorf("%s with room for %d bytes: %d addresses, truncated: %v; want all 100", network, size, count(raw), isTruncated(raw))
		}
	}
	first := map[string]bool{}
	for range 20 {
		_, ip, _ := strings.Cut(text(r.send(t, "tcp", question(name+".", dnsmessage.TypeA, 0))), " A ")
		ip, _, _ = strings.Cut(ip, ";")
		first[ip] = true
	}
	if len(first) < 2 {
		t.Errorf("the first of the addresses is always %v: all clients would use it", first)
	}
}

func TestGosResolver(t *testing.T) {
	r := newRig(t, resolverOf(shop), 1)
	resolver := &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, r.addresses[0].String())
	}}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for name, want := range map[string][]string{
		reviews + ".":                  {"10.96.0.1"},
		"dual.shop.svc.cluster.local.": {"10.96.0.2", "fd96::2"},
		"out.shop.svc.cluster.local.":  {"2001:db8::1", "203.0.113.1"},
	} {
		got, err := resolver.LookupHost(ctx, name)
		slices.Sort(got)
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("%s: %v (-want +got):\n%s", name, err, diff)
		}
	}
}

func TestSeveralQueriesOnOneConnection(t *testing.T) {
	r := newRig(t, resolverOf(shop), 1)
	conn, err := net.Dial("tcp", r.addresses[0].String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(time.Minute))
	for _, name := range []string{reviews + ".", "example.com.", "localhost."} {
		conn.Write(framed(question(name, dnsmessage.TypeA, 0)))
	}
	for _, want := range []string{"10.96.0.1", "203.0.113.1", "127.0.0.1"} {
		raw, err := readMessage(conn)
		if err != nil || !strings.HasSuffix(text(raw), want) {
			t.Errorf("answer %s, %v; want %s", text(raw), err, want)
		}
	}
}

func TestTooManyQueriesAreRefused(t *testing.T) {
	release, began := make(chan struct{}), make(chan struct{}, maxQueries)
	t.Cleanup(func() { close(release) })
	r := newRig(t, nil, 1)
	r.servers[0].set(func(q query, _ bool) []byte {
		began <- struct{}{}
		<-release
		return upstreamAnswer(q)
	})
	conn, err := net.Dial("udp", r.addresses[0].String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(time.Minute))
	for i := range maxQueries {
		conn.Write(question(fmt.Sprintf("a%d.example.com.", i), dnsmessage.TypeA, 0))
		<-began
	}
	conn.Write(question("more.example.com.", dnsmessage.TypeA, 0))
	raw, err := receive(conn, "udp")
	if err != nil || !strings.HasPrefix(text(raw), "ServerFailure") || r.Counts().Refused != 1 {
		t.Errorf("answer %s, %v, counts %+v; want a failure", text(raw), err, r.Counts())
	}
}

func TestListenOnAPortThatIsTaken(t *testing.T) {
	r := newRig(t, nil, 0)
	_, err := Listen(Options{Port: r.addresses[0].Port()})
	if err == nil || !strings.Contains(err.Error(), "address already in use") {
		t.Errorf("Listen on a port that is taken: %v", err)
	}
}

func TestCounts(t *testing.T) {
	r := newRig(t, resolverOf(shop), 1)
	for _, name := range []string{reviews + ".", reviews + ".", "gone.shop.svc.cluster.local.", "example.com.", "localhost."} {
		r.send(t, "udp", question(name, dnsmessage.TypeA, 0))
	}
	want := Counts{Questions: 5, Mesh: 2, Cached: 1, Queries: 2, Forwarded: 2, Names: 2}
	if diff := cmp.Diff(want, r.Counts()); diff != "" {
		t.Errorf("Counts (-want +got):\n%s", diff)
	}
}
