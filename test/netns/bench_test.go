package netns

import (
	"errors"
	"math/rand/v2"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"outrider.dev/build/commands"
	"outrider.dev/internal/capture"
	"outrider.dev/internal/contract"
	"outrider.dev/test/ns"
)

// report prints the spread of times in place of their mean.
func report(b *testing.B, times []time.Duration) {
	b.Helper()
	slices.Sort(times)
	ms := func(i int) float64 { return float64(times[i].Microseconds()) / 1000 }
	b.ReportMetric(0, "ns/op") // it would include what is not measured
	b.ReportMetric(ms(0), "ms-min")
	b.ReportMetric(ms(len(times)/2), "ms-median")
	b.ReportMetric(ms(len(times)-1), "ms-max")
}

// BenchmarkCommand measures "outrider-agent capture" from fork to exit, and the programs that
// write the same rules from a file. Each run is in a fresh network namespace.
func BenchmarkCommand(b *testing.B) {
	ns.RequireRoot(b)
	dir := b.TempDir()
	if err := commands.Build(b.Context(), dir, commands.Agent); err != nil {
		b.Fatal(err)
	}
	agent := filepath.Join(dir, commands.Agent)
	capturing := func(args ...string) []string {
		return slices.Concat([]string{agent, "capture", "-i", "*", "-b", "*"}, args)
	}
	script := func(args ...string) string {
		f, err := os.CreateTemp(dir, "")
		if err != nil {
			b.Fatal(err)
		}
		defer f.Close()
		cmd := exec.Command(agent, capturing(append(args, "--dry-run")...)[1:]...)
		cmd.Stdout, cmd.Stderr = f, os.Stderr
		if err := cmd.Run(); err != nil {
			b.Fatal(err)
		}
		return f.Name()
	}
	restore := func(variant string) (out [][]string) {
		for _, of := range []struct{ family, program string }{{"ipv4", "iptables"}, {"ipv6", "ip6tables"}} {
			rules := script("--backend=iptables", "--force-iptables-binary="+variant, "--families="+of.family)
			out = append(out, []string{of.program + "-" + variant + "-restore", "--noflush", "--wait=10", rules})
		}
		return out
	}
	already := [][]string{capturing()}
	for _, c := range []struct {
		name             string
		before, commands [][]string // only commands are measured
	}{
		{"an empty process", nil, [][]string{{"true"}}},
		{"outrider-agent version", nil, [][]string{{agent, "version"}}},
		{"nft -f", nil, [][]string{{"nft", "-f", script()}}},
		{"capture", nil, [][]string{capturing()}},
		{"capture without proof", nil, [][]string{capturing("--proof=false")}},
		{"nft -f, no parking", nil, [][]string{{"nft", "-f", script("--park=off")}}},
		{"capture without proof, no parking", nil, [][]string{capturing("--park=off", "--proof=false")}},
		{"nft -f, TPROXY", nil, [][]string{{"nft", "-f", script("-m", "TPROXY")}}},
		{"capture, TPROXY", nil, [][]string{capturing("-m", "TPROXY")}},
		{"iptables-nft-restore", nil, restore("nft")},
		{"capture by iptables-nft", nil, [][]string{capturing("--force-iptables-binary=nft")}},
		{"iptables-legacy-restore", nil, restore("legacy")},
		{"capture by iptables-legacy", nil, [][]string{capturing("--force-iptables-binary=legacy")}},
		{"capture again", already, [][]string{capturing()}},
		{"capture verify", already, [][]string{{agent, "capture", "verify"}}},
		{"capture clean", already, [][]string{{agent, "capture", "clean"}}},
	} {
		b.Run(c.name, func(b *testing.B) {
			var times []time.Duration
			for range b.N {
				newTopology(b).pod.Do(func() {
					for _, argv := range c.before {
						command(b, argv[0], argv[1:]...)
					}
					start := time.Now()
					for _, argv := range c.commands {
						command(b, argv[0], argv[1:]...)
					}
					times = append(times, time.Since(start))
				})
			}
			report(b, times)
		})
	}
}

// BenchmarkConnection measures what parking does to an app's connection to the outbound port.
// The kernel of the caller retries every second: a parked connection waits for up to a
// second longer than it must.
func BenchmarkConnection(b *testing.B) {
	ns.RequireRoot(b)
	listener := capture.Listener{Proto: capture.TCP, Port: contract.OutboundPort}
	refused := func(b *testing.B, pod *ns.Namespace) time.Duration {
		start := time.Now()
		if _, err := app(pod).dial(); !errors.Is(err, unix.ECONNREFUSED) {
			b.Errorf("connection without a listener: %v, want refused", err)
		}
		return time.Since(start)
	}
	limit := func(d time.Duration) func(*capture.Intent) {
		return func(in *capture.Intent) { in.ParkLimit = d }
	}
	for _, c := range []struct {
		name   string
		change func(*capture.Intent)
		waits  bool // so that many at a time do not disturb one another
		run    func(*testing.B, *ns.Namespace) time.Duration
	}{
		{"listener first, until connected", nil, false, func(b *testing.B, pod *ns.Namespace) time.Duration {
			defer serve(b, pod, proxyUser, listener, "proxy")()
			start := time.Now()
			connected(b, app(pod))
			return time.Since(start)
		}},
		{"parked, from listening to connected", nil, true, func(b *testing.B, pod *ns.Namespace) time.Duration {
			var end time.Time
			var caller sync.WaitGroup
			caller.Go(func() {
				connected(b, app(pod))
				end = time.Now()
			})
			// With steps of a second, a fixed time would always meet the same part of one.
			time.Sleep(100*time.Millisecond + rand.N(2400*time.Millisecond))
			start := time.Now()
			defer serve(b, pod, proxyUser, listener, "proxy")()
			caller.Wait()
			return end.Sub(start)
		}},
		{"parking off, until refused", func(in *capture.Intent) { in.Park = capture.ParkOff }, false, refused},
		{"limit 1s, until refused", limit(time.Second), true, refused},
		{"limit 5s, until refused", limit(5 * time.Second), true, refused},
	} {
		b.Run(c.name, func(b *testing.B) {
			times := make([]time.Duration, b.N)
			var all sync.WaitGroup
			for i := range times {
				pod := newTopology(b).pod
				capturing(b, pod, nftables, everything(c.change))
				all.Go(func() { times[i] = c.run(b, pod) })
				if !c.waits {
					all.Wait()
				}
			}
			all.Wait()
			report(b, times)
		})
	}
}

// app is a connection of a process of the pod to a service.
func app(pod *ns.Namespace) call {
	return call{from: pod, uid: 1000, gid: 1000, dst: netip.MustParseAddrPort(ways[0].dst), limit: ample}
}

func connected(b *testing.B, c call) {
	conn, err := c.dial()
	if err != nil {
		b.Errorf("connecting: %v", err)
		return
	}
	conn.Close()
}
