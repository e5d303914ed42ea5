package mesh

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// A tlsWay is a case of the benchmark: a pair of Envoys with the same versions, groups and sessions.
type tlsWay struct {
	name, params string
	full         bool   // sessions are not resumed
	more         string // put into the server's TLS context

	measured
	wire  *wire
	first []float64 // time to the first answer on a new connection, in ms
}

// benchTrip is the round-trip time in the benchmark of the first answer. The handshake of TCP takes none.
const benchTrip = 20 * time.Millisecond

// BenchmarkTLS compares versions of TLS and groups by new connections per second, processor time, and the time to the
// first answer. It measures all of them in each round, each time in a different order.
func BenchmarkTLS(b *testing.B) {
	const rounds, callers, firsts, warm, counted = 7, 16, 10, 300 * time.Millisecond, time.Second
	only12 := `{"tls_maximum_protocol_version": "TLSv1_2"}`
	groups := func(list string) string {
		return `{"tls_minimum_protocol_version": "TLSv1_3", "tls_maximum_protocol_version": "TLSv1_3", "ecdh_curves": [` + list + `]}`
	}
	classic, hybrid := groups(`"X25519"`), groups(`"X25519MLKEM768", "X25519"`)
	ways := []*tlsWay{
		{name: "1.2, resumed", params: only12}, {name: "1.2", params: only12, full: true},
		{name: "1.3 X25519, resumed", params: classic}, {name: "1.3 X25519", params: classic, full: true},
		{name: "1.3 X25519MLKEM768, resumed", params: hybrid}, {name: "1.3 X25519MLKEM768", params: hybrid, full: true},
		{name: "the same without tickets", params: hybrid, full: true, more: `"disable_stateless_session_resumption": true, "disable_stateful_session_resumption": true,`},
	}
	w := newWorld(b)
	for _, way := range ways {
		way.open(b, w)
	}
	for round := range rounds {
		for i := range ways {
			way := ways[(i*5+round)%len(ways)] // selects each way once, because 5 and the number of ways have no common factor
			way.load(b, callers, warm)
			way.measure(b, func() int { return way.load(b, callers, counted) })
			way.wire.delay.Store(int64(benchTrip / 2))
			for range firsts {
				began := time.Now()
				way.call(b)
				way.first = append(way.first, float64(time.Since(began).Microseconds())/1000)
			}
			way.wire.delay.Store(0)
		}
	}
	var out strings.Builder
	fmt.Fprintf(&out, "%-27s %2s  %s  %s  %3s  %s\n", "way", "n", "connections/s: min median max", "µs/connection: min median max", "n", fmt.Sprintf("ms to the first answer, round trip %s: min median max", benchTrip))
	for _, way := range ways {
		fmt.Fprintf(&out, "%-27s %2d  %s  %s  %3d  %s\n", way.name, len(way.rate), spread(way.rate), spread(way.cpu), len(way.first), spread(way.first))
	}
	b.Log("\n" + out.String())
}

// spread returns the minimum, the median and the maximum as text.
func spread(all []float64) string {
	slices.Sort(all)
	return fmt.Sprintf("%8.1f %8.1f %8.1f", all[0], all[len(all)/2], all[len(all)-1])
}

func (w *tlsWay) open(b *testing.B, world *world) {
	b.Helper()
	n := world.pods
	w.server, w.client = world.pod(fmt.Sprintf("server%d", n), "server"), world.pod(fmt.Sprintf("client%d", n), "client")
	go repeat(w.server.listen(6379), "server")
	w.wire = world.wire(w.server, 6379)
	both := plain{bytes: true, common: `"tls_params": ` + w.params + `, `, stats: `, {"contains": ".ssl."}`}
	server, client := both, both
	server.to, server.context = "127.0.0.1:6379", w.more
	client.to, client.client = w.wire.v4.String()+":6379", true
	if w.full {
		client.context = `"max_session_keys": 0,`
	}
	w.server.static, w.client.static = server.config, client.config
	w.server.proxied()
	w.client.proxied()
	before := w.client.stat(`cluster\.to\.ssl\.session_reused`)
	for range 4 {
		w.call(b)
	}
	if reused := w.client.stat(`cluster\.to\.ssl\.session_reused`) > before; reused == w.full {
		b.Fatalf("%s: sessions are resumed: %t", w.name, reused)
	}
}

// call makes one call on a new connection.
func (w *tlsWay) call(b *testing.B) {
	if got := w.client.send(w.server.v4.String()+":6379", "PING"); got != "server PING" {
		b.Errorf("%s: %q", w.name, got)
	}
}

// load makes calls from concurrent callers for a duration, and returns the number of calls.
func (w *tlsWay) load(b *testing.B, callers int, d time.Duration) int {
	b.Helper()
	return during(b, callers, d, func() { w.call(b) })
}
