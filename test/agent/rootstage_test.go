package agent

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
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

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"outrider.dev/internal/core/pod/inject"
	"outrider.dev/internal/core/pod/podspec"
	"outrider.dev/internal/lab/localpod"
	"outrider.dev/startup"
	"outrider.dev/test/agent/harness"
	"outrider.dev/test/process"
)

// A stagedPod is an injected pod without an init container. Package localpod runs it as a kubelet would.
type stagedPod struct {
	t    *testing.T
	name string
	pod  *localpod.Pod

	mu      sync.Mutex
	lines   []string // output of the containers: "CONTAINER | LINE"
	entries []localpod.Entry
}

// stagedNode makes a node with a control plane, and the options for its pods.
func stagedNode(t *testing.T) (*localpod.Node, localpod.Options) {
	t.Helper()
	b := harness.Build(t)
	dir := t.TempDir()
	mesh, state := filepath.Join(dir, "mesh"), filepath.Join(dir, "state")
	for _, d := range []string{mesh, state} {
		if err := os.Mkdir(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	node, err := localpod.NewNode(localpod.NodeOptions{Name: "staged"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { node.Close() })
	plane := exec.Command(b.Plane, "serve", "--source", "files:"+mesh, "--state", state)
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	plane.Stdout, plane.Stderr = write, write
	if _, err := node.Command(plane); err != nil {
		t.Fatal(err)
	}
	write.Close()
	lines := bufio.NewScanner(read)
	for lines.Scan() && !strings.Contains(lines.Text(), `"msg":"serving"`) {
	}
	go io.Copy(io.Discard, read)
	root, err := os.ReadFile(filepath.Join(state, "ca", "root-cert.pem"))
	if err != nil {
		t.Fatalf("outriderd did not start: %v, %s", err, lines.Text())
	}
	roots := corev1.ConfigMap{Data: map[string]string{"root-cert.pem": string(root)}}
	roots.Name, roots.Namespace = "outrider-ca-root-cert", "shop"
	return node, localpod.Options{
		ConfigMaps:  []corev1.ConfigMap{roots},
		Binds:       []localpod.Bind{{From: b.Agent, To: "/usr/local/bin/outrider-agent"}, {From: b.Envoy, To: "/usr/local/bin/envoy"}},
		Entrypoints: map[string][]string{proxyImage: {"outrider-agent"}},
		Hosts:       map[string]string{"outriderd.outrider-system.svc": node.Addresses()[0].String()},
		Token: func(string) ([]byte, error) {
			out, err := exec.Command(b.Plane, "token", "--state", state, "--namespace", "shop", "--service-account", "shop").Output()
			return bytes.TrimSpace(out), err
		},
	}
}

const proxyImage = "outrider.dev/outrider-proxy:dev"

// The app runs as another user than the proxy. It prints a line when its command runs, and another when it has
// connected to an unassigned address, which succeeds only if the connection is captured.
const stagedManifest = `
metadata: {name: %s, namespace: shop, annotations: {outrider.dev/init: none}}
spec:
  serviceAccountName: shop
  securityContext: {fsGroup: 2000}
  containers:
  - name: app
    image: app
    securityContext: {runAsUser: 1000}
    command: [bash, -c, "echo the app runs; exec 3<>/dev/tcp/192.0.2.1/80 && echo captured; exec sleep 600"]
`

func runStaged(t *testing.T, node *localpod.Node, o localpod.Options, change func(*corev1.Pod)) *stagedPod {
	t.Helper()
	s := &stagedPod{t: t, name: fmt.Sprintf("staged-%d-%d", os.Getpid(), time.Now().UnixNano())}
	var pod corev1.Pod
	if err := yaml.UnmarshalStrict(fmt.Appendf(nil, stagedManifest, s.name), &pod); err != nil {
		t.Fatal(err)
	}
	r, err := inject.Pod(&pod, inject.Namespace{Name: "shop"}, inject.Options{})
	if err != nil || len(r.Pod.Spec.InitContainers) > 0 || !podspec.Staged(&r.Pod.Spec.Containers[0]) {
		t.Fatalf("%v, %+v, warnings %q", err, r.Reason, r.Warnings)
	}
	change(r.Pod)
	reading, err := podspec.Read(r.Pod)
	if err != nil {
		t.Fatal(err)
	}
	o.Pod, o.Plan = *r.Pod, reading.Plan()
	o.Line = func(container, line string) { s.change(func() { s.lines = append(s.lines, container+" | "+line) }) }
	o.Journal = func(e localpod.Entry) { s.change(func() { s.entries = append(s.entries, e) }) }
	if s.pod, err = node.Start(o); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.pod.Kill()
		s.pod.Wait()
	})
	return s
}

func (s *stagedPod) change(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

// until waits until a predicate holds.
func (s *stagedPod) until(what string, holds func() bool) {
	s.t.Helper()
	process.Eventually(s.t, what, func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return holds()
	}, s)
}

// Done returns a channel that is closed when the pod has ended.
func (s *stagedPod) Done() <-chan struct{} { return s.pod.Done() }

// End returns the output of the pod's containers and the events of their lives.
func (s *stagedPod) End() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var b strings.Builder
	for _, e := range s.entries {
		text, _ := json.Marshal(e)
		fmt.Fprintf(&b, "%s\n", text)
	}
	return strings.Join(s.lines, "\n") + "\n" + b.String()
}

func (s *stagedPod) line(want string) {
	s.t.Helper()
	s.until("line "+want, func() bool { return slices.Contains(s.lines, want) })
}

// count returns how many events of this kind a container has had. The caller must hold s.mu.
func (s *stagedPod) count(container string, what startup.What) (n int) {
	for _, e := range s.entries {
		if e.Kind == localpod.Happened && e.Container == container && e.What == string(what) {
			n++
		}
	}
	return n
}

// process waits until a process of the pod runs this command, and returns its process ID.
func (s *stagedPod) process(command string) (pid int) {
	s.t.Helper()
	process.Eventually(s.t, "a process "+command, func() bool {
		files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
		for _, file := range files {
			argv, _ := os.ReadFile(file)
			environ, _ := os.ReadFile(filepath.Join(filepath.Dir(file), "environ"))
			if strings.HasPrefix(strings.ReplaceAll(string(argv), "\x00", " "), command) && bytes.Contains(environ, []byte("HOSTNAME="+s.name+"\x00")) {
				pid, _ = strconv.Atoi(filepath.Base(filepath.Dir(file)))
				return true
			}
		}
		return false
	}, s)
	return pid
}

func inProc(t *testing.T, pid int, name string) string {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

const stagedAgent, stagedGate = "outrider-agent proxy sidecar", "/outrider/bin/outrider-agent gate --name app"

// In a pod without an init container, the root stage of the proxy container writes the capture rules and copies the
// gate, and then drops its privileges. The app starts behind the gate once the proxy is ready. The same is true
// after a restart of the proxy container, and the app keeps running meanwhile.
func TestNoInitContainer(t *testing.T) {
	node, o := stagedNode(t)
	s := runStaged(t, node, o, func(*corev1.Pod) {})
	s.line("app | captured")
	agent, gate := s.process(stagedAgent), s.process(stagedGate)
	s.unprivileged(agent)
	s.captures(agent)
	app := s.process("sleep 600")
	first := s.record(agent)

	if err := syscall.Kill(agent, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	process.AwaitEnd(t, agent)
	s.until("the proxy runs again", func() bool { return s.count("outrider-proxy", startup.IsStarted) > 1 })
	again := s.process(stagedAgent)
	if out, err := exec.Command("nsenter", fmt.Sprintf("--net=/proc/%d/ns/net", again), harness.Build(t).Agent, "wait").CombinedOutput(); err != nil {
		t.Errorf("the proxy is not ready again: %v: %s", err, out)
	}
	s.unprivileged(again)
	s.captures(again)
	if second := s.record(again); second == first {
		t.Errorf("the record of the second start is that of the first: %s", second)
	}
	if s.process("sleep 600") != app || s.process(stagedGate) != gate {
		t.Error("the app was started again")
	}
	if exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", gate)); err != nil || exe != podspec.AgentPath+" (deleted)" {
		t.Errorf("the gate runs from %q, %v; want its old copy, which was replaced", exe, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.entries {
		if e.Which == "postStart" && e.Failed {
			t.Errorf("a hook failed: %+v", e)
		}
	}
}

// unprivileged checks that the agent is the first process of its container and has no privileges.
func (s *stagedPod) unprivileged(pid int) {
	s.t.Helper()
	const no = "0000000000000000"
	want := map[string]string{"Uid": "1337 1337 1337 1337", "Gid": "1337 1337 1337 1337", "Groups": "1337 2000", "NoNewPrivs": "1",
		"CapInh": no, "CapPrm": no, "CapEff": no, "CapBnd": no, "CapAmb": no}
	got := map[string]string{}
	for line := range strings.Lines(inProc(s.t, pid, "status")) {
		name, value, _ := strings.Cut(line, ":")
		fields := strings.Fields(value)
		if _, ok := want[name]; ok {
			got[name] = strings.Join(fields, " ")
		}
		if name == "NSpid" && fields[len(fields)-1] != "1" {
			s.t.Errorf("the agent is process %s of its container, want 1", fields)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		s.t.Errorf("process %d (-want +got):\n%s", pid, diff)
	}
}

// captures checks that the pod's rules are unchanged and in effect.
func (s *stagedPod) captures(pid int) {
	s.t.Helper()
	b := harness.Build(s.t)
	out, err := exec.Command(b.Agent, "capture", "verify", "--network-namespace", fmt.Sprintf("/proc/%d/ns/net", pid)).CombinedOutput()
	if err != nil || !strings.Contains(string(out), "outbound ipv4: proved") || !strings.Contains(string(out), "inbound ipv4: proved") {
		s.t.Errorf("%v: %s", err, out)
	}
}

// record returns the record that the root stage wrote in the container of a process. It checks that only
// root can change the record and the copied program in the same directory.
func (s *stagedPod) record(pid int) string {
	s.t.Helper()
	dir := fmt.Sprintf("/proc/%d/root%s", pid, podspec.BinDir)
	for _, name := range []string{"", "outrider-agent", "captured.json"} {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil {
			s.t.Fatal(err)
		}
		if info.Mode()&0o022 != 0 || info.Sys().(*syscall.Stat_t).Uid != 0 {
			s.t.Errorf("%s/%s is %s of user %d; want root's alone to write", podspec.BinDir, name, info.Mode(), info.Sys().(*syscall.Stat_t).Uid)
		}
	}
	return inProc(s.t, pid, "root"+podspec.BinDir+"/captured.json")
}

// If the root stage fails, the postStart hook of its container fails too, and the kubelet starts the app
// nevertheless. The app's command does not run: it waits at its gate, or the container cannot start because the
// gate was not copied.
func TestNoInitContainerFailsClosed(t *testing.T) {
	node, o := stagedNode(t)
	tests := map[string]struct {
		change func(*corev1.Pod)
		until  func(*stagedPod)
	}{
		"no NET_ADMIN: the gate waits": {
			func(p *corev1.Pod) {
				c := p.Spec.Containers[0].SecurityContext.Capabilities
				c.Add = slices.DeleteFunc(c.Add, func(c corev1.Capability) bool { return c == "NET_ADMIN" })
			},
			func(s *stagedPod) { s.process(stagedGate) },
		},
		"no agent at all: there is no gate": {
			func(p *corev1.Pod) { p.Spec.Containers[0].Command = []string{"false"} },
			func(s *stagedPod) {
				s.until("the app fails to start", func() bool {
					return slices.ContainsFunc(s.entries, func(e localpod.Entry) bool {
						return e.Container == "app" && strings.Contains(e.Detail, podspec.AgentPath+": no such file")
					})
				})
			},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			s := runStaged(t, node, o, tt.change)
			tt.until(s)
			s.until("the proxy ends", func() bool { return s.count("outrider-proxy", startup.HasFailed) > 0 })
			// The kubelet restarts a failed container after 10 s.
			s.until("and is started again", func() bool { return s.count("outrider-proxy", startup.IsStarted) > 1 })
			s.mu.Lock()
			defer s.mu.Unlock()
			if slices.Contains(s.lines, "app | the app runs") {
				t.Errorf("the app runs without its proxy")
			}
		})
	}
}
