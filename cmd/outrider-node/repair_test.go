package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/containerd/nri/pkg/api"
	"golang.org/x/sys/unix"

	"outrider.dev/build/commands"
	"outrider.dev/internal/base/contract"
	"outrider.dev/test/ns"
	"outrider.dev/test/process"
	"outrider.dev/test/tier"
)

// A captured is a pod with a proxy and an application, and a node with a service and a caller. Each listener says its
// name to who connects.
type captured struct {
	id           string
	transparent  bool // it is captured in TPROXY mode
	pod, node    *ns.Namespace
	proxied, not atomic.Int64 // calls of the load
}

func (n *aNode) captured(id string, transparent bool) *captured {
	n.t.Helper()
	p := &captured{id: id, transparent: transparent, node: ns.New(n.t)}
	p.pod = ns.New(n.t)
	p.node.IP("link", "add", "pod0", "type", "veth", "peer", "name", "eth0", "netns", p.pod.Path())
	p.pod.IP("addr", "add", "10.9.0.2/24", "dev", "eth0")
	p.node.IP("addr", "add", "10.9.0.1/24", "dev", "pod0")
	p.pod.IP("link", "set", "eth0", "up")
	p.node.IP("link", "set", "pod0", "up")
	p.pod.IP("route", "add", "default", "via", "10.9.0.1")
	says(n.t, p.node, 0, "0.0.0.0:80", "service", false)
	says(n.t, p.pod, 0, "0.0.0.0:8080", "application", false)
	says(n.t, p.pod, int(contract.ProxyUser), "0.0.0.0:15001", "proxy", false)
	says(n.t, p.pod, int(contract.ProxyUser), "0.0.0.0:15006", "proxy", transparent)
	return p
}

// says listens in a namespace, as a user, and writes a name to each connection.
func says(t *testing.T, in *ns.Namespace, user int, address, name string, transparent bool) {
	t.Helper()
	in.As(user, user, func() {
		lc := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) (err error) {
			if transparent {
				_ = c.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_IP, unix.IP_TRANSPARENT, 1) })
			}
			return err
		}}
		l, err := lc.Listen(context.Background(), "tcp4", address)
		if err != nil {
			t.Error(err)
			return
		}
		t.Cleanup(func() { l.Close() })
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				_, _ = io.WriteString(c, name)
				c.Close()
			}
		}()
	})
}

// call returns the name of who answers, or an error, as when rules that are about to change let a first packet wait.
// The caller's thread is in a namespace.
func call(address string) string {
	c, err := net.DialTimeout("tcp4", address, 100*time.Millisecond) // time limit: one try of several
	if err != nil {
		return err.Error()
	}
	defer c.Close()
	// A reset instead of a last handshake: calls by the thousand must not use up the ports.
	_ = c.(*net.TCPConn).SetLinger(0)
	_ = c.SetDeadline(time.Now().Add(time.Second)) // time limit: one try of several
	text, _ := io.ReadAll(c)
	return string(text)
}

// inPlace reports whether calls in both directions reach the proxy, and the routing for transparent calls is there.
func (p *captured) inPlace() bool {
	var out, in string
	p.pod.Do(func() { out = call("10.9.0.1:80") })
	p.node.Do(func() { in = call("10.9.0.2:8080") })
	if out != "proxy" || in != "proxy" {
		return false
	}
	if !p.transparent {
		return true
	}
	is := false
	p.pod.Do(func() {
		is = exec.Command("sh", "-c", "ip rule | grep -q 'fwmark.*lookup 133' && ip route show table 133 | grep -q local").Run() == nil
	})
	return is
}

// load calls the service from the pod until the returned function is called.
func (p *captured) load() (stop func()) {
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		p.pod.Do(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				switch call("10.9.0.1:80") {
				case "proxy":
					p.proxied.Add(1)
				case "service":
					p.not.Add(1)
				}
			}
		})
	}()
	return func() { close(done); <-ended }
}

// serveBy starts a daemon whose agents capture with these flags, as by another backend than the first one that works.
func (n *aNode) serveBy(flags string) *serving {
	n.t.Helper()
	if flags == "" {
		return n.serve()
	}
	path := n.path("agent-with-flags")
	n.write(path, "#!/bin/sh\nc=$1; shift\nexec "+filepath.Join(n.bin, commands.Agent)+" $c \"$@\" "+flags+"\n")
	if err := os.Chmod(path, 0o755); err != nil {
		n.t.Fatal(err)
	}
	return n.serve("--agent=" + path)
}

// In each mode, rules and routing that something removes from running pods are there again, by the daemon alone.
func TestCapturesAreRepaired(t *testing.T) {
	const transparent = "TPROXY"
	for name, tt := range map[string]struct {
		agent, mode string
		flush       []string
	}{
		"nftables":              {"", "REDIRECT", []string{"nft flush ruleset", "nft add table inet outrider '{ flags dormant; }'", "nft flush table inet outrider"}},
		"nftables, transparent": {"", transparent, []string{"nft flush ruleset", "ip rule del lookup 133", "ip route flush table 133", "nft delete table inet outrider"}},
		"iptables-nft":          {"--backend=iptables --force-iptables-binary=nft", "REDIRECT", []string{"iptables-nft -t nat -F", "nft flush ruleset", "iptables-nft -t nat -F PREROUTING; iptables-nft -t nat -F OUTPUT"}},
		"iptables-legacy":       {"--backend=iptables --force-iptables-binary=legacy", "REDIRECT", []string{"iptables-legacy -t nat -F", "iptables-legacy -t nat -F PREROUTING; iptables-legacy -t nat -F OUTPUT"}},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			d := n.serveBy(tt.agent)
			n.awaitServing(d)
			pods := tier.Times(1, 10)
			flushes := tier.Times(len(tt.flush), 10) // of each pod: fewer than it gets repairs at once
			var took []time.Duration
			var proxied, not int64
			for i := range pods {
				p := n.captured("pod"+strconv.Itoa(i), tt.mode == transparent)
				if out, err := n.add(p.id, p.pod.Path(), "-m", tt.mode); err != nil {
					t.Fatalf("%v: %s", err, out)
				}
				process.Eventually(t, "the pod is captured", p.inPlace, d)
				repairs := func() int { return strings.Count(d.Log(), `"msg":"capture repaired","pod":"shop/`+p.id+`"`) }
				if n := repairs(); n != 0 {
					t.Fatalf("the pod is captured after %d repairs", n)
				}
				stop := p.load()
				for f := range flushes {
					script, before := tt.flush[f%len(tt.flush)], repairs()
					began := time.Now()
					p.pod.Sh(script)
					process.Eventually(t, "the capture is in place again after "+script, p.inPlace, d)
					took = append(took, time.Since(began))
					process.Eventually(t, "the repair is in the log", func() bool { return repairs() > before }, d)
				}
				stop()
				proxied, not = proxied+p.proxied.Load(), not+p.not.Load()
			}
			slices.Sort(took)
			t.Logf("%d times, 100 with OUTRIDER_NIGHTLY=1, repaired after %s, median %s, at most %s; calls by the proxy %d, past it %d",
				len(took), took[0], took[len(took)/2], took[len(took)-1], proxied, not)
		})
	}
}

const anyAddress = "--metrics-address=127.0.0.1:0"

var metricsAddress = regexp.MustCompile(`"msg":"metrics","address":"([^"]*)"`)

// metric returns a number that the daemon serves.
func (p *serving) metric(name string) string {
	at := metricsAddress.FindStringSubmatch(p.Log())
	if at == nil {
		return "no metrics yet"
	}
	res, err := http.Get("http://" + at[1] + "/metrics")
	if err != nil {
		return err.Error()
	}
	defer res.Body.Close()
	text, _ := io.ReadAll(res.Body)
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, name+" "); ok {
			return strings.TrimSpace(value)
		}
	}
	return "none: " + string(text)
}

// Rules of another program that take the traffic are reported, until they are gone. Those that do not take it are no repairs.
func TestOthersRules(t *testing.T) {
	n := newNode(t)
	d := n.serve(anyAddress)
	n.awaitServing(d)
	p := n.captured("4f", false)
	if out, err := n.add(p.id, p.pod.Path()); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	p.pod.Sh("for i in $(seq 40); do ip rule add from 10.8.0.1 lookup main; ip rule del from 10.8.0.1 lookup main; done")
	for table, rules := range map[string]string{
		"ip first": "add chain ip first o { type nat hook output priority -150; }; add rule ip first o meta l4proto tcp redirect to :9",
		"inet raw": "add chain inet raw o { type filter hook output priority -300; }; add rule inet raw o meta l4proto tcp notrack",
	} {
		p.pod.Sh("nft 'add table " + table + "; " + rules + "'")
		process.Eventually(t, "it is counted", func() bool { return d.metric("outrider_node_captures_not_in_place") == "1" }, d)
		if !strings.Contains(d.Log(), "another program's rules take the traffic: table "+table) {
			t.Errorf("the log does not name table %s: %s", table, d.Log())
		}
		p.pod.Sh("nft delete table " + table)
		process.Eventually(t, "it is in place again", func() bool { return d.metric("outrider_node_captures_not_in_place") == "0" }, d)
	}
	if n := strings.Count(d.Log(), "capture not in place"); n != 2 {
		t.Errorf("it is reported %d times: %s", n, d.Log())
	}
}

// A container that removes its pod's rules all the time gets a limited number of repairs, is reported, and delays no
// other pod. Another one, that locks its namespace, is reported too, until it no longer does.
func TestHostileContainers(t *testing.T) {
	n := newNode(t)
	d := n.serve(anyAddress)
	n.awaitServing(d)
	flushing, locking, other := n.captured("flushing", false), n.captured("locking", false), n.captured("other", false)
	for _, p := range []*captured{flushing, locking, other} {
		if out, err := n.add(p.id, p.pod.Path()); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	lock, err := os.Open(locking.pod.Path())
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	flush := func(p *captured) {
		p.pod.Do(func() { _ = exec.Command("nft", "flush", "ruleset").Run() })
	}
	flush(locking)
	began, done, ended := time.Now(), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			flush(flushing)
			// In the nightly run it flushes while the agent writes, too, so that repairs fail.
			for again := tier.Nightly(); !again; again = flushing.inPlace() {
				select {
				case <-done:
					return
				case <-time.After(time.Millisecond):
				}
			}
			select {
			case <-done:
				return
			default:
			}
		}
	}()
	for _, p := range []*captured{flushing, locking} {
		process.Eventually(t, p.id+" is reported", func() bool {
			return strings.Contains(d.Log(), `"msg":"capture not in place","pod":"shop/`+p.id+`","sandbox":"`+p.id+`","code":"capture-not-in-place"`)
		}, d)
	}
	process.Eventually(t, "both are counted", func() bool { return d.metric("outrider_node_captures_not_in_place") == "2" }, d)
	for range 3 {
		flushed := time.Now()
		flush(other)
		process.Eventually(t, "another pod is repaired", other.inPlace, d)
		t.Logf("another pod is repaired after %s", time.Since(flushed).Round(time.Millisecond))
	}
	lock.Close()
	process.Eventually(t, "the one that locked is repaired", locking.inPlace, d)
	process.Eventually(t, "its repair is counted", func() bool { return d.metric("outrider_node_captures_not_in_place") == "1" }, d)
	close(done)
	<-ended
	repairs := strings.Count(d.Log(), `"msg":"capture repaired","pod":"shop/flushing"`)
	t.Logf("%d repairs of the one that flushes", repairs)
	if most := 31 + int(time.Since(began)/time.Minute); repairs > most {
		t.Errorf("its limit is %d", most)
	}
}

// A daemon that starts repairs what was removed while none ran, and watches the pods of the previous one. It lets go
// of a sandbox that ends.
func TestRestartAndEnd(t *testing.T) {
	n := newNode(t)
	d := n.serve()
	n.awaitServing(d)
	p := n.captured("4f", false)
	if out, err := n.add(p.id, p.pod.Path()); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	n.mu.Lock()
	n.sandboxes = []*api.PodSandbox{{Id: p.id, Name: "web", Namespace: "shop", Annotations: map[string]string{contract.NodeAnnotation: contract.NodeWork{Capture: []string{"-i", "*", "-b", "*"}}.String()},
		Linux: &api.LinuxPodSandbox{Namespaces: []*api.LinuxNamespace{{Type: "network", Path: p.pod.Path()}}}}}
	n.mu.Unlock()
	d.Kill()
	flush := func() { p.pod.Do(func() { _ = exec.Command("nft", "flush", "ruleset").Run() }) }
	flush()
	d = n.serve(anyAddress)
	for range 2 {
		process.Eventually(t, "the capture is in place again", p.inPlace, d)
		process.Eventually(t, "it is watched", func() bool { return d.metric("outrider_node_captures") == "1" }, d)
		flush()
	}
	process.Eventually(t, "it is repaired again", p.inPlace, d)
	if out, err := n.cni("DEL", p.id, p.pod.Path(), []string{"-i", "*"}); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if got := d.metric("outrider_node_captures"); got != "0" {
		t.Errorf("after the sandbox has ended, %s are watched", got)
	}
	flush()
	n.awaitServing(d)
	d.stop(t)
	if !strings.Contains(d.Log(), fmt.Sprintf(`"pod":"shop/web","sandbox":%q`, p.id)) {
		t.Errorf("the log does not name the pod: %s", d.Log())
	}
}

// The log of the nightly run has the cost of watching idle pods.
func TestCostOfWatching(t *testing.T) {
	if !tier.Nightly() {
		t.Skip("it measures, with OUTRIDER_NIGHTLY=1")
	}
	for _, backend := range []string{"", "--backend=iptables --force-iptables-binary=legacy"} {
		n := newNode(t)
		d := n.serveBy(backend)
		n.awaitServing(d)
		made := 0
		for _, pods := range []int{0, 50, 250} {
			for ; made < pods; made++ {
				if out, err := n.add("pod"+strconv.Itoa(made), ns.Pod(t).Path()); err != nil {
					t.Fatalf("%v: %s", err, out)
				}
			}
			const interval = 20 * time.Second
			time.Sleep(interval / 4) // until the collector has run, and the second look at each capture by iptables
			before := process.Spent(d.PID())
			time.Sleep(interval)
			used := process.Spent(d.PID()) - before
			sockets, _ := os.ReadDir("/proc/" + strconv.Itoa(d.PID()) + "/fd")
			threads, _ := os.ReadDir("/proc/" + strconv.Itoa(d.PID()) + "/task")
			t.Logf("%d pods %s: %.2f%% of a core, %d descriptors, %d threads", pods, backend, 100*used.Seconds()/interval.Seconds(), len(sockets), len(threads))
			d.logMemory(t)
		}
		d.Kill()
	}
}
