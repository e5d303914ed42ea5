package netns

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"outrider.dev/internal/core/capture"
	"outrider.dev/internal/core/capture/trace"
	"outrider.dev/test/ns"
	"outrider.dev/test/process"
)

// campaign returns the size n of a randomized test, and a function that returns a random generator. The size is the
// value of the environment variable with the given name; the default is the argument small. "make campaign" runs the
// long form. OUTRIDER_KILLS is the number of captures that are killed for each backend, and OUTRIDER_ROUNDS the
// number of times that 20 captures are started at once. With OUTRIDER_SEED, the seed that a run has logged, the run
// is repeated.
func campaign(t *testing.T, name string, small int) (n int, random func(stream int) *rand.Rand) {
	t.Helper()
	n = int(number(t, name, uint64(small)))
	seed := number(t, "OUTRIDER_SEED", rand.Uint64())
	t.Logf("%s=%d OUTRIDER_SEED=%d", name, n, seed)
	return n, func(stream int) *rand.Rand { return rand.New(rand.NewPCG(seed, uint64(stream))) }
}

var agentBinary = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "outrider-netns-")
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "outrider-agent")
	if out, err := exec.Command("go", "build", "-o", path, "outrider.dev/cmd/outrider-agent").CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	return path, nil
})

func TestMain(m *testing.M) {
	flag.Set("test.parallel", "12") // a value on the command line overrides this
	code := m.Run()
	if path, err := agentBinary(); err == nil {
		os.RemoveAll(filepath.Dir(path))
	}
	os.Exit(code)
}

// A run is a process of the command "outrider-agent capture" in a pod.
type run struct {
	*process.Process
	out, err bytes.Buffer
}

func start(t *testing.T, pod *ns.Namespace, args ...string) *run {
	t.Helper()
	path, err := agentBinary()
	if err != nil {
		t.Fatal(err)
	}
	r := &run{}
	cmd := exec.Command(path, append([]string{"capture"}, args...)...)
	cmd.Stdout, cmd.Stderr = &r.out, &r.err
	r.Process = process.Start(t, cmd, process.Options{In: pod.Do})
	return r
}

func agent(t *testing.T, pod *ns.Namespace, args ...string) string {
	t.Helper()
	r := start(t, pod, args...)
	if r.Exit() != 0 {
		t.Fatalf("capture %s: %s%s", strings.Join(args, " "), &r.out, &r.err)
	}
	return r.out.String()
}

// kernelState returns all of Outrider's kernel state in a pod, as nft, iptables-save and ip list it.
func kernelState(t *testing.T, pod *ns.Namespace) (rules, routing string) {
	t.Helper()
	rules = saved(t, pod, "iptables-nft") + "\n--\n" + saved(t, pod, "iptables-legacy") + "\n--\n"
	pod.Do(func() {
		if strings.Contains(command(t, "nft", "list", "tables"), "inet outrider") {
			rules += command(t, "nft", "-s", "-t", "list", "table", "inet", "outrider")
		}
		for _, args := range []string{"-4 rule", "-6 rule", "-4 route show table 133", "-6 route show table 133", "-br addr show lo"} {
			out, _ := exec.Command("ip", strings.Fields(args)...).Output() // the command fails if the table does not exist
			routing += string(out)
		}
	})
	return generation.ReplaceAllString(rules, "outrider-"), routing
}

// generation matches the beginning of the name of an ipset set, with the letter that changes with each run.
var generation = regexp.MustCompile(`outrider-[a-z]-`)

// unlocked waits until no child process of a killed capture holds the lock on the pod's namespace.
func unlocked(t *testing.T, pod *ns.Namespace) {
	t.Helper()
	f, err := os.Open(pod.Path())
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for {
		if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err == nil {
			return
		} else if err != unix.EINTR {
			t.Fatal(err)
		}
	}
}

// probes are connections whose results show which flags the capture in effect was run with.
var probes = append(slices.Clone(ways),
	way{name: "outbound 9999 ipv4", from: fromPod, uid: 1000, dst: "10.96.0.10:9999"},
	way{name: "outbound 9999 ipv6", from: fromPod, uid: 1000, dst: "[fd96::10]:9999"})

// ends makes the probes concurrently, and returns the result of each. A probe without an answer within the time limit
// has the result "waits".
func ends(top *topology, limit time.Duration) []string {
	out := make([]string, len(probes))
	var wg sync.WaitGroup
	for i, w := range probes {
		wg.Go(func() { out[i] = ending(w.call(top, limit)) })
	}
	wg.Wait()
	return out
}

// probed makes a topology with listeners at the destinations of the probes.
func probed(t *testing.T) *topology {
	top := newTopology(t)
	settled(t, top.pod, "eth0", "virt0")
	serve(t, top.pod, 1000, trace.Listener{Proto: capture.TCP, Port: 8080}, "app")
	serve(t, top.pod, proxyUser, trace.Listener{Proto: capture.TCP, Port: 15001}, "proxy")
	serve(t, top.pod, proxyUser, trace.Listener{Proto: capture.TCP, Port: 15006, Transparent: true}, "proxy")
	for _, port := range []uint16{80, 9999} {
		serve(t, top.peer, 0, trace.Listener{Proto: capture.TCP, Port: port}, "peer")
	}
	return top
}

func (v variant) flags() []string {
	out := []string{"--backend=" + v.backend}
	if v.variant != "" {
		out = append(out, "--force-iptables-binary="+v.variant)
	}
	return out
}

// An outcome holds the kernel state and the results of the probes after a complete run.
type outcome struct {
	rules, routing string
	ends           []string
}

func observe(t *testing.T, top *topology) outcome {
	t.Helper()
	var o outcome
	o.rules, o.routing = kernelState(t, top.pod)
	o.ends = ends(top, enough)
	return o
}

// A change describes how a run would change the rules if it were not killed.
type change struct {
	name          string
	before, after []string // flags of capture; nil means no rules
}

func changesOf(v variant) []change {
	plain := []string{"-i", "*", "-b", "*", "--dual-stack", "-o", "9999"}
	other := []string{"-i", "*", "-b", "*", "--dual-stack", "-m", "TPROXY", "--redirect-dns", "-x", longList()}
	next := variants[(slices.Index(variants, v)+1)%len(variants)]
	return []change{
		{"the first", nil, slices.Concat(plain, v.flags())},
		{"other flags", slices.Concat(plain, v.flags()), slices.Concat(other, v.flags())},
		{"another backend", slices.Concat(other, next.flags()), slices.Concat(plain, v.flags())},
		{"clean", slices.Concat(plain, v.flags()), nil},
	}
}

// longList returns so many IP ranges that iptables uses a set for them.
func longList() string {
	list := []string{"172.16.0.10"}
	for i := range 40 {
		list = append(list, fmt.Sprintf("192.0.%d.0/24", 2*i), fmt.Sprintf("fd77:%x::/32", 2*i))
	}
	return strings.Join(list, ",")
}

func (c change) args() []string {
	if c.after == nil {
		return []string{"clean"}
	}
	return c.after
}

// After a capture is killed at any time, either the previous rules or the new rules are in effect, or connections
// wait. It never happens that connections are captured in one address family and not in the other. verify detects an
// incomplete state, and the next run completes it.
func TestKilledCaptures(t *testing.T) {
	ns.RequireRoot(t)
	t.Parallel()
	n, random := campaign(t, "OUTRIDER_KILLS", 4)
	for i, v := range variants {
		for j, c := range changesOf(v) {
			t.Run(v.name+", "+c.name, func(t *testing.T) {
				t.Parallel()
				k := newKiller(t, probed(t), c, random(4*i+j))
				found := map[string]int{}
				for range max(1, n/4) {
					found[k.once()]++
				}
				for _, left := range slices.Sorted(maps.Keys(found)) {
					t.Logf("%4d  %s", found[left], left)
				}
			})
		}
	}
}

// A killer kills runs that make a change. before and wanted are the outcomes without and with the change.
type killer struct {
	*testing.T
	top            *topology
	change         change
	rand           *rand.Rand
	takes          time.Duration
	before, wanted outcome
	clean          string // state of routing without rules
}

func newKiller(t *testing.T, top *topology, c change, r *rand.Rand) *killer {
	t.Helper()
	k := &killer{T: t, top: top, change: c, rand: r}
	agent(t, top.pod, "clean")
	_, k.clean = kernelState(t, top.pod)
	k.prepare()
	k.before = observe(t, top)
	begin := time.Now()
	agent(t, top.pod, c.args()...)
	k.takes = time.Since(begin)
	k.wanted = observe(t, top)
	return k
}

// prepare restores the state before the change.
func (k *killer) prepare() {
	k.Helper()
	agent(k.T, k.top.pod, "clean")
	if k.change.before != nil {
		agent(k.T, k.top.pod, k.change.before...)
	}
}

// once kills one run at a random time, checks the state that it leaves, and describes this state in a few words.
func (k *killer) once() string {
	k.Helper()
	k.prepare()
	delay := time.Duration(k.rand.Int64N(int64(k.takes) * 5 / 4))
	r := start(k.T, k.top.pod, k.change.args()...)
	time.Sleep(delay)
	r.Kill()
	ended := r.Exit()
	unlocked(k.T, k.top.pod)
	rules, routing := kernelState(k.T, k.top.pod)
	verify := start(k.T, k.top.pod, "verify")
	status := verify.Exit()
	says := verify.err.String()
	left, want := k.classify(rules, routing, says)
	switch {
	case left == "":
		k.Errorf("%s, killed after %s: verify: %d, %s\nrules:\n%s\nrouting:\n%s", k.change.name, delay, status, says, rules, routing)
		left = "something else"
	case (status == 0) != (want != ""):
		k.Errorf("%s, killed after %s: %s; verify: %d, %s%s", k.change.name, delay, left, status, &verify.out, says)
	}
	k.probe(left)
	if ended == 0 {
		left += " (it had ended)"
	}
	// Both another run and a clean must repair the state.
	if k.rand.IntN(2) == 0 {
		agent(k.T, k.top.pod, k.change.args()...)
		if got, _ := kernelState(k.T, k.top.pod); got != k.wanted.rules {
			k.Errorf("%s, killed after %s, run again: rules:\n%s\nwant:\n%s", k.change.name, delay, got, k.wanted.rules)
		}
	} else {
		agent(k.T, k.top.pod, "clean")
		if got := ours(k.T, k.top.pod); len(got) > 0 {
			k.Errorf("%s, killed after %s, cleaned: rules in %s", k.change.name, delay, got)
		}
		if _, got := kernelState(k.T, k.top.pod); got != k.clean {
			k.Errorf("%s, killed after %s, cleaned: routing:\n%s\nwant:\n%s", k.change.name, delay, got, k.clean)
		}
		k.top.pod.Do(func() {
			if sets := command(k.T, "ipset", "list", "-n"); sets != "" {
				k.Errorf("%s, killed after %s, cleaned: sets %s", k.change.name, delay, sets)
			}
		})
	}
	return left
}

// classify names the state that a killed run has left. The first result is "" for an unexpected state. If the second
// result is not empty, verify must accept the state.
func (k *killer) classify(rules, routing, says string) (left, intact string) {
	for _, o := range []struct {
		name  string
		state outcome
		flags []string
	}{{"as wanted", k.wanted, k.change.after}, {"as before", k.before, k.change.before}} {
		if rules != o.state.rules {
			continue
		}
		switch {
		case o.flags == nil && strings.Contains(says, "no rules of outrider"):
			return o.name, ""
		case strings.Contains(says, "no rule refers to set"), strings.Contains(says, "and no rules:"), strings.Contains(says, "two backends have rules"):
			return o.name + ", sets to be removed", ""
		case o.flags != nil && routing == o.state.routing:
			return o.name, o.name
		case o.flags != nil && hasLines(routing, o.state.routing):
			return o.name + ", routing to be removed", ""
		}
	}
	switch {
	case strings.Contains(says, "a capture was interrupted"), strings.Contains(says, "two backends have rules"), strings.Contains(says, "at once"):
		return "waits", ""
	}
	return "", ""
}

// hasLines reports whether the first text contains all lines of the second. It ignores the priorities of routing
// rules, because each rule gets the first priority that is free. It compares each of several addresses in a line
// separately.
func hasLines(text, other string) bool {
	lines := func(text string) []string {
		return strings.Split(ruleNumber.ReplaceAllString(strings.ReplaceAll(text, " ::6/128", "\n::6/128"), ""), "\n")
	}
	have := lines(text)
	return !slices.ContainsFunc(lines(other), func(l string) bool { return !slices.Contains(have, l) })
}

var ruleNumber = regexp.MustCompile("(?m)^[0-9]+:")

// probe makes the probes, and checks that each has the result of the previous rules or of the new rules, or waits. The
// results for IPv4 and IPv6 must be the same, unless one of the two waits.
func (k *killer) probe(left string) {
	k.Helper()
	limit := enough
	if left == "waits" { // connections of at least one family wait
		limit = short
	}
	got := ends(k.top, limit)
	for i, end := range got {
		if end != waits && end != k.before.ends[i] && end != k.wanted.ends[i] {
			k.Errorf("%s, left %s: %s ends as %q; before %q, wanted %q", k.change.name, left, probes[i], end, k.before.ends[i], k.wanted.ends[i])
		}
	}
	for i := 0; i < len(got); i += 2 { // the results of IPv4 and of IPv6 are adjacent
		if got[i] != got[i+1] && !slices.Contains(got[i:i+2], waits) {
			k.Errorf("%s, left %s: %s ends as %q, %s as %q", k.change.name, left, probes[i], got[i], probes[i+1], got[i+1])
		}
	}
	left, _, _ = strings.Cut(left, ",")
	if want := map[string][]string{"as before": k.before.ends, "as wanted": k.wanted.ends}[left]; want != nil && !slices.Equal(got, want) {
		k.Errorf("%s, left %s: connections end as %q, want %q", k.change.name, left, got, want)
	}
}

// If captures with different flags run concurrently, each that fails prints the reason. One that succeeded has
// written the resulting rules.
func TestCapturesAtOnce(t *testing.T) {
	ns.RequireRoot(t)
	const captures = 20
	t.Parallel()
	rounds, random := campaign(t, "OUTRIDER_ROUNDS", 1)
	for i, v := range variants {
		t.Run(v.name, func(t *testing.T) {
			t.Parallel()
			top, r := probed(t), random(i)
			failed, waited := 0, 0
			for range rounds {
				f, w := atOnce(t, top, v, captures, r)
				failed, waited = failed+f, waited+w
			}
			t.Logf("%d rounds of %d captures at once: %d waited, %d failed and said why", rounds, captures, waited, failed)
		})
	}
}

func atOnce(t *testing.T, top *topology, v variant, captures int, r *rand.Rand) (failed, waited int) {
	t.Helper()
	agent(t, top.pod, "clean")
	var runs []*run
	for i := range captures {
		flags := []string{"-i", "*", "-b", "*", "--dual-stack", "-o", fmt.Sprint(9990 + i), "--output=json"}
		if r.IntN(2) == 0 {
			flags = append(flags, "-m", "TPROXY")
		}
		by := v
		if r.IntN(4) == 0 { // a random backend
			by = variants[r.IntN(len(variants))]
		}
		runs = append(runs, start(t, top.pod, append(flags, by.flags()...)...))
	}
	type report struct {
		Record string `json:"record"`
	}
	good := map[string]int{}
	for i, run := range runs {
		status := run.Exit()
		if strings.Contains(run.err.String(), "waiting for") {
			waited++
		}
		var out report
		switch err := json.Unmarshal(run.out.Bytes(), &out); {
		case status == 0 && err == nil:
			good[out.Record] = i
		case status == 1 && strings.Contains(run.err.String(), "outrider-agent: error: "):
			failed++
			t.Logf("failed: %s", &run.err)
		default:
			t.Errorf("exit status %d, %q, %q", status, &run.out, &run.err)
		}
	}
	var now report
	if err := json.Unmarshal([]byte(agent(t, top.pod, "verify", "--output=json")), &now); err != nil {
		t.Fatal(err)
	}
	last, ok := good[now.Record]
	if !ok {
		t.Fatalf("what stands is %q, which is that of none that succeeded: %v", now.Record, good)
	}
	rules, _ := kernelState(t, top.pod)
	for i := range captures {
		if has := strings.Contains(rules, fmt.Sprintf("port %d is excluded", 9990+i)); has != (i == last) {
			t.Errorf("run %d stands; rules of run %d are there: %t", last, i, has)
		}
	}
	want := []string{"proxy", "proxy", "proxy", "proxy", "proxy", "proxy"}
	if 9990+last == 9999 {
		want[4], want[5] = "peer", "peer"
	}
	if got := ends(top, enough); !slices.Equal(got, want) {
		t.Errorf("connections end as %q, want %q", got, want)
	}
	return failed, waited
}
