package attack

import (
	"cmp"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"outrider.dev/test/agent/harness"
	"outrider.dev/test/process"
	"outrider.dev/test/tier"
)

var (
	long     = flag.Bool("long", false, "attack longer and with more: the form of make attack")
	attacker = flag.String("attacker", "", "be the attacker of this case; the suite starts itself so")
	at       = flag.String("victim", "", "what the attacker knows, as JSON")
)

// An attacked is a case of the suite: an attack, and the ordinary client that is measured meanwhile.
type attacked struct {
	name     string
	ordinary func(*world) client
	attack   func(context.Context, victim) (did string, err error)

	// services is the number of services in the mesh; default 100.
	services int
	// agent makes the agent of a pod the subject, instead of outriderd.
	agent bool
	// keeps is the number of bytes of live memory that may remain after the attacker has left; default keptLive.
	keeps int64
}

// all returns all cases.
func all() []attacked {
	return slices.Concat(reviews, webhookCases, certificates, connections, streams, statusPorts, identities, floods)
}

// Bounds for the resources that may stay in use after an attack, because the structures of the garbage
// collector and pools have grown, and ordinary connections are about to close. More than this is a leak.
const (
	keptLive       = 4 << 20
	keptGoroutines = 20
	keptFiles      = 10
)

// planeLimit is the memory limit of outriderd. It is a quarter of the limit in the chart, because there are few proxies.
const planeLimit = 256 << 20

// agentLimit is the memory limit of an agent without its Envoy, although both share the limit of their container in
// a cluster. A ready agent uses 13 MiB.
const agentLimit = 40 << 20

// limit returns the subject's memory limit in bytes.
func (a attacked) limit() int64 {
	if a.agent {
		return agentLimit
	}
	return planeLimit
}

// patience is the time limit within which the subject must have released everything. Only a failing test reaches it.
const patience = time.Minute

func TestMain(m *testing.M) {
	flag.Parse()
	if *attacker != "" {
		os.Exit(attackNow())
	}
	status := m.Run()
	harness.Clean()
	os.Exit(status)
}

// attackNow is the main function of the attacker's process, which SIGTERM ends together with its connections.
func attackNow() int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	var v victim
	i := slices.IndexFunc(all(), func(a attacked) bool { return a.name == *attacker })
	if err := json.Unmarshal([]byte(*at), &v); err != nil || i < 0 {
		fmt.Fprintln(os.Stderr, "no such case, or no victim:", *attacker, err)
		return 2
	}
	unlimited()
	fmt.Println(begun)
	did, err := all()[i].attack(ctx, v)
	fmt.Println(did)
	if err != nil {
		fmt.Fprintln(os.Stderr, "attacker:", err)
		return 1
	}
	return 0
}

// attackerNice is the attacker's nice value. A real attacker has processors of its own. Here it gets one
// processor at most, and a tenth of the processor that it shares with one busy process, which is enough for
// an attack.
const attackerNice = "10"

// begun is the first line that the attacker prints.
const begun = "begun"

func TestAttack(t *testing.T) {
	t.Setenv("GOMEMLIMIT", fmt.Sprint(planeLimit/10*8)) // the chart also sets it to 80 % of the container's limit
	load, _ := os.ReadFile("/proc/loadavg")
	t.Logf("limit %d MiB; load average at the start: %s", planeLimit>>20, load)
	names := []string{}
	for _, a := range all() {
		names = append(names, a.name)
	}
	chosen := tier.OneOfEach(names, func(name string) string { kind, _, _ := strings.Cut(name, ":"); return kind })
	var rows []row
	t.Cleanup(func() { t.Logf("%d of %d cases\n%s", len(rows), len(names), table(rows)) })
	for _, a := range all() {
		t.Run(a.name, func(t *testing.T) {
			if !chosen[a.name] && !*long {
				t.Skip("another case of its kind is in this run; -long and OUTRIDER_NIGHTLY=1 have all")
			}
			r := a.run(t)
			rows = append(rows, r)
			for _, complaint := range r.complaints(a) {
				t.Error(complaint)
			}
		})
	}
}

// run runs one case and returns its measurements.
func (a attacked) run(t *testing.T) row {
	w := newWorld(t, a)
	ordinary := a.ordinary(w)
	r := row{name: a.name, client: ordinary.name}

	r.without = w.measure(ordinary, inForm(5, 100), 0)
	before := w.look()
	r.before = before.resident
	w.resetPeak()
	spent := w.spent()

	v, err := json.Marshal(w.victim())
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	hostile := w.attacker.Program("attacker", "/usr/bin/nice", "-n", attackerNice, "/usr/bin/env", "GOMAXPROCS=1", self, "-attacker", a.name, "-victim", string(v))
	process.Eventually(t, "the attacker has begun", func() bool { return strings.Contains(hostile.Log(), begun) }, hostile)
	began := time.Now()
	r.during = w.measure(ordinary, inForm(15, 500), inForm(700*time.Millisecond, 20*time.Second))
	r.attacker = process.Spent(hostile.PID())
	hostile.Signal(syscall.SIGTERM)
	if status := hostile.Exit(); status != 0 {
		t.Errorf("the attacker ended with status %d:\n%s", status, hostile.Log())
	}
	r.cpu, r.lasted = w.spent()-spent, time.Since(began)
	_, did, _ := strings.Cut(strings.TrimSpace(hostile.Log()), begun)
	r.did = strings.TrimSpace(did)
	r.peak, r.dead, r.enforced = w.peak(), isDone(w.subject), w.group != ""
	if !r.dead {
		r.kept, r.after = w.kept(before, a)
	}
	return r
}

func isDone(p *process.Process) bool {
	select {
	case <-p.Done():
		return true
	default:
		return false
	}
}

// inForm returns its first argument in the short form of the suite, and its second argument in the long form.
func inForm[T any](short, inFull T) T {
	if *long {
		return inFull
	}
	return short
}

// complaints returns a message for each assertion that the case violated.
func (r row) complaints(a attacked) (out []string) {
	complain := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	if r.dead {
		complain("it ended: at %d MiB of the limit's %d", r.peak>>20, a.limit()>>20)
	} else if !r.enforced && r.peak > a.limit() {
		complain("it had %d MiB: the limit is %d", r.peak>>20, a.limit()>>20)
	}
	if len(r.without.failures) > 0 {
		complain("without an attack, %d of %d requests of the %s client failed: %s", len(r.without.failures), r.without.n(), r.client, r.without.failures[0])
	}
	if len(r.during.failures) > 0 {
		complain("%d of %d requests of the %s client failed: %s", len(r.during.failures), r.during.n(), r.client, r.during.failures[0])
	}
	return append(out, a.leftovers(r.kept)...)
}

// leftovers returns the resources that an attack left in use beyond the bounds.
func (a attacked) leftovers(kept glance) (out []string) {
	for _, k := range []struct {
		what      string
		has, most int64
	}{
		{"bytes of live memory", kept.live, cmp.Or(a.keeps, keptLive)},
		{"goroutines", kept.goroutines, keptGoroutines},
		{"open files", kept.files, keptFiles},
	} {
		if k.has > k.most {
			out = append(out, fmt.Sprintf("%d %s are kept after the attacker left: at most %d", k.has, k.what, k.most))
		}
	}
	return out
}

// A victim holds the facts about a world that an attacker knows.
type victim struct {
	Address   string // address of outriderd, whose ports are in package contract
	Roots     string // path of the file with the trusted roots
	Namespace string // namespace whose pods are injected
	Pod       string // address of the pod whose agent is the subject
	// State is outriderd's directory with the authority's key. The attacker uses it to make the token or
	// certificate of a workload that it is assumed to control: see holder in attackers_test.go.
	State string
	Long  bool
}
