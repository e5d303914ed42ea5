package watch

import (
	"context"
	"net"
	"os/exec"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"outrider.dev/internal/core/capture/netlink"
	"outrider.dev/test/ns"
	"outrider.dev/test/process"
)

// watching watches a namespace as sandbox a until the test ends.
func watching(t *testing.T, pod *ns.Namespace) (*Watcher, *space) {
	t.Helper()
	w := New()
	if err := w.Watch("a", pod.Path()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.Remove("a") })
	return w, w.spaces["a"]
}

const before = `nft add table inet outrider; nft add chain inet outrider c; nft add set inet outrider s '{ type inet_service; }'
nft add rule inet outrider c counter; nft add table inet other
iptables-nft -t nat -N X; iptables-nft -t nat -A OUTPUT -j X
ip rule add fwmark 1337 lookup 133; ip route add local default dev lo table 133 proto 151
ip addr add ::6/128 dev lo nodad; ip addr add 10.1.0.1/32 dev eth0`

func TestWhatIsAChange(t *testing.T) {
	for script, want := range map[string]changes{
		"nft flush ruleset":                                         {commits: 1, ours: true, shared: true},
		"nft delete table inet outrider":                            {commits: 1, ours: true},
		"nft flush chain inet outrider c":                           {commits: 1, ours: true},
		"nft insert rule inet outrider c accept":                    {commits: 1, ours: true},
		"nft add element inet outrider s '{ 80 }'":                  {commits: 1, ours: true},
		"nft add table inet other2":                                 {commits: 1},
		"nft delete table inet other":                               {commits: 1},
		"iptables-nft -t nat -F":                                    {commits: 1, shared: true},
		"iptables-nft -t nat -A X -j RETURN; nft add table ip a":    {commits: 2, shared: true},
		"ip rule del fwmark 1337":                                   {routing: true},
		"ip -6 rule add fwmark 1337 lookup 133":                     {routing: true},
		"ip route flush table 133":                                  {routing: true},
		"ip route add 10.2.0.0/16 dev eth0":                         {},
		"ip addr del ::6/128 dev lo":                                {routing: true},
		"ip addr add 10.1.0.2/32 dev eth0":                          {},
		"ip link set lo down":                                       {routing: true},
		"ip link set eth0 mtu 1400":                                 {},
		"nft list ruleset >/dev/null; iptables-nft-save >/dev/null": {},
	} {
		t.Run(script, func(t *testing.T) {
			pod := ns.Pod(t)
			pod.Sh(before)
			w, s := watching(t, pod)
			pod.Sh(script)
			got, routes := w.read(s, s.filter), w.read(s, s.routes)
			got.routing, got.lost = routes.routing, got.lost || routes.lost
			if got != want {
				t.Errorf("%+v; want %+v", got, want)
			}
		})
	}
}

// The first IPv6 address of a pod is a change, if its capture is for IPv4 alone; one of its link is none. The kernel
// reports IPv6 addresses a little later than others.
func TestFirstIPv6Address(t *testing.T) {
	pod := ns.Pod(t)
	w, s := watching(t, pod)
	pod.Sh("ip addr add fe80::2/64 dev eth0 nodad; ip addr add 10.1.0.2/32 dev eth0")
	if got := w.read(s, s.routes); got.routing {
		t.Errorf("%+v", got)
	}
	pod.Sh("ip addr add fd00::2/64 dev eth0 nodad")
	process.Eventually(t, "an IPv6 address is a change", func() bool { return w.read(s, s.routes).routing })
	if m := (netlink.Message{Kind: unix.RTM_NEWADDR, Data: []byte{unix.AF_INET6, 64, 0, 0, 2, 0, 0, 0}}); matters(m, true) {
		t.Error("with a capture for IPv6, another address is a change")
	}
}

// A transaction whose end is not written yet is not taken for a part of the one before.
func TestOneTransaction(t *testing.T) {
	const object, end = unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_DELTABLE, unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_NEWGEN
	for name, tt := range map[string]struct {
		kinds []uint16
		want  bool
	}{
		"nothing":           {nil, false},
		"one":               {[]uint16{object, object, end}, true},
		"its beginning":     {[]uint16{object}, false},
		"one, and a second": {[]uint16{object, end, object}, false},
		"two":               {[]uint16{object, end, object, end}, false},
	} {
		var got changes
		for _, kind := range tt.kinds {
			var b netlink.Batch
			b.Message(kind, 0, "", func() {
				b.Generic(unix.NFPROTO_INET, 0)
				b.Text(unix.NFTA_TABLE_NAME, "outrider")
			})
			got.addFilter(b.Buf)
		}
		if got.once() != tt.want || got.ours != (len(tt.kinds) > 0) {
			t.Errorf("%s: %+v", name, got)
		}
		got.addFilter([]byte{1, 2, 3})
		if got.once() || !got.lost {
			t.Errorf("%s, and then what cannot be read: %+v", name, got)
		}
	}
}

// The kernel's messages are parsed without a panic, and what cannot be read counts as a change.
func FuzzMessages(f *testing.F) {
	f.Add([]byte{20, 0, 0, 0, unix.NFT_MSG_NEWRULE, unix.NFNL_SUBSYS_NFTABLES, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0})
	f.Add([]byte{24, 0, 0, 0, unix.RTM_NEWADDR, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, unix.AF_INET6, 0, 0, 0, 2, 0, 0, 0})
	f.Fuzz(func(t *testing.T, datagram []byte) {
		var filter, routes changes
		filter.addFilter(datagram)
		routes.addRoutes(datagram, false)
		if filter.lost != routes.lost {
			t.Errorf("%+v, and as routes %+v", filter, routes)
		}
	})
}

// A message that a container sends to the watcher's socket is no event, and one that is lost is a change.
func TestMessagesOfContainers(t *testing.T) {
	pod := ns.Pod(t)
	w, s := watching(t, pod)
	at, err := unix.Getsockname(s.filter)
	if err != nil {
		t.Fatal(err)
	}
	pod.Do(func() {
		fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_NETFILTER)
		if err != nil {
			t.Error(err)
			return
		}
		defer unix.Close(fd)
		if err := unix.Sendto(fd, make([]byte, 100), 0, at); err != nil {
			t.Error(err)
		}
	})
	if got := w.read(s, s.filter); got != (changes{}) {
		t.Errorf("%+v", got)
	}
	pod.Sh(`{ echo 'add table inet x; add set inet x s { type inet_service; }'; for i in $(seq 9000); do echo "add element inet x s { $i }"; done; } | nft -f -`)
	if got := w.read(s, s.filter); !got.lost || w.Once("a") {
		t.Errorf("%+v; want messages to be lost", got)
	}
}

// reports runs the watcher, and returns the reports.
func (w *Watcher) reports(t *testing.T) (reports chan string) {
	ctx, cancel := context.WithCancel(t.Context())
	reports, ended := make(chan string, 100), make(chan error, 1)
	go func() { ended <- w.Run(ctx, func(id string) { reports <- id }) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return reports
}

func await(t *testing.T, reports chan string, want string) {
	t.Helper()
	select {
	case id := <-reports:
		if id != want {
			t.Fatalf("%s is reported, not %s", id, want)
		}
	case <-time.After(process.Patience):
		t.Fatal("nothing is reported")
	}
}

// A change is reported once, and the next one after the namespace is watched again.
func TestReports(t *testing.T) {
	for name, tt := range map[string]struct {
		before, change string
		by             Backend
	}{
		"nftables":        {"nft add table inet outrider", "nft flush ruleset", Backend{}},
		"iptables-nft":    {"iptables-nft -t nat -A OUTPUT -j RETURN", "iptables-nft -t nat -F", Backend{IPTables: true}},
		"iptables-legacy": {"iptables-legacy -t nat -A OUTPUT -j RETURN", "iptables-legacy -t nat -F", Backend{IPTables: true}},
		"legacy, by as many rules of the same size": {"iptables-legacy -t nat -F; iptables-legacy -t nat -A OUTPUT -p tcp -j RETURN", "iptables-legacy -t nat -R OUTPUT 1 -p tcp -j ACCEPT", Backend{IPTables: true}},
		"legacy, IPv6":               {"ip6tables-legacy -t nat -A OUTPUT -j RETURN", "ip6tables-legacy -t nat -F", Backend{IPTables: true}},
		"routing":                    {"ip rule del fwmark 1337 || true; ip rule add fwmark 1337 lookup 133", "ip rule del fwmark 1337", Backend{}},
		"after others' transactions": {"nft add table inet outrider", "nft add table inet a; nft add table inet b; nft delete table inet outrider", Backend{}},
	} {
		t.Run(name, func(t *testing.T) {
			pod, other := ns.Pod(t), ns.Pod(t)
			w := New()
			reports := w.reports(t)
			if err := w.Watch("other", other.Path()); err != nil {
				t.Fatal(err)
			}
			for range 2 {
				pod.Sh(tt.before)
				if err := w.Watch("a", pod.Path()); err != nil {
					t.Fatal(err)
				}
				if err := w.Arm("a", tt.by); err != nil {
					t.Fatal(err)
				}
				// Packets that rules count are no change.
				pod.Do(func() {
					if c, err := net.Dial("udp", "10.9.0.9:9"); err == nil {
						_, _ = c.Write([]byte("x"))
						c.Close()
					}
				})
				pod.Sh(tt.change)
				await(t, reports, "a")
				pod.Sh(tt.before) // not reported: it is not armed
			}
			if err := w.Arm("other", Backend{}); err != nil {
				t.Fatal(err)
			}
			other.Sh("nft add table inet outrider")
			await(t, reports, "other")
		})
	}
}

// Changes between Watch and Arm are reported.
func TestReportsWhatHappenedBefore(t *testing.T) {
	pod := ns.Pod(t)
	w := New()
	reports := w.reports(t)
	if err := w.Watch("a", pod.Path()); err != nil {
		t.Fatal(err)
	}
	pod.Sh("nft add table inet outrider; nft delete table inet outrider")
	if err := w.Arm("a", Backend{}); err != nil {
		t.Fatal(err)
	}
	await(t, reports, "a")
}

// A namespace ends with its sandbox, although it was watched: the other end of its link ends too.
func TestNamespaceEnds(t *testing.T) {
	for name, end := range map[string]func(w *Watcher, stop func()){
		"removed":               func(w *Watcher, _ func()) { w.Remove("a") },
		"the watcher has ended": func(_ *Watcher, stop func()) { stop() },
	} {
		t.Run(name, func(t *testing.T) {
			node := ns.New(t)
			w := New()
			ctx, stop := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- w.Run(ctx, func(string) {}) }()
			var path string
			t.Run("pod", func(t *testing.T) { // the namespace loses its descriptor at the end of this test
				pod := ns.New(t)
				path = pod.Path()
				node.IP("link", "add", "pod0", "type", "veth", "peer", "name", "eth0", "netns", path)
				pod.Sh("iptables-legacy -t nat -L >/dev/null; ip6tables-legacy -t nat -L >/dev/null")
				if err := w.Watch("a", path); err != nil {
					t.Fatal(err)
				}
				if err := w.Arm("a", Backend{IPTables: true}); err != nil {
					t.Fatal(err)
				}
				if w.Gone("a", path) {
					t.Error("the namespace counts as gone")
				}
			})
			there := func() (is bool) {
				node.Do(func() { is = exec.Command("ip", "link", "show", "pod0").Run() == nil })
				return is
			}
			if !there() {
				t.Fatal("the watch does not keep the namespace alive, so the test shows nothing")
			}
			if !w.Gone("a", path) {
				t.Error("the namespace does not count as gone")
			}
			end(w, stop)
			process.Eventually(t, "the namespace has ended", func() bool { return !there() })
			stop()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		})
	}
}
