package netns

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"outrider.dev/build/commands"
	"outrider.dev/internal/capture"
	"outrider.dev/internal/contract"
	"outrider.dev/test/ns"
)

// lists are n ports and n address ranges, none next to another. 10,000 ranges are as many as
// an argument of a command can hold (128 KiB).
func lists(n int) (ports, ranges string) {
	var p, r []string
	for i := range n {
		p = append(p, fmt.Sprint(30000+2*i))
		r = append(r, fmt.Sprintf("1.%d.%d.1", i>>8, i&255))
	}
	return strings.Join(p, ","), strings.Join(r, ",")
}

// byHand are rules for "nft -f" that do what ours do, as short as we can write them: without
// counters, comments and the rules of a proof.
func byHand(n int) string {
	ports, ranges := lists(n)
	var sets, excluded string
	if n > 0 {
		sets = "set ports { type inet_service; flags interval; elements = { " + ports + " } }\n" +
			"set ranges { type ipv4_addr; flags interval; elements = { " + ranges + " } }\n"
		excluded = "tcp dport @ports return\n ip daddr @ranges return"
	}
	return `table inet mesh {
` + sets + `
set parking { type nf_proto . inet_service; size 4; flags dynamic,timeout; timeout 1m; }
set gone { type nf_proto . inet_service; size 4; flags dynamic,timeout; timeout 5m; }
chain proxy {
	tcp dport { 15008, 15020, 15021, 15090 } return
	oifname "lo" meta l4proto tcp ip daddr != 127.0.0.1 redirect to :15006
	oifname "lo" meta l4proto tcp ip6 daddr != ::1 redirect to :15006
}
chain prerouting {
	type nat hook prerouting priority dstnat;
	tcp flags & (fin|syn|rst|ack) != syn return
	tcp dport { 15008, 15020, 15021, 15090 } return
	meta l4proto tcp redirect to :15006
}
chain output {
	type nat hook output priority -100;
	tcp flags & (fin|syn|rst|ack) != syn return
	oifname "lo" ip saddr 127.0.0.6 return
	oifname "lo" ip6 saddr ::6 return
	meta skuid 1337 goto proxy
	meta skgid 1337 goto proxy
	oifname "lo" return
	ip daddr 127.0.0.1 return
	ip6 daddr ::1 return
	` + excluded + `
	meta l4proto tcp redirect to :15001
}
chain park {
	socket transparent <= 1 meta nfproto . th dport != @gone return
	socket transparent <= 1 delete @parking { meta nfproto . th dport }
	socket transparent <= 1 delete @gone { meta nfproto . th dport }
	socket transparent <= 1 return
	meta nfproto . th dport @parking drop
	meta nfproto . th dport @gone update @gone { meta nfproto . th dport }
	meta nfproto . th dport @gone return
	add @gone { meta nfproto . th dport }
	add @parking { meta nfproto . th dport }
	drop
}
chain input {
	type filter hook input priority filter;
	tcp flags & (fin|syn|rst|ack) == syn tcp dport { 15001, 15006 } goto park
}
chain release {
	udp dport { 15001, 15006 } update @gone { meta nfproto . th dport }
	udp dport { 15001, 15006 } delete @parking { meta nfproto . th dport }
}
chain filter-output {
	type filter hook output priority filter;
	oifname "lo" ip daddr 127.0.0.6 meta l4proto udp meta skuid { 0, 1337 } goto release
	oifname "lo" ip daddr 127.0.0.6 meta l4proto udp meta skgid 1337 goto release
	oifname "lo" ip6 daddr ::1 meta l4proto udp meta skuid { 0, 1337 } goto release
	oifname "lo" ip6 daddr ::1 meta l4proto udp meta skgid 1337 goto release
}
}
`
}

// A usage is what processes took.
type usage struct {
	wall, cpu time.Duration
	memory    int64 // KiB, the largest
}

// measure runs commands in a namespace, one after another.
func measure(b *testing.B, n *ns.Namespace, commands ...[]string) (u usage) {
	b.Helper()
	n.Do(func() {
		for _, argv := range commands {
			cmd := exec.Command(argv[0], argv[1:]...)
			start := time.Now()
			out, err := cmd.CombinedOutput()
			u.wall += time.Since(start)
			if err != nil {
				b.Fatalf("%s: %v: %s", argv[0], err, out)
			}
			u.cpu += cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
			u.memory = max(u.memory, cmd.ProcessState.SysUsage().(*syscall.Rusage).Maxrss)
		}
	})
	return u
}

// median is the middle of what get returns.
func median(list []usage, get func(usage) float64) float64 {
	var values []float64
	for _, u := range list {
		values = append(values, get(u))
	}
	slices.Sort(values)
	return values[len(values)/2]
}

func wallOf(u usage) float64   { return float64(u.wall.Microseconds()) / 1000 }
func cpuOf(u usage) float64    { return float64(u.cpu.Microseconds()) / 1000 }
func memoryOf(u usage) float64 { return float64(u.memory) / 1024 }

// BenchmarkLists measures "outrider-agent capture" with lists of n ports and n ranges beside
// the rules by hand, in turns: each round runs each once, in a fresh namespace.
func BenchmarkLists(b *testing.B) {
	ns.RequireRoot(b)
	dir := b.TempDir()
	if err := commands.Build(b.Context(), dir, commands.Agent); err != nil {
		b.Fatal(err)
	}
	for _, n := range []int{0, 100, 1000, 10000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			ports, ranges := lists(n)
			agent := []string{filepath.Join(dir, commands.Agent), "capture", "-i", "*", "-b", "*", "-o", ports, "-x", ranges}
			script := filepath.Join(dir, "script")
			if err := os.WriteFile(script, []byte(byHand(n)), 0o600); err != nil {
				b.Fatal(err)
			}
			contenders := []struct {
				name    string
				command []string
			}{
				{"nft", []string{"nft", "-f", script}},
				{"capture", agent},
				{"without-proof", append(slices.Clip(agent), "--proof=false")},
			}
			results := make([][]usage, len(contenders))
			for range b.N {
				for i, c := range contenders {
					results[i] = append(results[i], measure(b, newTopology(b).pod, c.command))
				}
			}
			b.ReportMetric(0, "ns/op")
			for i, c := range contenders {
				b.ReportMetric(median(results[i], wallOf), "ms-"+c.name)
				b.ReportMetric(median(results[i], cpuOf), "cpu-ms-"+c.name)
				b.ReportMetric(median(results[i], memoryOf), "MiB-"+c.name)
				if i > 0 {
					b.ReportMetric(median(results[i], wallOf)/median(results[0], wallOf), "wall-ratio-"+c.name)
					b.ReportMetric(median(results[i], cpuOf)/median(results[0], cpuOf), "cpu-ratio-"+c.name)
				}
			}
		})
	}
}

// BenchmarkListedConnection measures a captured connection beside lists of n ports and n
// ranges that do not have its destination.
func BenchmarkListedConnection(b *testing.B) {
	ns.RequireRoot(b)
	const each = 200 // connections of a round
	var pods []*ns.Namespace
	sizes := []int{0, 10000}
	for _, n := range sizes {
		pod := newTopology(b).pod
		ports, ranges := lists(n)
		in := everything(nil)
		for _, f := range capture.Flags(&in, nil, nil) {
			switch f.Short {
			case "o":
				if err := f.Set(ports); err != nil {
					b.Fatal(err)
				}
			case "x":
				if err := f.Set(ranges); err != nil {
					b.Fatal(err)
				}
			}
		}
		capturing(b, pod, nftables, in)
		defer serve(b, pod, proxyUser, capture.Listener{Proto: capture.TCP, Port: contract.OutboundPort}, "proxy")()
		pods = append(pods, pod)
	}
	times := make([][]usage, len(sizes))
	for range b.N {
		for i, pod := range pods {
			start := time.Now()
			for range each {
				connected(b, app(pod))
			}
			times[i] = append(times[i], usage{wall: time.Since(start) / each})
		}
	}
	b.ReportMetric(0, "ns/op")
	for i, n := range sizes {
		b.ReportMetric(1000*median(times[i], wallOf), fmt.Sprintf("us-%d-entries", n))
	}
}
