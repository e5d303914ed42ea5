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
		"nft flush ruleset":                                         {commits: 1, rules: true},
		"nft delete table inet outrider":                            {commits: 1, rules: true},
		"nft flush chain inet outrider c":                           {commits: 1, rules: true},
		"nft insert rule inet outrider c accept":                    {commits: 1, rules: true},
		"nft add element inet outrider s '{ 80 }'":                  {commits: 1, rules: true},
		"nft add table inet other2":                                 {commits: 1, rules: true},
		"nft delete table inet other":                               {commits: 1, rules: true},
		"iptables-nft -t nat -F":                                    {commits: 1, rules: true},
		"iptables-nft -t nat -A X -j RETURN; nft add table ip a":    {commits: 2, rules: true},
		"ip rule del fwmark 1337":                                   {routing: true},
		"ip -6 rule add fwmark 1337 lookup 133":                     {routing: true},
		"ip route flush table 133":                                  {routing: true},
		"ip route add 10.2.0.0/16 dev eth0":                         {},
		"ip route add 10.2.0.0/16 dev eth0 table 133":               {routing: true},
		"ip route replace local default dev lo table 133 proto 3":   {routing: true},
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
// reports IPv6 addresses a little later than others. So is ::1, which comes when IPv6 is switched on.
func TestFirstIPv6Address(t *testing.T) {
	pod := ns.Pod(t)
	pod.Sh("sysctl -qw net.ipv6.conf.lo.disable_ipv6=1")
	w, s := watching(t, pod)
	pod.Sh("ip addr add fe80::2/64 dev eth0 nodad; ip addr add 10.1.0.2/32 dev eth0; ip addr add 127.0.0.5/32 dev lo")
	if got := w.read(s, s.routes); got.routing {
		t.Errorf("%+v", got)
	}
	pod.Sh("ip addr add fd00::2/64 dev eth0 nodad")
	process.Eventually(t, "an IPv6 address is a change", func() bool { return w.read(s, s.routes).routing })
	pod.Sh("sysctl -qw net.ipv6.conf.lo.disable_ipv6=0")
	process.Eventually(t, "IPv6 is switched on, which is a change, for ::6", func() bool { return w.read(s, s.routes).routing })
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
		if got.once() != tt.want || got.rules != (len(tt.kinds) > 0) {
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
	for name, tt := range map[string]struct{ before, change string }{
		"nftables":        {"nft add table inet outrider", "nft flush ruleset"},
		"another table":   {"nft flush ruleset", "nft add table inet a"},
		"iptables-nft":    {"iptables-nft -t nat -A OUTPUT -j RETURN", "iptables-nft -t nat -F"},
		"iptables-legacy": {"iptables-legacy -t nat -A OUTPUT -j RETURN", "iptables-legacy -t nat -F"},
		"legacy, by as many rules of the same size": {"iptables-legacy -t nat -F; iptables-legacy -t nat -A OUTPUT -p tcp -j RETURN", "iptables-legacy -t nat -R OUTPUT 1 -p tcp -j ACCEPT"},
		"legacy, IPv6":               {"ip6tables-legacy -t nat -A OUTPUT -j RETURN", "ip6tables-legacy -t nat -F"},
		"a set of ipset":             {"ipset create -exist outrider-a-x bitmap:port range 0-65535; ipset -exist add outrider-a-x 81; ipset -exist del outrider-a-x 80", "ipset add outrider-a-x 80"},
		"a set with as many entries": {"ipset -exist create outrider-a-y hash:net; ipset -exist add outrider-a-y 10.1.0.0/16; ipset -exist del outrider-a-y 10.2.0.0/16", "ipset del outrider-a-y 10.1.0.0/16; ipset add outrider-a-y 10.2.0.0/16"},
		"routing":                    {"ip rule del fwmark 1337 || true; ip rule add fwmark 1337 lookup 133", "ip rule del fwmark 1337"},
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
				if err := w.Arm("a", false); err != nil {
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
			if err := w.Arm("other", false); err != nil {
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
	if err := w.Arm("a", false); err != nil {
		t.Fatal(err)
	}
	await(t, reports, "a")
}

// The first table of iptables-legacy is reported, which did not exist when the watch began.
func TestFirstLegacyTable(t *testing.T) {
	pod := ns.Pod(t)
	w := New()
	reports := w.reports(t)
	if err := w.Watch("a", pod.Path()); err != nil {
		t.Fatal(err)
	}
	if err := w.Arm("a", false); err != nil {
		t.Fatal(err)
	}
	pod.Sh("iptables-legacy -t raw -A OUTPUT -p tcp -j NOTRACK")
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
				if err := w.Arm("a", false); err != nil {
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
