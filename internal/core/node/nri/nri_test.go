package nri

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containerd/nri/pkg/adaptation"
	"github.com/containerd/nri/pkg/api"
	"github.com/containerd/nri/pkg/stub"
	validator "github.com/containerd/nri/plugins/default-validator/builtin"
	gocmp "github.com/google/go-cmp/cmp"

	"outrider.dev/internal/base/contract"
)

const (
	agentDir = contract.NodeAgentsDir + "/4711"
	timeout  = time.Minute
)

// aRuntime is the side of NRI that a container runtime implements, as in containerd.
type aRuntime struct {
	t      *testing.T
	socket string
	front  string // socket to which plugins connect instead of the runtime's; may be empty
	*adaptation.Adaptation
	pods       []*api.PodSandbox
	containers []*api.Container
	validates  bool // with containerd's validator
}

func newRuntime(t *testing.T) *aRuntime {
	t.Helper()
	r := &aRuntime{t: t, socket: filepath.Join(t.TempDir(), "nri.sock")}
	r.start()
	return r
}

func (r *aRuntime) start() {
	r.t.Helper()
	sync := func(ctx context.Context, each adaptation.SyncCB) error {
		_, err := each(ctx, r.pods, r.containers)
		return err
	}
	update := func(context.Context, []*api.ContainerUpdate) ([]*api.ContainerUpdate, error) { return nil, nil }
	a, err := adaptation.New("containerd", "2.2.9", sync, update, adaptation.WithDefaultValidator(&validator.DefaultValidatorConfig{Enable: r.validates}), adaptation.WithSocketPath(r.socket), adaptation.WithPluginPath(r.t.TempDir()), adaptation.WithPluginConfigPath(r.t.TempDir()))
	if err == nil {
		err = a.Start()
	}
	if err != nil {
		r.t.Fatal(err)
	}
	r.Adaptation = a
	r.t.Cleanup(a.Stop)
}

func (r *aRuntime) create(pod *api.PodSandbox, c *api.Container) (*api.ContainerAdjustment, error) {
	defer r.BlockPluginSync().Unblock()
	res, err := r.CreateContainer(r.t.Context(), &api.CreateContainerRequest{Pod: pod, Container: c})
	return res.GetAdjust(), err
}

// relayed makes plugins connect through the test, and returns a function that closes their connections.
// The library's Stop does not close connections of plugins that it did not launch, but the end of a
// runtime's process does.
func (r *aRuntime) relayed() (end func()) {
	r.t.Helper()
	behind, front := r.socket, filepath.Join(r.t.TempDir(), "relay.sock")
	l, err := net.Listen("unix", front)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { l.Close() })
	r.front = front
	conns := make(chan net.Conn, 100)
	go func() {
		for {
			a, err := l.Accept()
			if err != nil {
				return
			}
			b, err := net.Dial("unix", behind)
			if err != nil {
				a.Close()
				continue
			}
			conns <- a
			conns <- b
			go func() { io.Copy(a, b); a.Close() }()
			go func() { io.Copy(b, a); b.Close() }()
		}
	}()
	return func() {
		for len(conns) > 0 {
			(<-conns).Close()
		}
	}
}

// node records the calls to the parts of a node that a plugin uses.
type node struct {
	mu                    sync.Mutex
	kept, removed, proven []string
	dirs, restored        []string
	ensure                func(ctx context.Context) error
}

func (n *node) Container(sandbox, container string) (string, string, error) {
	dir := contract.NodeStatesDir + "/" + sandbox
	return dir, dir + "/" + container, nil
}

func (n *node) Remove(sandbox string) error { return n.note(&n.removed, sandbox) }
func (n *node) Forget(string)               {}

func (n *node) note(list *[]string, what ...string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	*list = append(*list, what...)
	return nil
}

func (n *node) Ensure(ctx context.Context, sandbox, pod, namespace string, flags []string) error {
	if n.ensure != nil {
		return n.ensure(ctx)
	}
	return n.note(&n.proven, sandbox+" "+namespace+" "+strings.Join(flags, " "))
}

func (n *node) Restore(sandbox, pod, namespace string, flags []string) error {
	return n.note(&n.restored, strings.Join(append([]string{sandbox, pod, namespace}, flags...), " "))
}

func (n *node) Keep(sandboxes []string) error { return n.note(&n.kept, sandboxes...) }

type captures struct{ *node }

func (c captures) Keep([]string) {}

type agents struct{ *node }

func (a agents) Keep(dirs []string) error { return a.note(&a.dirs, dirs...) }

// connect runs a plugin against the runtime. The channel receives each change of its connection.
func (r *aRuntime) connect(n *node, leads bool, name string) (connected chan bool, stop func()) {
	r.t.Helper()
	p := &Plugin{Leads: leads, AgentDir: agentDir, States: n, Captures: captures{n}, Agents: agents{n}, Log: slog.New(slog.DiscardHandler)}
	ctx, cancel := context.WithCancel(r.t.Context())
	connected = make(chan bool, 10)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := p.Run(ctx, name, cmp.Or(r.front, r.socket), nil, func(is bool) { connected <- is }); err != nil {
			r.t.Error(err)
		}
	}()
	stop = func() { cancel(); <-ended }
	r.t.Cleanup(stop)
	r.await(connected, true)
	return connected, stop
}

func (r *aRuntime) await(connected chan bool, want bool) {
	r.t.Helper()
	select {
	case is := <-connected:
		if is != want {
			r.t.Fatalf("connected: %v", is)
		}
	case <-time.After(timeout):
		r.t.Fatalf("no change of the connection to %v", want)
	}
	if want { // the runtime lists the plugin once it lets requests continue
		r.BlockPluginSync().Unblock()
	}
}

func gateArgs() []string {
	return contract.Gate{Name: "app", After: []string{"outrider-proxy is healthy"}}.Args()
}

func podWith(work contract.NodeWork) *api.PodSandbox {
	return &api.PodSandbox{Id: "4f", Name: "web", Namespace: "shop", Uid: "u", Annotations: map[string]string{contract.NodeAnnotation: work.String()},
		Linux: &api.LinuxPodSandbox{Namespaces: []*api.LinuxNamespace{{Type: "pid"}, {Type: "network", Path: "/run/netns/cni-1"}}}}
}

func sandboxed(handler string) *api.PodSandbox {
	out := gatedPod()
	out.RuntimeHandler = handler
	return out
}

func gatedPod() *api.PodSandbox {
	return podWith(contract.NodeWork{Capture: []string{"-p", "15001"}, Containers: map[string][]string{"app": gateArgs(), contract.ProxyContainer: nil}})
}

func container(name string, args ...string) *api.Container {
	return &api.Container{Id: "c-" + name, PodSandboxId: "4f", Name: name, Args: args}
}

func TestContainersAreAdjusted(t *testing.T) {
	r, n := newRuntime(t), &node{}
	_, stop := r.connect(n, true, contract.NodePlugin)
	pod := gatedPod()
	got, err := r.create(pod, container("app", "/entrypoint.sh", "serve"))
	if err != nil {
		t.Fatal(err)
	}
	if want := slices.Concat([]string{contract.AgentPath}, gateArgs(), []string{"/entrypoint.sh", "serve"}); !slices.Equal(got.GetArgs(), want) {
		t.Errorf("the container runs %q, want %q", got.GetArgs(), want)
	}
	mounts := func(a *api.ContainerAdjustment) (out []string) {
		for _, m := range a.GetMounts() {
			out = append(out, m.Source+" "+m.Destination+" "+m.Type+" "+strings.Join(m.Options, ","))
		}
		return out
	}
	states := contract.NodeStatesDir + "/4f"
	want := []string{
		agentDir + " " + contract.BinDir + " bind bind,private,ro,nosuid,nodev",
		states + " " + contract.StatesDir + " bind bind,private,ro,nosuid,nodev,noexec",
		states + "/app " + contract.OwnDir + " bind bind,private,rw,nosuid,nodev,noexec",
	}
	if diff := gocmp.Diff(want, mounts(got)); diff != "" {
		t.Errorf("mounts (-want +got):\n%s", diff)
	}
	if diff := gocmp.Diff([]string{"4f /run/netns/cni-1 -p 15001"}, n.proven); diff != "" {
		t.Errorf("captures (-want +got):\n%s", diff)
	}
	if got, err := r.create(pod, container(contract.ProxyContainer, "envoy")); err != nil || len(got.GetArgs()) > 0 || len(got.GetMounts()) != 3 {
		t.Errorf("the proxy gets %v, %v; want three mounts and no command", got, err)
	}
	for name, c := range map[string]*api.PodSandbox{"not listed": pod, "of another pod": {Id: "5"}} {
		if got, err := r.create(c, container("other", "sh")); err != nil || len(got.GetArgs())+len(got.GetMounts()) > 0 {
			t.Errorf("a container %s gets %v, %v", name, got, err)
		}
	}
	if err := r.StopPodSandbox(t.Context(), &api.StateChangeEvent{Pod: pod}); err != nil || !slices.Equal(n.removed, []string{"4f"}) {
		t.Errorf("after the sandbox has stopped, %v, the states of %q are removed", err, n.removed)
	}
	stop()
}

// In each of these cases no container is created, and the error says why.
func TestRefused(t *testing.T) {
	r, n := newRuntime(t), &node{}
	r.connect(n, true, contract.NodePlugin)
	app := container("app", "app")
	bad := gatedPod()
	bad.Annotations[contract.NodeAnnotation] = `{"capture":7}`
	host := gatedPod()
	host.Linux.Namespaces = nil
	for want, tt := range map[string]struct {
		pod    *api.PodSandbox
		c      *api.Container
		ensure error
	}{
		contract.NodeAnnotation:    {bad, app, nil},
		"hostNetwork":              {host, app, nil},
		`handler "kata-qemu" may`:  {sandboxed("kata-qemu"), app, nil},
		"runs /init, which has to": {gatedPod(), container("app", "/init", "x"), nil},
		"has no command":           {gatedPod(), container("app"), nil},
		"no nftables":              {gatedPod(), app, errors.New("no nftables")},
	} {
		n.ensure = nil
		if tt.ensure != nil {
			n.ensure = func(context.Context) error { return tt.ensure }
		}
		if got, err := r.create(tt.pod, tt.c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, %v; want an error with %q", got, err, want)
		}
	}
}

// A mount by the pod or by another plugin is refused if it would hide ours or lies below it: the runtime sorts
// mounts by depth, so a mount below ours is mounted after ours.
func TestNothingElseIsMountedThere(t *testing.T) {
	for at, refused := range map[string]bool{
		"/": true, "/outrider": true, "/outrider/": true, "//outrider/./": true, "/x/../outrider": true, "outrider": true,
		"/outrider/bin": true, "/outrider/bin/": true, "/outrider/bin/..": true, "/outrider/bin/outrider-agent": true, "/outrider/bin/../bin/outrider-agent/": true,
		"/outrider/state/web": true, "/outrider/own/ready.json": true, "/outrider/else": true, "/proc/self/cwd/outrider/bin": true,
		"/outriders": false, "/data/outrider": false, "/outrider/../data": false, "/etc/outrider/proxy": false, "/data": false,
	} {
		r := newRuntime(t)
		r.connect(&node{}, true, contract.NodePlugin)
		by := func(what string, c *api.Container) {
			_, err := r.create(gatedPod(), c)
			if says := fmt.Sprintf("container app has %q mounted at %s, ", "/evil", at); refused != (err != nil && strings.Contains(err.Error(), says)) {
				t.Errorf("at %s, by %s: %v", at, what, err)
			}
		}
		c := container("app", "app")
		c.Mounts = []*api.Mount{{Destination: "/proc", Source: "proc"}, {Destination: at, Source: "/evil"}}
		by("the pod", c)
		r.other("99", func(a *api.ContainerAdjustment) { a.AddMount(&api.Mount{Destination: at, Source: "/evil"}) })
		if !strings.HasSuffix(at, "bin") { // NRI itself refuses a second plugin's mount there
			by("a plugin", container("app", "app"))
		}
	}
}

// A capture that takes too long ends with an error before the runtime stops waiting. If the plugin
// answered later, the runtime would disconnect it and create the container without it.
func TestTheAnswerComesInTime(t *testing.T) {
	adaptation.SetPluginRequestTimeout(8 * time.Second) // 2 s of it remain for the answer, which suffices on a busy machine
	t.Cleanup(func() { adaptation.SetPluginRequestTimeout(adaptation.DefaultPluginRequestTimeout) })
	r, n := newRuntime(t), &node{ensure: func(ctx context.Context) error { <-ctx.Done(); return context.Cause(ctx) }}
	connected, _ := r.connect(n, true, contract.NodePlugin)
	if _, err := r.create(gatedPod(), container("app", "app")); err == nil || !strings.Contains(err.Error(), "too long") {
		t.Errorf("the answer is %v", err)
	}
	n.ensure = nil
	if got, err := r.create(gatedPod(), container("app", "app")); err != nil || len(got.GetArgs()) == 0 {
		t.Errorf("the next container gets %v, %v", got, err)
	}
	if len(connected) > 0 {
		t.Error("the runtime has disconnected the plugin")
	}
}

// While the adjusting plugin is not connected, the guard refuses containers. While neither is connected, the
// runtime creates the container unchanged, and the plugin refuses to start it once it has reconnected.
func TestGuard(t *testing.T) {
	r := newRuntime(t)
	if got, err := r.create(gatedPod(), container("app", "app")); err != nil || got.GetArgs() != nil {
		t.Fatalf("a runtime without plugins answers %v, %v", got, err)
	}
	_, stopGuard := r.connect(&node{}, false, contract.NodeGuard)
	_, stop := r.connect(&node{}, true, contract.NodePlugin)
	if got, err := r.create(gatedPod(), container("app", "app")); err != nil || len(got.GetArgs()) == 0 {
		t.Errorf("with both plugins: %v, %v", got, err)
	}
	stop()
	for range 2 { // the first request after the end only detects the closed connection
		if got, err := r.create(gatedPod(), container("app", "app")); err == nil {
			t.Errorf("the guard lets a container pass: %v", got)
		}
	}
	if _, err := r.create(&api.PodSandbox{Id: "5"}, container("app", "app")); err != nil {
		t.Errorf("the guard refuses another pod: %v", err)
	}
	if err := r.Adaptation.StartContainer(t.Context(), &api.StateChangeEvent{Pod: gatedPod(), Container: container("app", "app")}); err == nil {
		t.Error("a container without its gate starts")
	}
	stopGuard()
}

// If the list of the node's containers exceeds the limit of NRI's Synchronize message, no plugin can connect
// (synchronize.md). Containers that need a gate are then created without one. Only the runtime's own
// validator, if it is on, rejects them, because of the annotation that injection writes.
func TestPluginsAreKeptOut(t *testing.T) {
	for _, validates := range []bool{false, true} {
		r := newRuntime(t)
		r.Stop()
		r.validates, r.socket = validates, filepath.Join(t.TempDir(), "nri.sock")
		for i := range 3 {
			r.containers = append(r.containers, &api.Container{Id: fmt.Sprint(i), PodSandboxId: "other", Env: []string{"V=" + strings.Repeat("x", 1500000)}})
		}
		r.start()
		p := &Plugin{Log: slog.New(slog.DiscardHandler)}
		if served, err := p.serve(t.Context(), contract.NodeGuard, r.socket, nil, func(bool) { t.Error("the runtime registers the plugin: docs/node.md has changed") }); served || err == nil {
			t.Errorf("%v, %v", served, err)
		}
		pod := gatedPod()
		pod.Annotations[contract.RequiredPlugins] = "[" + contract.NodePlugin + "]"
		if _, err := r.create(pod, container("app", "app")); validates != (err != nil && strings.Contains(err.Error(), contract.NodePlugin)) {
			t.Errorf("with the runtime's validator %v: %v", validates, err)
		}
	}
}

// Of several mounts at a path, the last one is effective: ours does not suffice if another one follows.
func TestNothingIsMountedOverOurs(t *testing.T) {
	p, argv := &Plugin{}, slices.Concat([]string{contract.AgentPath}, gateArgs(), []string{"app"})
	ours := []*api.Mount{
		{Destination: contract.BinDir, Source: contract.NodeAgentsDir + "/a"},
		{Destination: contract.StatesDir, Source: contract.NodeStatesDir + "/4f"},
		{Destination: contract.OwnDir, Source: contract.NodeStatesDir + "/4f/app"},
	}
	if err := p.inOrder(gatedPod(), "app", argv, ours); err != nil {
		t.Error(err)
	}
	for _, m := range ours {
		over := append(slices.Clone(ours), &api.Mount{Destination: m.Destination, Source: "/evil"})
		if err := p.inOrder(gatedPod(), "app", argv, over); err == nil || !strings.Contains(err.Error(), `"/evil" mounted at `+m.Destination) {
			t.Errorf("a mount over ours at %s: %v", m.Destination, err)
		}
	}
}

// The gate runs the command that another plugin has set earlier; a plugin that removes the gate is
// refused.
func TestOtherPlugins(t *testing.T) {
	for _, tt := range []struct {
		index string
		args  func(*api.ContainerAdjustment)
		want  []string // the arguments after the gate
	}{
		{"10", func(a *api.ContainerAdjustment) { a.SetArgs([]string{"tini", "app"}) }, []string{"tini", "app"}},
		{"99", func(a *api.ContainerAdjustment) { a.UpdateArgs([]string{"app"}) }, nil},
		{"99", func(a *api.ContainerAdjustment) { a.SetArgs([]string{"app"}) }, nil},
		{"99", func(a *api.ContainerAdjustment) {
			a.RemoveMount(contract.BinDir)
			a.AddMount(&api.Mount{Destination: contract.BinDir, Source: "/elsewhere", Type: "bind"})
		}, nil},
		{"99", func(a *api.ContainerAdjustment) { a.RemoveMount(contract.OwnDir) }, nil},
	} {
		r := newRuntime(t)
		r.connect(&node{}, true, contract.NodePlugin)
		r.other(tt.index, tt.args)
		got, err := r.create(gatedPod(), container("app", "app"))
		if want := slices.Concat([]string{contract.AgentPath}, gateArgs(), tt.want); tt.want != nil && (err != nil || !slices.Equal(got.GetArgs(), want)) {
			t.Errorf("with a plugin %s: %q, %v; want %q", tt.index, got.GetArgs(), err, want)
		}
		if tt.want == nil && err == nil {
			t.Errorf("a plugin %s takes the gate away, and the container is created: %v", tt.index, got)
		}
	}
}

type otherPlugin struct {
	set func(*api.ContainerAdjustment)
}

func (o otherPlugin) CreateContainer(context.Context, *api.PodSandbox, *api.Container) (*api.ContainerAdjustment, []*api.ContainerUpdate, error) {
	a := &api.ContainerAdjustment{}
	o.set(a)
	return a, nil, nil
}

func (otherPlugin) Synchronize(context.Context, []*api.PodSandbox, []*api.Container) ([]*api.ContainerUpdate, error) {
	return nil, nil
}

func (r *aRuntime) other(index string, set func(*api.ContainerAdjustment)) {
	r.t.Helper()
	conn, err := net.Dial("unix", r.socket)
	if err != nil {
		r.t.Fatal(err)
	}
	s, err := stub.New(otherPlugin{set}, stub.WithPluginName("other"), stub.WithPluginIdx(index), stub.WithConnection(conn), stub.WithOnClose(func() {}))
	if err == nil {
		err = s.Start(r.t.Context())
	}
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(s.Stop)
	// Connections are accepted in order: when a later one is registered, this one is too.
	n := &node{}
	connected, stop := r.connect(n, false, "last")
	stop()
	r.await(connected, false)
	_, _ = r.create(&api.PodSandbox{}, container("none")) // makes the runtime drop the closed connection
}

// When the runtime restarts, the plugin reconnects, gets all sandboxes, and removes the data of sandboxes that
// have ended.
func TestTheRuntimeRestarts(t *testing.T) {
	r, n := newRuntime(t), &node{}
	r.pods, r.containers = []*api.PodSandbox{{Id: "a"}}, []*api.Container{{Name: "app", PodSandboxId: "a", Mounts: []*api.Mount{{Destination: contract.BinDir, Source: contract.NodeAgentsDir + "/old"}}}}
	end := r.relayed()
	connected, _ := r.connect(n, true, contract.NodePlugin)
	if !slices.Equal(n.kept, []string{"a"}) || !slices.Equal(n.dirs, []string{agentDir, contract.NodeAgentsDir + "/old"}) {
		t.Errorf("kept are states of %q and agents in %q", n.kept, n.dirs)
	}
	r.Stop()
	end()
	r.await(connected, false)
	r.pods = []*api.PodSandbox{{Id: "b"}}
	r.start()
	r.await(connected, true)
	if got, err := r.create(gatedPod(), container("app", "app")); err != nil || len(got.GetArgs()) == 0 {
		t.Errorf("after the restart: %v, %v", got, err)
	}
	if !slices.Equal(n.kept, []string{"a", "b"}) {
		t.Errorf("kept are states of %q", n.kept)
	}
}
