package e2e

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/core/pod/podspec"
	"outrider.dev/test/cluster"
	"outrider.dev/test/e2e/world"
	"outrider.dev/test/tier"
)

// onNodes skips a case if the cluster does not run outrider-node, which needs NRI.
func onNodes(t *testing.T) {
	t.Helper()
	if !w.ByNode {
		t.Skip("the cluster's container runtime has no NRI: RUNTIME=containerd-2 brings up one that has")
	}
}

// A door is a server that the pods of a case call. It accepts only mutual TLS, and counts other connections, because
// these have bypassed a proxy.
type door struct {
	*run
	pod  *world.Pod
	past int // number of connections without mutual TLS that the test itself has made
}

// doorHost is the URL that the pods of a case call.
const doorHost = "http://door.strict/"

func (r *run) door() *door {
	r.Helper()
	d := &door{run: r}
	r.must(w.Apply(r.Context(), `{apiVersion: v1, kind: Service, metadata: {name: door, namespace: strict}, spec: {selector: {app: door}, ports: [{name: http, port: 80, targetPort: 8080}]}}`))
	d.pod = r.webhook(awesome("strict", "door", command("serve", "--stop=3s"),
		annotated("proxy.istio.io/config", "proxyStatsMatcher: {inclusionPrefixes: [listener.]}")))
	r.ready(d.pod)
	d.shut()
	return d
}

// shut fails the case if a connection, other than the test's own, has bypassed a proxy since the door's Envoy
// started. It then makes such a connection, to check that the door counts it.
func (d *door) shut() {
	d.Helper()
	before := d.count("connection_error")
	if before != d.past {
		d.Errorf("%d connections came to the door without mutual TLS, want %d", before, d.past)
	}
	if out, err := plainCall(d.run, d.pod, ":8080/"); err == nil {
		d.Errorf("the door answers a call without mutual TLS: %s", out)
	}
	if d.past = d.count("connection_error"); d.past <= before {
		d.Errorf("the door counts no connection without mutual TLS: %d", d.past)
	}
	d.Logf("the door: %d connections with mutual TLS; %d without, all by the test itself", d.count("handshake"), d.past)
}

// count returns a counter of the listeners that accept only mutual TLS. Source: envoyproxy.io,
// "Listener stats", "TLS statistics"; a first byte that does not belong to a handshake counts as
// connection_error.
func (d *door) count(name string) (n int) {
	d.Helper()
	out := d.exec(d.pod, proxy, "outrider-agent", "request", "GET", "/stats?filter=^listener\\.[0-9._]%2Bssl\\."+name+"$")
	for line := range strings.Lines(out) {
		_, value, _ := strings.Cut(line, ": ")
		n += number(value)
	}
	return n
}

// exec runs a command in a container, and returns its output. The case fails if the command does.
func (r *run) exec(p *world.Pod, container string, command ...string) string {
	r.Helper()
	out, err := w.Kubectl(r.Context(), "", append([]string{"exec", "--namespace=" + p.Namespace, p.Name, "--container=" + container, "--"}, command...)...)
	r.must(err)
	return out
}

// calls makes a pod's application call the door every 100 ms: often enough to detect a gap in the capture, and not
// too often for fifty pods.
func calls(p *corev1.Pod) {
	command("serve", "--config=http://config.centre/", "--call="+doorHost, "--every=100ms", "--stop=300ms")(p)
}

// noCommand removes the command of the application's container, so that the image's entrypoint runs.
func noCommand(p *corev1.Pod) {
	c := &p.Spec.Containers[0]
	c.Command, c.Args = nil, c.Command[1:]
}

// restricted makes an application comply with the Pod Security level "restricted".
func restricted(p *corev1.Pod) {
	p.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{AllowPrivilegeEscalation: new(bool), RunAsNonRoot: new(true),
		Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}, SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}}
}

// With outrider-node, a pod needs no privileges and no command for capture and ordering: injection adds only the
// proxy and annotations to a pod whose namespace enforces "restricted" and whose image defines the command.
func TestNodeNeedsNothingOfThePod(t *testing.T) {
	onNodes(t)
	if err := w.Namespace(t.Context(), "tight", map[string]string{contract.NamespaceLabel: "enabled", contract.PodSecurityLabel: "restricted"}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.Client.CoreV1().Namespaces().Delete(context.Background(), "tight", metav1.DeleteOptions{}) })
	for name, changes := range map[string][]change{
		"a server":           {},
		"a job":              {works(), restart(corev1.RestartPolicyNever)},
		"a volume of images": {annotated(contract.Init, contract.InitVolume), annotated(contract.Capture, "none"), annotated(contract.Start, "gate"), unmeshed},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRun(t)
			changes := append(changes, restricted)
			if name != "a volume of images" { // with an image volume the gates need the command
				changes = append(changes, noCommand)
			}
			p := r.webhook(awesome("tight", dashed("node", name), changes...))
			spec := p.Spec().Spec
			if _, byNode := podspec.NodeWork(p.Spec()); byNode == (name == "a volume of images") {
				t.Errorf("by the node: %t", byNode)
			}
			for _, c := range spec.InitContainers {
				if c.Name != proxy {
					t.Errorf("the pod has the init container %s", c.Name)
				}
			}
			if restarts := slices.ContainsFunc(spec.InitContainers, func(c corev1.Container) bool { return c.Name == proxy }); strings.Contains(name, "job") {
				if !restarts {
					t.Error("the proxy of a job is no sidecar")
				}
				if phase := r.ends(p); phase != corev1.PodSucceeded {
					t.Errorf("it ends as %s\n%s", phase, p.Describe())
				}
			} else {
				r.ready(p)
				if name == "a server" {
					r.emitted(p, "app", "called", 1)
					r.must(p.KillBelow("app", "app"))
					r.emitted(p, "app", "started", 2)
					if out := r.exec(p, "app", "/app", "work", "--call=http://server.shop/"); strings.Contains(out, "gate") || !strings.Contains(out, "done") {
						t.Errorf("exec: %s", out)
					}
				}
				r.deleted(p)
			}
			r.kept(p)
		})
	}
}

// unmeshed makes an application that makes no calls, for a pod without capture.
func unmeshed(p *corev1.Pod) { command("serve")(p) }

// The plugins of outrider-node are killed at random moments while pods start and their applications restart.
// Containers that need a plugin wait for it, start in the declared order, and make no call that bypasses the proxy.
func TestNodePluginsAreKilled(t *testing.T) {
	onNodes(t)
	kills, pods, wave := tier.Times(2, 5), tier.Times(4, 10), tier.Times(4, 5)
	if underLoad().waves > 1 {
		kills, pods, wave = 50, 200, 10
	}
	c, err := cluster.Inside(w.Dir)
	if err != nil {
		t.Fatal(err)
	}
	r := alone(t)
	r.must(c.Restart(t.Context(), "containerd")) // so that the guard runs, which allows both plugins to be killed at once
	d := r.door()
	seed := uint64(time.Now().UnixNano())
	random := rand.New(rand.NewPCG(seed, 0))
	killed := 0
	for i := 0; i < pods; i += wave {
		var killing sync.WaitGroup
		killing.Go(func() {
			for tries := 0; killed < kills*(i+wave)/pods && tries < 100; tries++ {
				time.Sleep(time.Duration(random.IntN(2000)) * time.Millisecond)
				if killPlugins(killed) {
					killed++
				}
			}
		})
		var all []*world.Pod
		for j := range wave {
			all = append(all, r.webhook(awesome("shop", fmt.Sprintf("killed-%d", i+j), calls, noCommand)))
		}
		for _, p := range all {
			r.ready(p)
			r.emitted(p, "app", "called", 1)
			r.must(p.KillBelow("app", "app"))
		}
		for _, p := range all {
			r.emitted(p, "app", "called", 2)
			r.deleted(p)
			r.kept(p)
			p.Remove(r.Context())
		}
		killing.Wait()
		if t.Failed() {
			break
		}
		r.replacePlugins()
	}
	d.shut()
	t.Logf("%d pods, %d kills, seed %d", pods, killed, seed)
	if killed < kills {
		t.Errorf("killed %d times, want %d", killed, kills)
	}
}

// The daemon of the node puts a pod's capture back each time that it is removed, and the pod's calls go through the
// proxy again.
func TestNodeRepairsCaptures(t *testing.T) {
	onNodes(t)
	r := alone(t)
	d := r.door()
	for _, mode := range []string{"REDIRECT", "TPROXY"} {
		p := r.webhook(awesome("shop", dashed("repaired", strings.ToLower(mode)), command("serve"), annotated("sidecar.istio.io/interceptionMode", mode)))
		r.ready(p)
		repairs := func() (n int) {
			for _, node := range plugins() {
				n += node.Wrote("node", "capture repaired", p.Name) + node.Wrote("standby", "capture repaired", p.Name)
			}
			return n
		}
		for i := 1; i <= tier.Times(2, 20); i++ { // more than 30 within ten minutes would be repaired later
			out, err := exec.CommandContext(r.Context(), "nsenter", "--target", strconv.Itoa(p.PID("")), "--net", "nft", "flush", "ruleset").CombinedOutput()
			if err != nil {
				r.Fatalf("%v: %s", err, out)
			}
			r.until(p, fmt.Sprintf("its capture is repaired for the %dth time", i), func() bool { return repairs() >= i })
			r.exec(p, "app", "/app", "work", "--call="+doorHost)
		}
		r.deleted(p)
		r.kept(p)
	}
	d.shut()
}

// plugins returns the pods of outrider-node.
func plugins() []*world.Pod {
	return slices.DeleteFunc(w.In("outrider-system"), func(p *world.Pod) bool { return !strings.HasPrefix(p.Spec().GenerateName, "outrider-node") })
}

// killPlugins kills containers of outrider-node. n selects one of the two or, for every third n, both. It reports
// whether a container was running.
func killPlugins(n int) (killed bool) {
	for _, p := range plugins() {
		for _, name := range []string{"node", "standby"} {
			if pid := p.PID(name); pid > 0 && (n%3 == 2 || (n%3 == 0) == (name == "node")) {
				killed = syscall.Kill(pid, syscall.SIGKILL) == nil || killed
			}
		}
	}
	return killed
}

// replacePlugins deletes the pods of outrider-node of which a container was killed more than twice, and the
// DaemonSet creates new ones. Without this, the kubelet would wait for minutes before it restarts the container.
func (r *run) replacePlugins() {
	r.Helper()
	for _, p := range plugins() {
		if p.Restarts("node") > 2 || p.Restarts("standby") > 2 {
			r.must(p.StartDelete(r.Context()))
		}
	}
}

// Pods start in the declared order while the container runtime is killed and restarted.
func TestRuntimeRestartsUnderNodeMode(t *testing.T) {
	onNodes(t)
	c, err := cluster.Inside(w.Dir)
	if err != nil {
		t.Fatal(err)
	}
	r := alone(t)
	var all []*world.Pod
	for i := range tier.Times(2, 4) {
		all = append(all, r.webhook(awesome("shop", fmt.Sprintf("runtime-%d", i), noCommand)))
	}
	r.must(c.Restart(t.Context(), "containerd"))
	for _, p := range all {
		r.ready(p)
	}
	after := r.webhook(awesome("shop", "runtime-after", noCommand))
	r.ready(after)
	for _, p := range append(all, after) {
		r.deleted(p)
		r.kept(p)
	}
}

// When the node has lost power and boots again, the applications of its pods start only after their proxies, although
// the kubelet starts before the plugins.
func TestNodeRebootsUnderNodeMode(t *testing.T) {
	onNodes(t)
	c, err := cluster.Inside(w.Dir)
	if err != nil {
		t.Fatal(err)
	}
	reboots := tier.Times(1, 2)
	if underLoad().waves > 1 {
		reboots = 20
	}
	r := alone(t)
	d := r.door()
	var pods []*world.Pod
	for i := range tier.Times(2, 3) {
		pods = append(pods, r.webhook(awesome("shop", fmt.Sprintf("reboot-%d", i), calls, noCommand)))
	}
	for _, p := range pods {
		r.ready(p)
	}
	for n := range reboots {
		before := d.pod.Restarts(proxy)
		r.must(c.Reboot(t.Context()))
		d.past = 0 // the reboot has reset the counters of the door's Envoy
		for _, p := range pods {
			r.emitted(p, "app", "called", n+2)
		}
		r.until(d.pod, "the door is back", func() bool { return d.pod.Restarts(proxy) > before && d.pod.Ready() })
		d.shut()
		t.Logf("reboot %d", n+1)
	}
	for _, p := range pods {
		for _, got := range p.Records("app") {
			if got.Event == "config" && got.Values["result"] != "ok" {
				t.Errorf("the first call of a run: %v\n%s", got, p.Describe())
			}
		}
		r.ready(p)
		r.deleted(p)
		r.ordered(p) // r.kept would fail, because the reboot cuts the calls in flight
		if _, refused := r.entry.tally(p); refused > 0 {
			t.Errorf("%d refused\n%s", refused, p.Describe())
		}
	}
}

// nodeAsBefore fails the case if outrider-node left anything on the node. TestUninstallUnderLoad calls it.
func (r *run) nodeAsBefore() {
	r.Helper()
	const pods = "10-pods.conflist" // the file that test/cluster writes
	was, err := os.ReadFile(filepath.Join(w.Dir, "conf", "cni.conflist"))
	r.must(err)
	files, err := filepath.Glob("/etc/cni/net.d/*")
	r.must(err)
	for _, file := range files {
		if is, err := os.ReadFile(file); err != nil || filepath.Base(file) != pods || !bytes.Equal(is, was) {
			r.Errorf("%s: %v\n%s\nwant %s alone, as it was:\n%s", file, err, is, pods, was)
		}
	}
	for _, pattern := range []string{"/opt/cni/bin/outrider*", "/opt/nri/plugins/*", contract.NodeAgentsDir + "/*", contract.NodeStatesDir + "/*", contract.NodeRunDir} {
		if left, err := filepath.Glob(pattern); err != nil || len(left) > 0 {
			r.Errorf("%q is left: %v", left, err)
		}
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	r.must(err)
	if strings.Contains(string(mounts), contract.NodeStatesDir+"/") {
		r.Errorf("states are mounted:\n%s", mounts)
	}
	nodes, err := w.Client.CoreV1().Nodes().List(r.Context(), metav1.ListOptions{})
	r.must(err)
	for _, n := range nodes.Items {
		for key := range n.Labels { // any order: each label is checked
			if strings.HasPrefix(key, contract.Prefix) {
				r.Errorf("the node has the label %s", key)
			}
		}
		for _, taint := range n.Spec.Taints {
			if strings.HasPrefix(taint.Key, contract.Prefix) {
				r.Errorf("the node has the taint %s", taint.Key)
			}
		}
	}
	for _, p := range w.RunningTiers() {
		rules, err := exec.CommandContext(r.Context(), "nsenter", "--target", strconv.Itoa(p.PID("")), "--net", "nft", "list", "ruleset").CombinedOutput()
		if err != nil || len(bytes.TrimSpace(rules)) > 0 {
			r.Errorf("%s: rules are left: %v\n%s", p.Name, err, rules)
		}
	}
	r.Logf("the node is as before: %d files of the network's configuration, %d pods without a rule", len(files), len(w.RunningTiers()))
}

// A RuntimeClass may run a pod in a VM with its own kernel, in which the rules of the node have no effect. The
// containers of such a pod are refused, and its status shows the reason.
func TestNodeRefusesAnotherKernel(t *testing.T) {
	onNodes(t)
	class := &nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: "other"}, Handler: "other"}
	if _, err := w.Client.NodeV1().RuntimeClasses().Create(t.Context(), class, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		w.Client.NodeV1().RuntimeClasses().Delete(context.Background(), "other", metav1.DeleteOptions{})
	})
	r := newRun(t)
	p := r.webhook(awesome("shop", "another-kernel", noCommand, func(p *corev1.Pod) { p.Spec.RuntimeClassName = &class.Name }))
	r.until(p, "refused", func() bool {
		status, _ := p.Status()
		return slices.ContainsFunc(slices.Concat(status.InitContainerStatuses, status.ContainerStatuses), func(c corev1.ContainerStatus) bool {
			return c.State.Waiting != nil && strings.Contains(c.State.Waiting.Message, `handler "other" may run the pod on another kernel`)
		})
	})
	r.deleted(p)
}
