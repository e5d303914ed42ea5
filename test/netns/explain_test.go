package netns

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"outrider.dev/internal/core/capture"
	"outrider.dev/internal/core/capture/setup"
	"outrider.dev/internal/core/capture/trace"
	"outrider.dev/test/ns"
	"outrider.dev/test/scenario"
)

// Random connections under random flags have the results that "outrider rules --explain" predicts.
//
// OUTRIDER_PAIRS is the number of pairs of flags and connection for each backend. With
// OUTRIDER_SEED, the seed that a run has logged, the run is repeated.
func TestExplain(t *testing.T) {
	ns.RequireRoot(t)
	t.Parallel()
	pairs := number(t, "OUTRIDER_PAIRS", 96)
	seed := number(t, "OUTRIDER_SEED", uint64(time.Now().UnixNano()))
	t.Logf("OUTRIDER_SEED=%d OUTRIDER_PAIRS=%d", seed, pairs)
	for i, v := range variants {
		t.Run(v.name, func(t *testing.T) {
			t.Parallel()
			top := newTopology(t)
			answerOutside(t, top)
			random := rand.New(rand.NewPCG(seed, uint64(i)))
			ends := map[string]int{}
			for range pairs / connsOfARound {
				for _, end := range explainRound(t, top, v, random) {
					ends[end]++
				}
			}
			t.Log(ends)
		})
	}
}

// connsOfARound is the number of concurrent connections under the same flags.
const connsOfARound = 8

func number(t *testing.T, variable string, otherwise uint64) uint64 {
	t.Helper()
	n, err := strconv.ParseUint(cmp.Or(os.Getenv(variable), fmt.Sprint(otherwise)), 10, 64)
	if err != nil {
		t.Fatalf("%s: %v", variable, err)
	}
	return n
}

// Destination ports: appPorts are ports of apps, proxyPorts are all ports that capture treats specially. Port 53 is
// added where they are used.
var (
	appPorts   = []string{"80", "443", "8080", "8085", "9090"}
	proxyPorts = []string{"15001", "15006", "15008", "15020", "15021", "15053", "15090"}
	udpPorts   = []string{"53", "8080", "15053"}
)

// answerOutside makes every address outside the pod answer on every port.
func answerOutside(t *testing.T, top *topology) {
	for name, n := range map[string]*ns.Namespace{"peer": top.peer, "guest": top.guest} {
		for _, p := range slices.Concat(appPorts, proxyPorts, []string{"53"}) {
			serve(t, n, 0, trace.Listener{Proto: capture.TCP, Port: portOf(p)}, name+":"+p)
		}
		for _, p := range udpPorts {
			serve(t, n, 0, trace.Listener{Proto: capture.UDP, Port: portOf(p)}, name+":"+p)
		}
	}
}

func portOf(s string) uint16 {
	p, err := capture.ParsePort(s)
	if err != nil {
		panic(err)
	}
	return p
}

// explainRound captures with random flags, makes random connections, and returns the result of each.
func explainRound(t *testing.T, top *topology, v variant, random *rand.Rand) []string {
	s := scenario.Scenario{Flags: randomFlags(random), Nameservers: addrs("10.96.0.10", "fd96::10")}
	intent, err := s.Intent()
	if err != nil {
		t.Fatal(s.Flags, err)
	}
	rs := capturing(t, top.pod, v, intent).Ruleset
	listening := some(random, slices.Concat(appPorts, proxyPorts, []string{"53"}))
	for _, p := range listening {
		l := trace.Listener{Proto: capture.TCP, Port: portOf(p), Transparent: true}
		defer serve(t, top.pod, podUser(l.Port), l, "pod:"+p)()
		if l.Proto = capture.UDP; slices.Contains(udpPorts, p) {
			defer serve(t, top.pod, podUser(l.Port), l, "pod:"+p)()
		}
	}
	var tries sync.WaitGroup
	ends := make([]string, connsOfARound)
	for i := range ends {
		q := randomQuery(random)
		q.Listening = listening
		tries.Go(func() { ends[i] = explained(t, top, rs, s.Flags, q) })
	}
	tries.Wait()
	return ends
}

// explained makes the connection of q, and returns its result. It fails the test if the explanation has another result.
func explained(t *testing.T, top *topology, rs capture.Ruleset, flags []string, q trace.Query) string {
	var c trace.Conn
	var pod trace.Pod
	var err error
	top.pod.Do(func() { c, pod, _, err = q.Parse(setup.Network()) })
	if err != nil {
		t.Errorf("%+v: %v", q, err)
		return ""
	}
	way := trace.Follow(rs, c, pod)
	want := endingOf(c, scenario.Want{Fate: way.Fate, Port: way.Port})
	try := callOf(top, c)
	try.dst = netip.MustParseAddrPort(q.To)
	try.src = netip.Addr{}
	if q.From != "" {
		try.src = netip.MustParseAddr(q.From)
	}
	if want != waits {
		try.limit = enough
	}
	got := ending(try)
	if got != want {
		t.Errorf("flags %q\nconnection %+v\nended as %q, want %q\n%s", flags, q, got, want, way)
	}
	return got
}

func addrs(list ...string) []netip.Addr {
	var out []netip.Addr
	for _, s := range list {
		out = append(out, netip.MustParseAddr(s))
	}
	return out
}

// some returns a random part of a list.
func some(random *rand.Rand, list []string) []string {
	var out []string
	share := random.IntN(4) // share of the list, in quarters
	for _, s := range list {
		if random.IntN(4) <= share {
			out = append(out, s)
		}
	}
	return out
}

func one(random *rand.Rand, list ...string) string { return list[random.IntN(len(list))] }

// randomFlags returns random flags of capture. Most command lines lack a given flag.
func randomFlags(random *rand.Rand) []string {
	var flags []string
	add := func(chance int, flag string, values ...string) {
		if random.IntN(100) < chance {
			flags = append(flags, flag+"="+strings.Join(some(random, values), ","))
		}
	}
	all := func(chance int, flag string) {
		if random.IntN(100) < chance {
			flags = append(flags, flag+"=*")
		}
	}
	single := func(chance int, flag string, values ...string) {
		if random.IntN(100) < chance {
			flags = append(flags, flag+"="+one(random, values...))
		}
	}
	single(50, "-m", "TPROXY", "TPROXY", "TPROXY", "NONE")
	ranges := []string{"10.96.0.0/16", "10.9.0.0/24", "10.96.0.10", "172.16.0.10/32", "fd96::/112", "fd09::1", "10.10.0.1", "127.0.0.0/8", "0.0.0.0/0"}
	ports := slices.Concat(appPorts, []string{"8080:8090", "0x1f90", "9000:"})
	add(30, "-b", ports...)
	all(70, "-b")
	add(20, "-d", ports...)
	add(20, "-i", ranges...)
	all(80, "-i")
	add(25, "-x", ranges[:7]...)
	add(20, "-q", ports...)
	all(5, "-q")
	add(20, "-o", slices.Concat(ports, []string{"53"})...)
	add(25, "-c", "eth0", "virt0", "eth1", "lo", "e+", "virt+")
	add(25, "-k", "virt0", "virt1", "v+")
	single(20, "-u", "1337", "0,1337", "1000,1337") // always with 1337, because the agent answers DNS as this user
	single(20, "-g", "1337", "0", "2000")
	single(10, "--outbound-owner-groups", "1000", "1000,2000", "")
	single(10, "--outbound-owner-groups-exclude", "1000", "2000")
	single(15, "--outbound-ipv4-loopback-cidr", "127.0.0.0/8", "127.0.0.2/32")
	single(40, "--redirect-dns", "true")
	single(20, "--capture-all-dns", "true")
	single(10, "--drop-invalid", "true")
	single(30, "--families", "ipv4", "ipv6", "auto")
	single(20, "--park", "off", "on", "require")
	single(20, "--park-limit", "0", "30s")
	add(20, "--park-ports", slices.Concat(appPorts, []string{"15053", "15008"})...)
	all(10, "--park-ports")
	single(10, "-t", "9", "0x1000")
	single(10, "-e", "8080")
	return flags
}

// randomQuery returns a random connection from a process of the pod, from outside, or from a guest.
func randomQuery(random *rand.Rand) trace.Query {
	port, udp := one(random, slices.Concat(appPorts, proxyPorts, []string{"53"})...), random.IntN(5) == 0
	if udp {
		port = one(random, udpPorts...)
	}
	q := trace.Query{UDP: udp, As: fmt.Sprintf("%s:%s", one(random, "0", "1000", "1337", "2000"), one(random, "0", "1000", "1337", "2000"))}
	var to string
	switch random.IntN(6) {
	case 0:
		q.In, to = "eth0", one(random, "10.9.0.2", "fd09::2", "10.10.0.2", "10.10.0.1", "fd10::1")
	case 1:
		q.In, to = "virt0", one(random, "10.10.0.2", "fd10::2", "10.9.0.2", "10.96.0.10", "172.16.0.10", "10.9.0.1", "fd96::10", "fd09::1")
	case 2, 3:
		to = one(random, "10.9.0.2", "fd09::2", "10.10.0.2", "fd10::2", "127.0.0.1", "::1", "127.0.0.2", "127.0.0.6")
		if udp && (to == "127.0.0.2" || to == "127.0.0.6") {
			to = "127.0.0.53" // the server's socket is bound to this address, as the socket of a name server is
		}
		if random.IntN(4) == 0 && strings.Contains(to, ".") {
			q.From = one(random, "127.0.0.6", "10.9.0.2", "127.0.0.1")
		}
	default:
		to = one(random, "10.9.0.1", "10.96.0.10", "172.16.0.10", "10.10.0.1", "fd09::1", "fd96::10", "fd10::1")
	}
	q.To = netip.AddrPortFrom(netip.MustParseAddr(to), portOf(port)).String()
	return q
}
