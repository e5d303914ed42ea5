package localpod

import (
	"context"
	"flag"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"outrider.dev/internal/core/pod/podspec"
	"outrider.dev/internal/lab/localpod/containerinit"
	"outrider.dev/startup"
	"outrider.dev/test/ns"
	tests "outrider.dev/test/process"
)

// asWhat is an environment variable. It makes the test program act as something else, for example a server in a
// container, or a program that runs a pod until it is killed.
const asWhat = "LOCALPOD_TEST_AS"

func TestMain(m *testing.M) {
	if os.Getenv(asWhat) == "forgetful" {
		_, err := NewNode(NodeOptions{})
		fmt.Print(err)
		return
	}
	containerinit.Become()
	switch os.Getenv(asWhat) {
	case "server":
		serve()
	case "victim":
		victim()
	default:
		flag.Parse()
		flag.Set("test.parallel", "8") // more than the processors, because the tests mostly wait
		os.Exit(m.Run())
	}
}

// serve answers HTTP on port 8080 and gRPC on port 9090. On port 8443 it only accepts TCP connections. It
// listens on all ports before it serves any. It is ready when /tmp/ready or /tmp/ready.d/ready exists, and
// exits with 0 on SIGTERM.
func serve() {
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM)
	ready := func() bool {
		found, _ := filepath.Glob("/tmp/ready")
		more, _ := filepath.Glob("/tmp/ready.d/ready")
		return len(found)+len(more) > 0
	}
	http.HandleFunc("/ready", func(w http.ResponseWriter, r *http.Request) {
		fmt.Println("request for", r.Host, r.UserAgent(), strings.Split(r.RemoteAddr, ":")[0], r.Header.Get("X-Test"))
		if !ready() {
			http.Error(w, "not yet", http.StatusServiceUnavailable)
		}
	})
	http.HandleFunc("/away", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "http://192.0.2.1/", http.StatusFound)
	})
	listeners := map[string]net.Listener{}
	for _, address := range []string{":8080", ":8443", ":9090"} { // 9090 comes last, because tests wait for it
		l, err := net.Listen("tcp", address)
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		listeners[address] = l
	}
	defer listeners[":8443"].Close() // stay open until serve returns
	go http.Serve(listeners[":8080"], nil)
	server, state := grpc.NewServer(), health.NewServer()
	healthpb.RegisterHealthServer(server, state)
	state.SetServingStatus("sick", healthpb.HealthCheckResponse_NOT_SERVING)
	go server.Serve(listeners[":9090"])
	fmt.Println("serving")
	<-stop
	fmt.Println("stopping")
}

// A world is a node for one test. It collects the output of the node's pods.
type world struct {
	t      *testing.T
	node   *Node
	mounts string
	names  []string

	mu      sync.Mutex
	changed chan struct{}
	lines   []string // as "container | line"
	entries []Entry
}

func newWorld(t *testing.T) *world {
	t.Helper()
	ns.RequireRoot(t)
	w := &world{t: t, changed: make(chan struct{}), mounts: ownMounts(t)}
	var err error
	if w.node, err = NewNode(NodeOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.close)
	return w
}

// ownMounts returns the lines of this process's mountinfo for a node's directory. Outside of nodes they must not
// change during a test.
func ownMounts(t *testing.T) (found string) {
	data, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		if at := strings.Fields(line)[4]; at == containerinit.NodeDir || strings.HasPrefix(at, containerinit.NodeDir+"/pods") {
			found += line
		}
	}
	return found
}

// close closes the node, and checks that no process or mount is left.
func (w *world) close() {
	namespaces := w.namespaces()
	for _, l := range w.links() {
		hold(w.t, l)
	}
	if err := w.node.Close(); err != nil {
		w.t.Errorf("closing the node: %v", err)
	}
	nothingLeft(w.t, namespaces, w.names)
	if after := ownMounts(w.t); after != w.mounts {
		w.t.Errorf("mounts before:\n%s\nand after:\n%s", w.mounts, after)
	}
}

// namespaces returns the names of the node's namespaces as in /proc/PID/ns, such as net:[NUMBER].
func (w *world) namespaces() []string {
	var out []string
	for _, path := range w.links() {
		name, err := os.Readlink(path)
		if err != nil {
			w.t.Error(err)
		}
		out = append(out, name)
	}
	return out
}

// links returns the files in /proc that refer to the node's namespaces while the node is open.
func (w *world) links() []string {
	var out []string
	for _, s := range []space{w.node.net, w.node.pid, w.node.mnt} {
		out = append(out, fmt.Sprintf("/proc/self/fd/%d", s.file.Fd()))
	}
	return out
}

// hold keeps a namespace open until the test ends, so that the kernel does not give its number to the namespace
// of another test.
func hold(t *testing.T, path string) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
}

// nothingLeft checks that no process is in these namespaces or has one of these host names. It retries, because
// the kernel removes processes with a delay.
func nothingLeft(t *testing.T, namespaces, hostnames []string) {
	t.Helper()
	tests.Retry(t, func() error {
		if left := leftBehind(namespaces, hostnames); len(left) > 0 {
			return fmt.Errorf("left behind: %s", left)
		}
		return nil
	})
}

func leftBehind(namespaces, hostnames []string) []string {
	var out []string
	links, _ := filepath.Glob("/proc/[0-9]*/ns/*")
	for _, l := range links {
		if name, err := os.Readlink(l); err == nil && slices.Contains(namespaces, name) {
			out = append(out, l+" "+name)
		}
	}
	environs, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, e := range environs {
		data, _ := os.ReadFile(e)
		for _, v := range strings.Split(string(data), "\x00") {
			if name, ok := strings.CutPrefix(v, "HOSTNAME="); ok && slices.Contains(hostnames, name) {
				out = append(out, e+" "+v)
			}
		}
	}
	return out
}

// options returns the options of a pod given in YAML. In text, SERVER stands for the command and environment of
// the test program as a server.
func (w *world) options(text string) Options {
	w.t.Helper()
	exe, err := os.Executable()
	if err != nil {
		w.t.Fatal(err)
	}
	text = strings.ReplaceAll(text, "SERVER", fmt.Sprintf("command: [%q], env: [{name: %s, value: server}]", exe, asWhat))
	var pod corev1.Pod
	if err := yaml.UnmarshalStrict([]byte(text), &pod); err != nil {
		w.t.Fatal(err)
	}
	reading, err := podspec.Read(&pod)
	if err != nil {
		w.t.Fatal(err)
	}
	pod.Name = fmt.Sprintf("t%d-%d-%s", os.Getpid(), time.Now().UnixNano(), pod.Name)
	w.names = append(w.names, pod.Name)
	return Options{Pod: pod, Plan: reading.Plan(), Line: w.line, Journal: w.entry}
}

func (w *world) start(text string) *Pod {
	w.t.Helper()
	return w.run(w.options(text))
}

func (w *world) run(o Options) *Pod {
	w.t.Helper()
	p, err := w.node.Start(o)
	if err != nil {
		w.t.Fatal(err)
	}
	return p
}

func (w *world) line(container, line string) {
	w.change(func() { w.lines = append(w.lines, container+" | "+line) })
}

func (w *world) entry(e Entry) { w.change(func() { w.entries = append(w.entries, e) }) }

func (w *world) change(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f()
	close(w.changed)
	w.changed = make(chan struct{})
}

// testTimeout is far longer than any test takes.
const testTimeout = 60 * time.Second

// until waits until the condition holds, which it checks after each line and entry.
func (w *world) until(what string, holds func() bool) {
	w.t.Helper()
	late := time.After(testTimeout)
	for {
		w.mu.Lock()
		ok, changed := holds(), w.changed
		w.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-changed:
		case <-late:
			w.t.Fatalf("timed out: %s\n%s", what, w.log())
		}
	}
}

func (w *world) log() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var b strings.Builder
	for _, e := range w.entries {
		fmt.Fprintf(&b, "%s %s %s %s %s failed=%t %s\n", e.At, e.Kind, e.Container, e.What, e.Which, e.Failed, e.Detail)
	}
	return strings.Join(w.lines, "\n") + "\n" + b.String()
}

// untilLine waits for a line "container | text".
func (w *world) untilLine(line string) {
	w.t.Helper()
	w.until("line "+line, func() bool { return slices.Contains(w.lines, line) })
}

// untilHappened waits for an event of the timeline.
func (w *world) untilHappened(container string, what startup.What) {
	w.t.Helper()
	w.until(container+" "+string(what), func() bool {
		return slices.ContainsFunc(w.entries, func(e Entry) bool {
			return e.Kind == Happened && e.Container == container && e.What == string(what)
		})
	})
}

// wait waits for the pod's end, and returns the result.
func (w *world) wait(p *Pod) Result {
	w.t.Helper()
	select {
	case <-p.Done():
		return p.Wait()
	case <-time.After(testTimeout):
		w.t.Fatalf("the pod does not end\n%s", w.log())
		return Result{}
	}
}

func (w *world) logOf(container string) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []string
	for _, l := range w.lines {
		if text, ok := strings.CutPrefix(l, container+" | "); ok {
			out = append(out, text)
		}
	}
	return strings.Join(out, "\n")
}

// sequence formats each event of the timeline as "CONTAINER WHAT", without its time.
func sequence(t startup.Timeline) []string {
	var out []string
	for _, e := range t {
		if e.Container != "" {
			out = append(out, e.Container+" "+string(e.What))
		}
	}
	return out
}

func codes(r Result) map[string]int {
	out := map[string]int{}
	for _, c := range r.Containers {
		if c.ExitCode != nil {
			out[c.Name] = *c.ExitCode
		}
	}
	return out
}

// victim runs a pod until this process is killed.
func victim() {
	n, err := NewNode(NodeOptions{})
	if err != nil {
		fmt.Println("error", err)
		return
	}
	w := &world{node: n, changed: make(chan struct{})}
	pod := corev1.Pod{}
	pod.Name = os.Getenv("LOCALPOD_TEST_NAME")
	pod.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
	pod.Spec.Containers = []corev1.Container{
		// The processes of container a change their user, and start children in a separate session.
		{Name: "a", Command: []string{"sh", "-c", "setsid sleep 1000 & exec setpriv --reuid 1000 --clear-groups sh -c 'echo up; sleep 1000'"}},
		{Name: "b", Command: []string{"sh", "-c", "trap '' TERM HUP INT; echo up; while :; do sleep 1000; done"},
			LivenessProbe: &corev1.Probe{PeriodSeconds: 1, ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"sleep", "1000"}}}, TimeoutSeconds: 1000}},
	}
	up := make(chan struct{}, 2)
	p, err := n.Start(Options{Pod: pod, Line: func(string, string) { up <- struct{}{} }})
	if err != nil {
		fmt.Println("error", err)
		return
	}
	<-up
	<-up
	fmt.Println(strings.Join(w.namespaces(), " "))
	<-context.Background().Done()
	_ = p
}

func mustAddrs(t *testing.T, n *Node) []netip.Addr {
	t.Helper()
	_, addrs, err := n.admit()
	if err != nil {
		t.Fatal(err)
	}
	return addrs
}
