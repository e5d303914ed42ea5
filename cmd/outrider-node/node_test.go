package main

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
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

	"github.com/containerd/nri/pkg/adaptation"
	"github.com/containerd/nri/pkg/api"
	"github.com/containernetworking/cni/libcni"
	jsonpatch "gopkg.in/evanphx/json-patch.v4"

	"outrider.dev/build/commands"
	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/core/node/cni"
	"outrider.dev/internal/core/node/daemon"
	"outrider.dev/test/ns"
	"outrider.dev/test/process"
	"outrider.dev/test/tier"
)

// aNode simulates a node: its file system, the side of NRI that a container runtime implements, and the Node in
// the API server.
type aNode struct {
	t       *testing.T
	root    string
	bin     string
	runtime *adaptation.Adaptation
	server  *httptest.Server

	mu        sync.Mutex
	object    string
	set       string // state of the DaemonSet; empty: deleted
	sandboxes []*api.PodSandbox
}

const (
	conflist = "{\n  \"cniVersion\": \"1.0.0\", \"name\": \"net\",\n  \"plugins\": [ {\"type\": \"bridge\"} ]\n}\n"
	plain    = `{"metadata":{"labels":{"zone":"a"}},"spec":{}}`
)

var build = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "outrider-node")
	if err != nil {
		return "", err
	}
	return dir, commands.Build(context.Background(), dir, commands.Node, commands.Agent)
})

func TestMain(m *testing.M) {
	// The runtime's limits are a few seconds, after which the kubelet retries; a busy machine needs
	// more.
	adaptation.SetPluginRequestTimeout(process.Patience)
	adaptation.SetPluginRegistrationTimeout(process.Patience)
	status := m.Run()
	if dir, err := build(); err == nil {
		os.RemoveAll(dir)
	}
	os.Exit(status)
}

func newNode(t *testing.T) *aNode {
	t.Helper()
	ns.RequireRoot(t)
	bin, err := build()
	if err != nil {
		t.Fatal(err)
	}
	n := &aNode{t: t, root: t.TempDir(), bin: bin, object: plain, set: `{"metadata":{}}`}
	for _, dir := range []string{"net.d", "bin", "plugins", "run", "var/run/secrets/kubernetes.io/serviceaccount"} {
		if err := os.MkdirAll(n.path(dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	n.server = httptest.NewTLSServer(n)
	t.Cleanup(n.server.Close)
	account := n.path("var/run/secrets/kubernetes.io/serviceaccount")
	root := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: n.server.Certificate().Raw})
	n.write(account+"/ca.crt", string(root))
	n.write(account+"/token", "secret-token")
	n.write(n.path("net.d/10-net.conflist"), conflist)
	n.write(n.path("runtime.toml"), "version = 3\n")
	n.startRuntime()
	t.Cleanup(func() { exec.Command("sh", "-c", "umount "+n.root+contract.NodeStatesDir+"/* 2>&-").Run() })
	return n
}

func (n *aNode) path(name string) string { return filepath.Join(n.root, name) }

func (n *aNode) write(path, text string) {
	n.t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		n.t.Fatal(err)
	}
}

func (n *aNode) startRuntime() {
	n.t.Helper()
	sync := func(ctx context.Context, each adaptation.SyncCB) error {
		n.mu.Lock()
		sandboxes := append([]*api.PodSandbox{{Id: "living"}}, n.sandboxes...)
		n.mu.Unlock()
		_, err := each(ctx, sandboxes, nil)
		return err
	}
	a, err := adaptation.New("containerd", "2.2.9", sync, func(context.Context, []*api.ContainerUpdate) ([]*api.ContainerUpdate, error) { return nil, nil },
		adaptation.WithSocketPath(n.path("nri.sock")), adaptation.WithPluginPath(n.path("plugins")), adaptation.WithPluginConfigPath(n.path("none")))
	if err == nil {
		err = a.Start()
	}
	if err != nil {
		n.t.Fatal(err)
	}
	n.runtime = a
	n.t.Cleanup(a.Stop)
}

// ServeHTTP serves as an API server with one Node and one DaemonSet.
func (n *aNode) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if r.Header.Get("Authorization") != "Bearer secret-token" {
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	switch {
	case strings.HasPrefix(r.URL.Path, "/api/v1/nodes/worker-1"):
		if r.Method == http.MethodPatch {
			body, _ := io.ReadAll(r.Body)
			merged, err := jsonpatch.MergePatch([]byte(n.object), body)
			if err != nil {
				http.Error(w, err.Error(), http.StatusBadRequest)
				return
			}
			n.object = string(merged)
		}
		_, _ = io.WriteString(w, n.object)
	case n.set == "":
		http.NotFound(w, r)
	default:
		_, _ = io.WriteString(w, n.set)
	}
}

// says returns what the Node's label and taint say: "serves", "tainted" or "".
func (n *aNode) says() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case strings.Contains(n.object, contract.NodeTaint):
		return "tainted"
	case strings.Contains(n.object, contract.NodeLabel+`":"`+contract.NodeInstalled):
		return "serves"
	}
	return ""
}

// A serving is a running "outrider-node serve".
type serving struct {
	*process.Process
	ready string
}

func (n *aNode) serve(flags ...string) *serving {
	n.t.Helper()
	ready := filepath.Join(n.t.TempDir(), "ready")
	cmd := exec.Command(filepath.Join(n.bin, commands.Node), "serve", "--root="+n.root, "--cni-conf-dir="+n.path("net.d"), "--cni-bin-dir="+n.path("bin"),
		"--nri-socket="+n.path("nri.sock"), "--nri-plugin-dir="+n.path("plugins"), "--runtime-config="+n.path("runtime.toml"), "--ready-file="+ready, "--node=worker-1", "--daemonset=outrider-system/outrider-node")
	cmd.Args = append(cmd.Args, flags...)
	host, port, _ := strings.Cut(strings.TrimPrefix(n.server.URL, "https://"), ":")
	cmd.Env = []string{"KUBERNETES_SERVICE_HOST=" + host, "KUBERNETES_SERVICE_PORT=" + port}
	return &serving{process.Start(n.t, cmd, process.Options{}), ready}
}

func exists(path string) bool { _, err := os.Stat(path); return err == nil }

func (n *aNode) configuration() string {
	text, _ := os.ReadFile(n.path("net.d/10-net.conflist"))
	return string(text)
}

func (n *aNode) awaitServing(s *serving) {
	n.t.Helper()
	process.Eventually(n.t, "the node serves", func() bool { return n.says() == "serves" && strings.Contains(n.configuration(), cni.Program) }, s)
}

func (s *serving) isReady() bool { return daemon.Ready(s.ready, false) == nil }

func (s *serving) stop(t *testing.T) {
	t.Helper()
	s.Signal(syscall.SIGINT)
	if status := s.Exit(); status != 0 {
		t.Errorf("it ends with status %d", status)
	}
}

func gateArgs() []string {
	return contract.Gate{Name: "app", After: []string{"cache is healthy"}}.Args()
}

// create makes the runtime create a container that needs a gate.
func (n *aNode) create(sandbox, namespace string) (*api.ContainerAdjustment, error) {
	work := contract.NodeWork{Containers: map[string][]string{"app": gateArgs()}}
	if namespace != "" {
		work.Capture = []string{"-i", "*", "-b", "*"}
	}
	pod := &api.PodSandbox{Id: sandbox, Name: "web", Annotations: map[string]string{contract.NodeAnnotation: work.String()},
		Linux: &api.LinuxPodSandbox{Namespaces: []*api.LinuxNamespace{{Type: "network", Path: namespace}}}}
	defer n.runtime.BlockPluginSync().Unblock()
	res, err := n.runtime.CreateContainer(n.t.Context(), &api.CreateContainerRequest{Pod: pod, Container: &api.Container{Id: "c", Name: "app", PodSandboxId: sandbox, Args: []string{"app"}}})
	return res.GetAdjust(), err
}

// add runs the installed CNI plugin for a pod that needs a capture.
func (n *aNode) add(sandbox, namespace string, flags ...string) (string, error) {
	return n.cni("ADD", sandbox, namespace, append([]string{"-i", "*", "-b", "*"}, flags...))
}

func (n *aNode) cni(command, sandbox, namespace string, flags []string) (string, error) {
	cmd := exec.Command("unshare", "--mount", "sh", "-c", "mount -t tmpfs none /run && mkdir /run/outrider && mount --bind "+n.path("run/outrider")+" /run/outrider && exec "+n.path("bin/"+cni.Program))
	cmd.Env = append(os.Environ(), "CNI_COMMAND="+command, "CNI_ARGS=IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME="+sandbox, "CNI_CONTAINERID="+sandbox, "CNI_NETNS="+namespace, "CNI_IFNAME=eth0", "CNI_PATH=/opt/cni/bin", "CNI_NETNS_OVERRIDE=1")
	in, _ := json.Marshal(map[string]any{"cniVersion": "1.0.0", "name": "net", "type": cni.Program, "prevResult": map[string]any{"cniVersion": "1.0.0"},
		"runtimeConfig": map[string]any{"io.kubernetes.cri.pod-annotations": map[string]string{contract.NodeAnnotation: contract.NodeWork{Capture: flags}.String()}}})
	cmd.Stdin = bytes.NewReader(in)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func (p *serving) logMemory(t *testing.T) {
	t.Helper()
	status, err := os.ReadFile("/proc/" + strconv.Itoa(p.PID()) + "/status")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(status)) {
		if strings.HasPrefix(line, "VmHWM") || strings.HasPrefix(line, "Rss") {
			t.Log(strings.Join(strings.Fields(line), " "))
		}
	}
}

// When many pods start at once, with and without the CNI plugin, each is captured before its first
// container starts, and has its gate.
func TestManyAtOnce(t *testing.T) {
	n := newNode(t)
	p := n.serve()
	n.awaitServing(p)
	pods := tier.Times(20, 50)
	var spaces []string
	for range pods {
		spaces = append(spaces, ns.Pod(t).Path())
	}
	began := time.Now()
	failed := make(chan error, pods)
	for i, space := range spaces {
		go func() {
			id := "pod" + strconv.Itoa(i)
			var err error
			if i%10 > 0 { // the other pods start as if the network configuration had just been written without the plugin
				var out string
				if out, err = n.add(id, space); err != nil {
					err = fmt.Errorf("%w: %s", err, out)
				}
			}
			var got *api.ContainerAdjustment
			if err == nil {
				got, err = n.create(id, space)
			}
			if err == nil && len(got.GetArgs()) == 0 {
				err = errors.New("there is no gate")
			}
			if err == nil {
				err = exec.Command(filepath.Join(n.bin, commands.Agent), "capture", "verify", "-i", "*", "-b", "*", "--network-namespace="+space).Run()
			}
			failed <- err
		}()
	}
	for range pods {
		if err := <-failed; err != nil {
			t.Error(err)
		}
	}
	t.Logf("%d pods, 50 with OUTRIDER_NIGHTLY=1, in %s", pods, time.Since(began).Round(time.Millisecond))
	p.logMemory(t)
}

// After the DaemonSet is deleted, the node is the same as before its installation.
func TestANode(t *testing.T) {
	n := newNode(t)
	p := n.serve()
	n.awaitServing(p)
	process.Eventually(n.t, "it is ready", p.isReady, p)
	pod := ns.Pod(t)
	if out, err := n.add("4f", pod.Path()); err != nil || out != `{"cniVersion":"1.0.0"}` {
		t.Fatalf("a sandbox: %s, %v", out, err)
	}
	verify := exec.Command(filepath.Join(n.bin, commands.Agent), "capture", "verify", "--network-namespace="+pod.Path())
	if out, err := verify.CombinedOutput(); err != nil {
		t.Errorf("the sandbox is not captured: %v: %s", err, out)
	}
	got, err := n.create("4f", pod.Path())
	if err != nil || !slices.Equal(got.GetArgs(), slices.Concat([]string{contract.AgentPath}, gateArgs(), []string{"app"})) {
		t.Fatalf("the container runs %q, %v", got.GetArgs(), err)
	}
	for _, m := range got.GetMounts() {
		if !exists(m.Source) || m.Destination == contract.BinDir && !exists(m.Source+"/outrider-agent") {
			t.Errorf("%s is to be mounted and is not there", m.Source)
		}
	}
	p.logMemory(t)
	if strings.Contains(p.Log(), "secret-token") {
		t.Error("the token is in the log")
	}
	// The owner rewrites the configuration.
	n.write(n.path("net.d/10-net.conflist"), strings.Replace(conflist, "net", "new", 1))
	process.Eventually(n.t, "the plugin is in the new configuration", func() bool { return strings.Contains(n.configuration(), cni.Program) })
	n.write(n.path("net.d/10-net.conflist"), conflist)
	process.Eventually(n.t, "the plugin is in it again", func() bool { return strings.Contains(n.configuration(), cni.Program) })

	// A restart of the DaemonSet keeps everything; meanwhile the taint says that the node does not
	// serve.
	p.stop(t)
	if n.says() != "tainted" || !strings.Contains(n.configuration(), cni.Program) {
		t.Errorf("after a stop the Node says %q, and the configuration is %s", n.says(), n.configuration())
	}
	if out, err := n.add("4f", pod.Path()); err == nil || !strings.Contains(out, "does not run on this node") {
		t.Errorf("a sandbox without a daemon: %s, %v", out, err)
	}
	p = n.serve()
	n.awaitServing(p)

	n.mu.Lock()
	n.set = `{"metadata":{"deletionTimestamp":"2026-01-01T00:00:00Z"}}`
	n.mu.Unlock()
	p.stop(t)
	n.mu.Lock()
	if n.object != strings.Replace(plain, `},"spec"`, `,"resourceVersion":""},"spec"`, 1) {
		t.Errorf("the Node is %s, and was %s", n.object, plain)
	}
	n.mu.Unlock()
	n.isAsItWas()
}

// The library with which runtimes call plugins passes the pod's annotations and DNS servers to our plugin,
// because the configuration declares these capabilities. The plugin returns the main plugin's result.
func TestByTheRuntimesLibrary(t *testing.T) {
	n := newNode(t)
	p := n.serve()
	n.awaitServing(p)
	const result = `{"cniVersion":"1.1.0","ips":[{"address":"10.9.0.2/24"}],"dns":{}}`
	n.write(n.path("bin/bridge"), "#!/bin/sh\ncat >/dev/null; test $CNI_COMMAND != ADD || echo '"+result+"'\n")
	if err := os.Chmod(n.path("bin/bridge"), 0o755); err != nil {
		t.Fatal(err)
	}
	n.write(n.path("net.d/10-net.conflist"), strings.Replace(conflist, "1.0.0", "1.1.0", 1))
	process.Eventually(n.t, "the plugin is in the configuration", func() bool { return strings.Contains(n.configuration(), cni.Program) })
	list, err := libcni.NetworkConfFromFile(n.path("net.d/10-net.conflist"))
	if err != nil {
		t.Fatal(err)
	}
	call := libcni.NewCNIConfigWithCacheDir([]string{n.path("bin")}, t.TempDir(), nil)
	run := func(annotations map[string]string) (string, error) {
		rt := &libcni.RuntimeConf{ContainerID: "4f", NetNS: ns.Pod(t).Path(), IfName: "eth0", Args: [][2]string{{"IgnoreUnknown", "1"}, {"K8S_POD_NAME", "web"}},
			CapabilityArgs: map[string]any{"io.kubernetes.cri.pod-annotations": annotations, "dns": map[string]any{"Servers": []string{"10.96.0.10"}}, "portMappings": []string{}}}
		got, err := call.AddNetworkList(t.Context(), list, rt)
		if err != nil {
			return "", err
		}
		var text bytes.Buffer
		err = errors.Join(got.PrintTo(&text), call.CheckNetworkList(t.Context(), list, rt), call.DelNetworkList(t.Context(), list, rt))
		return text.String(), err
	}
	if got, err := run(map[string]string{"a": "b"}); err != nil || !strings.Contains(got, "10.9.0.2/24") {
		t.Errorf("a pod that is not in the mesh: %s, %v", got, err)
	}
	if err := call.GetStatusNetworkList(t.Context(), list); err != nil {
		t.Errorf("the status of the network: %v", err)
	}
	// On the test's machine no daemon listens at the plugin's path.
	if got, err := run(map[string]string{contract.NodeAnnotation: "{}"}); err == nil || !strings.Contains(err.Error(), "does not run on this node") {
		t.Errorf("a pod that is in the mesh: %s, %v", got, err)
	}
	p.stop(t)
}

// Each time the leading process is killed, another one takes the lead, and no container is created
// without its gate.
func TestKilled(t *testing.T) {
	n := newNode(t)
	processes := []*serving{n.serve(), n.serve()}
	n.awaitServing(processes[0])
	for _, p := range processes {
		process.Eventually(n.t, "each is ready", p.isReady, p)
	}
	leads := func(p *serving) bool { return strings.Contains(p.Log(), `"leading"`) }
	refused := 0
	kills := tier.Times(4, 10)
	for range kills {
		process.Eventually(n.t, "one leads", func() bool { return leads(processes[0]) || leads(processes[1]) })
		if leads(processes[1]) {
			slices.Reverse(processes)
		}
		// An agent of another version, which no container uses, may be removed.
		if err := os.RemoveAll(n.root + contract.NodeAgentsDir); err != nil {
			t.Fatal(err)
		}
		processes[0].Signal(syscall.SIGKILL)
		process.Eventually(n.t, "a container is created", func() bool {
			got, err := n.create("4f", "")
			for _, m := range got.GetMounts() {
				if !exists(m.Source) {
					t.Fatalf("%s is to be mounted and is not there", m.Source)
				}
			}
			if err == nil && len(got.GetArgs()) == 0 {
				t.Fatal("a container is created without its gate")
			}
			if err != nil {
				refused++
			}
			return err == nil
		})
		<-processes[0].Done()
		processes[0] = n.serve()
		process.Eventually(n.t, "the new one is ready", processes[0].isReady, processes[0])
	}
	t.Logf("%d kills, 10 with OUTRIDER_NIGHTLY=1: %d containers refused in between", kills, refused)
	n.awaitServing(processes[0])
}

// While the leading process hangs, pods that need outrider-node wait until it is killed; other pods do not wait.
func TestHangs(t *testing.T) {
	adaptation.SetPluginRequestTimeout(adaptation.DefaultPluginRequestTimeout)
	t.Cleanup(func() { adaptation.SetPluginRequestTimeout(process.Patience) })
	n := newNode(t)
	leader := n.serve()
	n.awaitServing(leader)
	process.Eventually(n.t, "it is ready", leader.isReady, leader)
	standby := n.serve()
	process.Eventually(n.t, "the standby is ready", standby.isReady, standby)
	leader.Signal(syscall.SIGSTOP)
	for range 3 {
		if got, err := n.create("4f", ""); err == nil {
			t.Fatalf("a container is created: %v", got)
		}
	}
	if _, err := n.runtime.CreateContainer(t.Context(), &api.CreateContainerRequest{Pod: &api.PodSandbox{Id: "other"}, Container: &api.Container{Id: "o", Args: []string{"app"}}}); err != nil {
		t.Errorf("a pod that is not in the mesh: %v", err)
	}
	leader.Kill()
	process.Eventually(n.t, "the standby leads", func() bool { got, err := n.create("4f", ""); return err == nil && len(got.GetArgs()) > 0 })
}

// On a node whose daemon was killed and does not return, the command remove restores everything.
func TestRemove(t *testing.T) {
	n := newNode(t)
	p := n.serve()
	n.awaitServing(p)
	if _, err := n.create("4f", ""); err != nil {
		t.Fatal(err)
	}
	p.Kill()
	cmd := exec.Command(filepath.Join(n.bin, commands.Node), "remove", "--root="+n.root, "--cni-conf-dir="+n.path("net.d"), "--cni-bin-dir="+n.path("bin"),
		"--nri-socket="+n.path("nri.sock"), "--nri-plugin-dir="+n.path("plugins"))
	for range 2 { // the second run finds nothing to remove
		cmd := *cmd
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	n.isAsItWas()
	for _, dir := range []string{contract.NodeStatesDir, contract.NodeRunDir, contract.NodeAgentsDir} {
		if exists(n.root + dir) {
			t.Errorf("%s is there", dir)
		}
	}
}

// isAsItWas fails the test if any of our files remains, or the configuration differs from the original.
func (n *aNode) isAsItWas() {
	n.t.Helper()
	if got := n.configuration(); got != conflist {
		n.t.Errorf("the configuration is %q", got)
	}
	for _, dir := range []string{"net.d", "bin", "plugins", "opt", "run"} {
		_ = filepath.WalkDir(n.path(dir), func(path string, d os.DirEntry, err error) error {
			if err == nil && !d.IsDir() && d.Name() != "10-net.conflist" {
				n.t.Errorf("%s is left behind", path)
			}
			return nil
		})
	}
}

// The guard that a runtime launches refuses containers while no daemon runs, and ends when its file is
// removed.
func TestTheRuntimeLaunchesTheGuard(t *testing.T) {
	n := newNode(t)
	p := n.serve()
	n.awaitServing(p)
	p.stop(t)
	n.runtime.Stop()
	n.startRuntime()
	for range 2 {
		if got, err := n.create("4f", ""); err == nil {
			t.Errorf("without a daemon: %v", got)
		}
	}
	if err := os.Remove(n.path("plugins/" + daemon.GuardFile)); err != nil {
		t.Fatal(err)
	}
	process.Eventually(n.t, "it ends", func() bool { _, err := n.create("4f", ""); return err == nil })
}

// The Node's label says whether the validator of the running runtime is on. The validator creates no container
// without the plugins that its pod requires.
func TestSaysWhetherTheValidatorIsOn(t *testing.T) {
	n := newNode(t)
	p := n.serve()
	says := func(want string) { // waits until p serves: before that, the label may come from the previous process, and a signal would end p
		t.Helper()
		n.awaitServing(p)
		process.Eventually(t, "the validator is "+want, func() bool {
			n.mu.Lock()
			defer n.mu.Unlock()
			return strings.Contains(n.object, contract.NodeValidator+`":"`+want+`"`)
		}, p)
	}
	says(contract.ValidatorOff)
	n.write(n.path("runtime.toml"), "version = 3\n[plugins.'io.containerd.nri.v1.nri'.default_validator]\nenable = true\n")
	p.stop(t)
	p = n.serve()
	says(contract.ValidatorRestart)
	p.stop(t)
	n.runtime.Stop()
	n.startRuntime()
	p = n.serve()
	says(contract.ValidatorOn)
}

func TestUsage(t *testing.T) {
	for args, want := range map[string]string{
		"serve --daemonset=x":      "NAMESPACE/NAME",
		"serve x":                  "takes no argument",
		"serve --log-level=loud":   "loud",
		"leave":                    "--daemonset is missing",
		"guard":                    "no connection",
		"ready --ready-file=/none": "not started",
		"serve --node=a":           "KUBERNETES_SERVICE_HOST",
	} {
		var stderr bytes.Buffer
		status := run(append([]string{"outrider-node"}, strings.Fields(args)...), io.Discard, &stderr)
		if status == 0 || !strings.Contains(stderr.String(), want) {
			t.Errorf("%s: status %d, %s", args, status, stderr.String())
		}
		if usage := !strings.HasPrefix(args, "ready") && !strings.HasPrefix(args, "serve --node"); usage && status != 2 {
			t.Errorf("%s: status %d, want 2", args, status)
		}
	}
	file := filepath.Join(t.TempDir(), "ready")
	if err := os.WriteFile(file, []byte("not connected"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := daemon.Ready(file, false); err == nil || err.Error() != "not connected" || daemon.Ready(file, true) != nil {
		t.Errorf("a process that is not connected: %v", err)
	}
	if err := os.Chtimes(file, time.Time{}, time.Now().Add(-time.Hour)); err != nil {
		t.Fatal(err)
	}
	if err := daemon.Ready(file, true); err == nil || !strings.Contains(err.Error(), "hangs") {
		t.Errorf("a process that has said nothing for an hour: %v", err)
	}
}
