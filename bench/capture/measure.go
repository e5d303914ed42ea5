package main

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/google/nftables"
	"golang.org/x/sys/unix"

	"outrider.dev/bench/internal/figures"
	"outrider.dev/bench/internal/tb"
	"outrider.dev/internal/base/contract"
	"outrider.dev/test/ns"
)

// pod returns a network namespace like that of a pod, with IPv4 and IPv6. The node at the other end of its link
// answers nothing.
func pod(t testing.TB) *ns.Namespace {
	pod, node := ns.New(t), ns.Empty(t)
	ns.Connect(pod, "eth0", []netip.Prefix{netip.MustParsePrefix("10.9.0.2/24"), netip.MustParsePrefix("fd09::2/64")}, node, "pod0", nil)
	pod.IP("route", "add", "default", "via", "10.9.0.1")
	pod.IP("route", "add", "default", "via", "fd09::1")
	return pod
}

// execute runs commands in the namespace of the calling thread, one after another.
func execute(commands ...[]string) (wall, cpu time.Duration, err error) {
	for _, argv := range commands {
		cmd := exec.Command(argv[0], argv[1:]...)
		start := time.Now()
		out, err := cmd.CombinedOutput()
		wall += time.Since(start)
		if err != nil {
			return 0, 0, fmt.Errorf("%s: %w: %s", argv[0], err, bytes.TrimSpace(out))
		}
		cpu += cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	}
	return wall, cpu, nil
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// run runs a benchmark case once. The first run finds out whether the case works on this machine, and counts the
// rules; later ones record the times.
func (w *way) run(first bool) error {
	if w.cannot != nil {
		return nil
	}
	return tb.Run(func(t testing.TB) {
		pod(t).Do(func() {
			if _, _, err := execute(w.before...); err != nil {
				t.Error(err)
				return
			}
			wall, cpu, err := execute(w.commands...)
			switch {
			case err != nil && first:
				w.cannot = err
			case err != nil:
				t.Error(err)
			case first:
				if w.rules, w.elements, err = count(); err != nil {
					t.Error(err)
				}
			default:
				for i, d := range []time.Duration{wall, cpu} {
					w.times[i].Values = append(w.times[i].Values, milliseconds(d))
				}
			}
		})
	})
}

// count returns the number of rules and set elements in the network namespace of the calling thread.
func count() (rules, elements int, err error) {
	c := &nftables.Conn{}
	chains, err := c.ListChains()
	if err != nil {
		return 0, 0, err
	}
	for _, chain := range chains {
		list, err := c.GetRules(chain.Table, chain)
		if err != nil {
			return 0, 0, err
		}
		rules += len(list)
	}
	tables, err := c.ListTables()
	if err != nil {
		return 0, 0, err
	}
	for _, t := range tables {
		sets, err := c.GetSets(t)
		if err != nil {
			return 0, 0, err
		}
		for _, s := range sets {
			list, err := c.GetSetElements(s)
			if err != nil {
				return 0, 0, err
			}
			for _, e := range list {
				if !e.IntervalEnd {
					elements++
				}
			}
		}
	}
	// The nftables API does not list legacy rules. lines returns 0 for a program that is not installed.
	for _, program := range []string{"iptables-legacy-save", "ip6tables-legacy-save"} {
		rules += lines(program, "-A ")
	}
	return rules, elements + lines("ipset", "add ", "save"), nil
}

// lines returns the number of lines of a program's output that begin with a prefix.
func lines(program, prefix string, args ...string) (n int) {
	out, _ := exec.Command(program, args...).Output()
	for line := range bytes.Lines(out) {
		if bytes.HasPrefix(line, []byte(prefix)) {
			n++
		}
	}
	return n
}

// each is the number of connections that are measured together in one round.
const each = 200

// connections measures captured connections, with the shortest and with the longest lists, and parked
// connections. The destination is in none of the lists.
func connections(ways []*way, agent string, n int) (*figures.Table, error) {
	t := &figures.Table{}
	least, most := ways[len(ways)-1].entries, 0
	for _, w := range ways {
		least, most = min(least, w.entries), max(most, w.entries)
	}
	err := tb.Run(func(tt testing.TB) {
		var rows []func()
		for _, w := range ways {
			if w.connects == "" || w.cannot != nil || w.entries != least && w.entries != most {
				continue
			}
			title := func(entries int) string { return fmt.Sprintf("%s: %s, %d entries", w.backend, w.connects, entries) }
			p := pod(tt)
			p.Do(func() {
				if _, _, err := execute(w.commands...); err != nil {
					tt.Error(err)
				}
			})
			defer serve(tt, p)()
			row := &figures.Row{Title: title(w.entries), What: "µs a connection", Baseline: title(least)}
			t.Rows = append(t.Rows, row)
			rows = append(rows, func() {
				row.Values = append(row.Values, 1000*milliseconds(connect(tt, p, each, nil))/each)
			})
		}
		for range n {
			for _, i := range rand.Perm(len(rows)) {
				rows[i]()
			}
		}
		for _, c := range parked {
			took := make([]time.Duration, n)
			var all sync.WaitGroup
			for i := range n {
				p := pod(tt)
				p.Do(func() {
					if _, _, err := execute(append([]string{agent, "capture", "-i", "*", "-b", "*"}, c.flags...)); err != nil {
						tt.Error(err)
					}
				})
				all.Go(func() { took[i] = c.run(tt, p) })
			}
			all.Wait()
			for _, d := range took {
				t.Add(c.title, "ms", milliseconds(d), "")
			}
		}
	})
	return t, err
}

// parked lists the cases of connections that are parked at the outbound port. While a connection is parked, the
// caller's kernel repeats the SYN once a second at first, so the caller waits up to a second longer than
// necessary.
var parked = []struct {
	title string
	flags []string
	run   func(testing.TB, *ns.Namespace) time.Duration
}{
	{"parked, from listening to connected", nil, func(t testing.TB, p *ns.Namespace) time.Duration {
		var end time.Time
		var caller sync.WaitGroup
		caller.Go(func() {
			connect(t, p, 1, nil)
			end = time.Now()
		})
		// The delay is random, because the kernel repeats the SYN every second: after a fixed delay, each run
		// would measure the same part of that second.
		time.Sleep(100*time.Millisecond + rand.N(2400*time.Millisecond))
		start := time.Now()
		defer serve(t, p)()
		caller.Wait()
		return end.Sub(start)
	}},
	{"parking off, until refused", []string{"--park=off"}, refused},
	{"limit 1s, until refused", []string{"--park-limit=1s"}, refused},
	{"limit 5s, until refused", []string{"--park-limit=5s"}, refused},
}

func refused(t testing.TB, p *ns.Namespace) time.Duration { return connect(t, p, 1, unix.ECONNREFUSED) }

// serve accepts connections at the outbound port until stop is called.
func serve(t testing.TB, p *ns.Namespace) (stop func() error) {
	var l net.Listener
	p.As(contract.ProxyUser, contract.ProxyUser, func() {
		var err error
		if l, err = net.Listen("tcp", fmt.Sprint(":", contract.OutboundPort)); err != nil {
			t.Error(err)
		}
	})
	if t.Failed() {
		t.FailNow()
	}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			c.Close()
		}
	}()
	return l.Close
}

// connect makes n connections from an app to a service, one after another, and returns the time for all. Each
// must return the expected error (want).
func connect(t testing.TB, p *ns.Namespace, n int, want error) (took time.Duration) {
	p.As(1000, 1000, func() {
		start := time.Now()
		defer func() { took = time.Since(start) }()
		for range n {
			fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
			if err != nil {
				t.Error(err)
				return
			}
			err = unix.Connect(fd, &unix.SockaddrInet4{Port: 80, Addr: [4]byte{10, 96, 0, 10}})
			unix.Close(fd)
			if !errors.Is(err, want) {
				t.Errorf("connecting: %v, want %v", err, want)
				return
			}
		}
	})
	return took
}
