package harness

import (
	"cmp"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"

	"outrider.dev/test/ns"
	"outrider.dev/test/process"
)

// A Pod is a network namespace with its processes.
type Pod struct {
	*ns.Namespace
	World     *World
	Name      string
	Address   netip.Addr // the first of Addresses
	Addresses []netip.Addr
	Dir       string
	Token     string // path of the token file
	User      uint32 // user of the agent and Envoy: the world's ProxyUser when the pod was made

	Envoy        string    // path; default: the real Envoy
	Env          []string  // added to the agent's environment
	Args         []string  // added to the agent's arguments
	Termination  string    // path of the termination message file
	Plane        string    // address of the control plane
	Capabilities []uintptr // ambient capabilities of the agent and Envoy

	agents int
}

// Pod makes a pod with capture, and a manifest that announces it to the mesh as a pod with a proxy. The
// name is also its app label and its service account.
func (w *World) Pod(name string) *Pod {
	w.T.Helper()
	p := w.Machine(name)
	w.Manifest("pod-"+name, p.manifest(name))
	p.Token = w.Token(Namespace, name)
	p.Capture()
	return p
}

func (p *Pod) manifest(account string) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: %s, namespace: %s, labels: {app: %[1]s}}
spec: {serviceAccountName: %[4]s, containers: [{name: app, image: x}, {name: outrider-proxy, image: x}]}
status: {podIP: "%[3]s", podIPs: [{ip: "%[5]s"}]}
`, p.Name, Namespace, p.Address, account, p.list(`"}, {ip: "`))
}

// list joins all addresses with a separator.
func (p *Pod) list(between string) string {
	var out []string
	for _, a := range p.Addresses {
		out = append(out, a.String())
	}
	return strings.Join(out, between)
}

// Machine makes a namespace with an address that is unknown to the mesh.
func (w *World) Machine(name string) *Pod {
	w.T.Helper()
	p := &Pod{World: w, Name: name, Dir: filepath.Join(w.Dir, name), Envoy: w.Binaries.Envoy, User: cmp.Or(w.ProxyUser, ProxyUser)}
	p.Namespace, p.Addresses = w.link()
	p.Address, p.Plane = p.Addresses[0], Discovery
	if w.Family == IPv6 {
		p.Plane = "[" + planeAddress6 + "]:15012"
	}
	p.Termination = filepath.Join(p.Dir, "termination-log")
	for _, dir := range []string{p.Dir, p.work(), p.states(), p.own("outrider-proxy"), p.own("app")} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			w.T.Fatal(err)
		}
	}
	if err := os.WriteFile(p.Termination, nil, 0o666); err != nil {
		w.T.Fatal(err)
	}
	proxy := int(p.User)
	for path, user := range map[string]int{p.work(): proxy, p.own("outrider-proxy"): proxy, p.own("app"): AppUser, p.Termination: proxy} {
		if err := os.Chown(path, user, user); err != nil {
			w.T.Fatal(err)
		}
	}
	return p
}

func (p *Pod) work() string           { return filepath.Join(p.Dir, "work") }
func (p *Pod) states() string         { return filepath.Join(p.Dir, "states") }
func (p *Pod) own(name string) string { return filepath.Join(p.states(), name) }

// Capture redirects the pod's traffic to its proxy.
func (p *Pod) Capture() {
	t := p.World.T
	t.Helper()
	args := []string{"capture", "-p", "15001", "-z", "15006", "-u", fmt.Sprint(p.User), "-m", "REDIRECT",
		"-i", "*", "-b", "*", "-d", "15090,15021,15020"}
	cmd := exec.Command(p.World.Binaries.Agent, append(args, p.World.Capture...)...)
	var out []byte
	var err error
	p.Do(func() { out, err = cmd.CombinedOutput() })
	if err != nil {
		t.Fatalf("capture: %v: %s", err, out)
	}
}

// Agent starts the agent and Envoy.
func (p *Pod) Agent() *Agent {
	p.World.T.Helper()
	p.agents++
	args := append([]string{"proxy", "--control-plane", p.Plane, "--envoy", p.Envoy, "--token", p.Token,
		"--roots", p.World.Roots(), "--work-dir", p.work()}, p.Args...)
	cmd := exec.Command(p.World.Binaries.Agent, args...)
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"),
		"POD_NAME=" + p.Name, "POD_NAMESPACE=" + Namespace, "SERVICE_ACCOUNT=" + p.Name, "INSTANCE_IP=" + p.Address.String(), "INSTANCE_IPS=" + p.list(","),
		"ISTIOD_SAN=" + PlaneName, "OUTRIDER_STATES=" + p.states(), "OUTRIDER_OWN=" + p.own("outrider-proxy"),
		"OUTRIDER_TERMINATION_LOG=" + p.Termination,
		"GORACE=atexit_sleep_ms=0", // otherwise a program built with the race detector takes a second to exit
	}, p.Env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{AmbientCaps: p.Capabilities}
	return &Agent{Pod: p, Process: p.start(p.User, cmd, fmt.Sprintf("agent-%d.log", p.agents))}
}

// Kept reports whether the agent's file of accepted resources contains the endpoints of a service's port. The
// agent writes the file within seconds after Envoy accepts resources, and reads it if it starts without a control plane.
func (p *Pod) Kept(service string, port int) bool {
	content, err := os.ReadFile(filepath.Join(p.work(), "accepted"))
	name := regexp.QuoteMeta(fmt.Sprintf("outbound|%d||%s.%s.svc.", port, service, Namespace))
	return err == nil && regexp.MustCompile(`(?s)ClusterLoadAssignment.{0,24}`+name).Match(content)
}

// start runs a program in the pod, as a user.
func (p *Pod) start(user uint32, cmd *exec.Cmd, log string) *process.Process {
	p.World.T.Helper()
	return process.Start(p.World.T, cmd, process.Options{In: p.Do, User: user, Log: filepath.Join(p.Dir, log)})
}

// Gate runs a command of the app behind a gate, as the app's user.
func (p *Pod) Gate(args ...string) *process.Process {
	p.World.T.Helper()
	return p.gate("app", "gate.log", args)
}

// GateOf runs a command of any container behind a gate, as the app's user.
func (p *Pod) GateOf(name string, args ...string) *process.Process {
	t := p.World.T
	t.Helper()
	if err := os.MkdirAll(p.own(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(p.own(name), AppUser, AppUser); err != nil {
		t.Fatal(err)
	}
	return p.gate(name, name+"-gate.log", args)
}

func (p *Pod) gate(name, log string, args []string) *process.Process {
	p.World.T.Helper()
	args = append([]string{"gate", "--name", name, "--states", p.states(), "--own", p.own(name)}, args...)
	return p.start(AppUser, exec.Command(p.World.Binaries.Agent, args...), log)
}

// Message returns the termination message that the kubelet would read.
func (p *Pod) Message() string {
	p.World.T.Helper()
	raw, err := os.ReadFile(p.Termination)
	if err != nil {
		p.World.T.Fatal(err)
	}
	return strings.TrimSpace(string(raw))
}

// Bound reports whether the kernel's socket list has a listener on one of the ports in the pod.
func (p *Pod) Bound(ports ...uint16) bool {
	t := p.World.T
	t.Helper()
	found := false
	p.Do(func() {
		for _, table := range []string{"tcp", "tcp6"} {
			raw, err := os.ReadFile("/proc/thread-self/net/" + table)
			if err != nil {
				t.Error(err)
			}
			for _, port := range ports {
				for line := range strings.Lines(string(raw)) {
					f := strings.Fields(line)
					found = found || len(f) > 3 && strings.HasSuffix(f[1], fmt.Sprintf(":%04X", port)) && f[3] == "0A"
				}
			}
		}
	})
	return found
}

// State returns the content of the state file of a container of the pod, or "" if there is none.
func (p *Pod) State(container string) string {
	raw, _ := os.ReadFile(filepath.Join(p.own(container), "state"))
	return string(raw)
}

// Program runs another program in place of the proxy, as the proxy's user.
func (p *Pod) Program(name string, command ...string) *process.Process {
	p.World.T.Helper()
	return p.start(p.User, exec.Command(command[0], command[1:]...), name+".log")
}
