package attack

import (
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// A row holds the measurements of one case.
type row struct {
	name, client, did string

	without, during     latencies
	before, peak, after int64 // resident memory in bytes, before, during and after the attack
	kept                glance
	dead                bool // the subject ended during the attack
	enforced            bool // the kernel enforces the memory limit

	cpu, attacker, lasted time.Duration // processor time of the subject and of the attacker; wall time
}

// latencies are the response times of an ordinary client, failed requests included.
type latencies struct {
	took     []time.Duration
	failures []string
}

func (l latencies) n() int { return len(l.took) }

// quantile returns the smallest latency l for which the share q of the requests took l or less.
func (l latencies) quantile(q float64) time.Duration {
	if l.n() == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(l.took))
	return sorted[min(l.n()-1, int(q*float64(l.n())))]
}

// aim is the desired maximum of the latency of 99 % of the ordinary requests.
const aim = 100 * time.Millisecond

func mib(n int64) float64 { return float64(n) / (1 << 20) }

func milliseconds(d time.Duration) string { return fmt.Sprintf("%.1f", float64(d)/1e6) }

// table formats the summary that the suite prints at its end.
func table(rows []row) string {
	var b strings.Builder
	out := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(out, "case\tRSS before, peak, after (MiB)\tlive kept (MiB)\tCPU of it, of the attacker (s of s)\tclient\twithout: n\tp50, p99, max (ms)\tunder attack: n\tfailed\tp50, p99, max (ms)\tp99 < "+aim.String())
	for _, r := range rows {
		peak, within := fmt.Sprintf("%.0f", mib(r.peak)), "yes"
		if r.dead {
			peak = "killed at " + peak
		}
		if r.during.quantile(0.99) >= aim {
			within = "no"
		}
		fmt.Fprintf(out, "%s\t%.0f, %s, %.0f\t%.1f\t%.1f, %.1f of %.1f\t%s\t%d\t%s\t%d\t%d\t%s\t%s\n", r.name, mib(r.before), peak, mib(r.after), mib(r.kept.live),
			r.cpu.Seconds(), r.attacker.Seconds(), r.lasted.Seconds(), r.client, r.without.n(), r.without, r.during.n(), len(r.during.failures), r.during, within)
	}
	out.Flush()
	for _, r := range rows {
		fmt.Fprintf(&b, "%s: %s\n", r.name, r.did)
	}
	return b.String()
}

func (l latencies) String() string {
	return milliseconds(l.quantile(0.5)) + ", " + milliseconds(l.quantile(0.99)) + ", " + milliseconds(l.quantile(1))
}
