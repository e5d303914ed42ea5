package storm

import (
	"context"
	"flag"
	"os"
	"path/filepath"
	"testing"
	"time"

	"outrider.dev/build/commands"
	"outrider.dev/internal/core/controlplane/ca"
	"outrider.dev/test/fleet"
	"outrider.dev/test/process"
	"outrider.dev/test/tier"
)

var (
	proxies = flag.Int("proxies", tier.Times(600, 5000), "how many proxies connect")
	kills   = flag.Int("kills", tier.Times(1, 3), "how often the control plane is killed")
)

const (
	services, uses = 1000, 10
	// mostMemory is the maximum of outriderd's memory divided by the number of proxies, in KiB. This
	// includes the memory for the mesh.
	mostMemory = 100
)

// All proxies reconnect after each start of the control plane. None needs many more attempts than the others, and no
// connection is closed because of a limit.
func TestStorm(t *testing.T) {
	dir := t.TempDir()
	mesh, state := filepath.Join(dir, "mesh"), filepath.Join(dir, "state")
	if err := os.Mkdir(mesh, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := fleet.WriteFolder(mesh, services, *proxies); err != nil {
		t.Fatal(err)
	}
	authority, err := ca.NewAuthority(t.Context(), ca.AuthorityOptions{Store: ca.Directory(filepath.Join(state, "ca")), TrustDomain: fleet.TrustDomain})
	if err != nil {
		t.Fatal(err)
	}
	all, err := fleet.New(fleet.Options{Proxies: *proxies, Services: services, Uses: uses, Authority: authority})
	if err != nil {
		t.Fatal(err)
	}
	binary, err := commands.Given(context.Background(), "", dir, commands.ControlPlane)
	if err != nil {
		t.Fatal(err)
	}
	server := &fleet.Server{Binary: binary, Mesh: mesh, State: state, Log: filepath.Join(dir, "log")}
	start := func() (before float64) {
		t.Helper()
		if err := server.Start(); err != nil {
			t.Fatal(err)
		}
		return server.Resident()
	}
	before, spent := start(), server.Spent()
	t.Cleanup(func() { server.Kill() })
	came, err := all.Connect(server.Address)
	t.Cleanup(all.Disconnect)
	if err != nil {
		t.Fatal(err, server.LastLog())
	}
	check(t, "all connect", server, all, came, before, spent)
	for range *kills {
		server.Kill()
		time.Sleep(2 * time.Second) // so that all proxies wait before their next attempt, for different times
		came := all.Expected()
		before, spent := start(), server.Spent()
		if err := all.Await(came); err != nil {
			t.Fatal(err, server.LastLog())
		}
		check(t, "after a kill", server, all, came, before, spent)
	}
}

const kib = 1 << 10

func check(t *testing.T, what string, server *fleet.Server, all *fleet.Fleet, came *fleet.Arrivals, before float64, spent time.Duration) {
	t.Helper()
	n := float64(*proxies)
	cpu := server.Spent() - spent
	var m map[string]float64
	var memory float64
	// A second after the last connection, outriderd returns the memory that it needed only during the storm. It may
	// notice the end of a connection later than the client, so the number of streams may be too large at first.
	settled := func() bool {
		var err error
		if m, err = server.Metrics(); err != nil {
			t.Fatal(err, server.LastLog())
		}
		memory = (server.Resident() - before) / kib / n
		return m["go_memstats_last_gc_time_seconds"] > came.End()+1 && memory <= mostMemory && m["outriderd_xds_streams"] == n
	}
	for end := time.Now().Add(process.Patience); !settled() && time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
	}
	most, sum := int64(0), int64(0)
	for _, p := range all.Proxies {
		most, sum = max(most, p.Attempts()), sum+p.Attempts()
	}
	refused := func(reason string) float64 { return m[`outriderd_connections_refused_total{reason="`+reason+`"}`] }
	t.Logf("%s: %d proxies have their configuration, the first after %s, half of them after %s, all after %s; %d attempts, at most %d of one; outriderd spent %.2f ms of a processor for each",
		what, *proxies, came.First().Round(time.Millisecond), came.Median().Round(time.Millisecond), came.Last().Round(time.Millisecond), sum, most, float64(cpu)/float64(time.Millisecond)/n)
	t.Logf("  KiB a proxy: %.0f resident, %.0f live heap, %.0f more that its spans have, %.0f stacks; peak %.0f MiB, before the proxies %.0f MiB; closed by their client before their turn: %.0f",
		memory, m["go_memstats_alloc_bytes"]/kib/n, (m["go_memstats_heap_inuse_bytes"]-m["go_memstats_alloc_bytes"])/kib/n, m["go_memstats_stack_inuse_bytes"]/kib/n, server.Peak()/kib/kib, before/kib/kib, refused("gone"))
	if streams := m["outriderd_xds_streams"]; streams != n {
		t.Errorf("%s: %v streams, want %v", what, streams, n)
	}
	for _, reason := range []string{"anonymous", "client", "rate", "calls", "bytes"} {
		if refused(reason) > 0 {
			t.Errorf("%s: %v connections refused, reason %q", what, refused(reason), reason)
		}
	}
	// Compare with the mean, because on a slow machine all proxies need more attempts: answers take longer than the
	// time limit of an attempt.
	if mean := float64(sum) / n; float64(most) > 2*mean+1 {
		t.Errorf("%s: a proxy needed %d attempts, and all %.1f on the average: it was starved", what, most, mean)
	}
	if memory > mostMemory {
		t.Errorf("%s: %.0f KiB a proxy, want at most %d", what, memory, mostMemory)
	}
}
