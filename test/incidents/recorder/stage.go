package recorder

import (
	"embed"
	"fmt"
	"hash/fnv"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/yaml"

	"outrider.dev/internal/lab/localpod"
)

//go:embed forms
var forms embed.FS

// A form says how a mesh names its containers, and which ports its proxy uses.
type form struct{ init, proxy, outbound, inbound, ready, user, exclude string }

var formOf = map[string]form{
	"outrider": {"outrider-init", "outrider-proxy", "15001", "15006", "15021", "1337", ""},
	"istio":    {"istio-init", "istio-proxy", "15001", "15006", "15021", "1337", "traffic.sidecar.istio.io/excludeOutboundPorts"},
	"linkerd":  {"linkerd-init", "linkerd-proxy", "4140", "4143", "4191", "2102", "config.linkerd.io/skip-outbound-ports"},
	"kuma":     {"kuma-init", "kuma-sidecar", "15001", "15006", "9901", "5678", "traffic.kuma.io/exclude-outbound-ports"},
	"dapr":     {"", "daprd", "3502", "50001", "3500", "0", ""},
	"hand":     {"redirect", "envoy", "10000", "10001", "10002", "101", ""},
}

var appNames = map[string]string{"java": "orders", "node": "checkout", "python": "prices", "ruby": "mailer", "php": "shop", "go": "gateway",
	"perl": "importer", "curl": "reports", "redis": "worker", "nginx": "edge"}

func (c Incident) app() string { return appNames[c.runtime] }

// port returns the port of the service that the application calls.
func (c Incident) port() string {
	if c.runtime == "redis" {
		return "6379"
	}
	return "8080"
}

// shown returns the pod as the mesh's API server would show it, without a status.
func (c Incident) shown() (*corev1.Pod, error) {
	text, err := forms.ReadFile("forms/" + c.form + ".yaml")
	pod := &corev1.Pod{}
	if err == nil {
		err = yaml.UnmarshalStrict(text, pod)
	}
	if err != nil {
		return nil, fmt.Errorf("form %s: %w", c.form, err)
	}
	h := fnv.New64a()
	h.Write([]byte(c.Name))
	id := fmt.Sprintf("%016x", h.Sum64())
	owner := metav1.OwnerReference{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: c.app() + "-" + id[:10], UID: types.UID(id), Controller: new(true)}
	pod.APIVersion, pod.Kind = "v1", "Pod"
	pod.Name, pod.Namespace, pod.UID = owner.Name+"-"+id[11:], "shop", types.UID("00000000-0000-4000-8000-"+id[:12])
	if pod.Labels == nil {
		pod.Labels = map[string]string{}
	}
	pod.Labels["app"] = c.app()
	if c.has("job") {
		owner.APIVersion, owner.Kind, owner.Name = "batch/v1", "Job", c.app()
		pod.Spec.RestartPolicy, pod.Name = corev1.RestartPolicyNever, c.app()+"-"+id[11:]
	} else {
		pod.Spec.RestartPolicy = corev1.RestartPolicyAlways
	}
	pod.OwnerReferences, pod.Spec.NodeName = []metav1.OwnerReference{owner}, "node-1"
	host := strings.TrimSuffix(c.host+domain, "127.0.0.1"+domain)
	switch {
	case c.host == "":
		host = "config-server" + domain
	case strings.HasPrefix(c.host, "127."):
		host = c.host
	}
	if !strings.Contains(host, ":") {
		host += ":" + c.port()
	}
	if c.faultName == "sibling" {
		host = "127.0.0.1:9000"
	}
	app := corev1.Container{Name: c.app(), Image: "example.com/shop/" + c.app() + ":2.3", Env: []corev1.EnvVar{{Name: "CONFIG_URL", Value: "http://" + host + "/config"}}}
	pod.Spec.Containers = append([]corev1.Container{app}, pod.Spec.Containers...)
	c.adjust(pod)
	return pod, nil
}

func (c Incident) has(tweak string) bool { return slices.Contains(strings.Fields(c.tweak), tweak) }

// adjust changes the pod as the fault requires.
func (c Incident) adjust(pod *corev1.Pod) {
	f, s := formOf[c.form], &pod.Spec
	app := &s.Containers[0]
	switch {
	case c.has("native"):
		proxy := s.Containers[1]
		s.Containers = s.Containers[:1]
		proxy.RestartPolicy = new(corev1.ContainerRestartPolicyAlways)
		proxy.StartupProbe = proxy.ReadinessProbe.DeepCopy()
		proxy.StartupProbe.FailureThreshold = 600
		s.InitContainers = append(s.InitContainers, proxy)
	case c.has("hold"), c.has("hold-fails"):
		s.Containers[0], s.Containers[1] = s.Containers[1], s.Containers[0]
		wait := []string{"pilot-agent", "wait"}
		if c.has("hold-fails") {
			wait = append(wait, "--timeoutSeconds=2")
		}
		s.Containers[0].Lifecycle = &corev1.Lifecycle{PostStart: &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: wait}}}
	case c.has("excluded"):
		init := &s.InitContainers[0]
		if i := slices.Index(init.Args, "--outbound-ports-to-ignore"); i >= 0 {
			init.Args[i+1] += "," + c.port()
		} else {
			init.Args = append(init.Args, "-o", c.port())
		}
		if f.exclude != "" {
			metav1.SetMetaDataAnnotation(&pod.ObjectMeta, f.exclude, c.port())
		}
	case c.has("proxy-user"):
		app.SecurityContext = &corev1.SecurityContext{RunAsUser: new(int64(1337))}
	case c.has("liveness"):
		app.LivenessProbe = &corev1.Probe{PeriodSeconds: 2, InitialDelaySeconds: 4, FailureThreshold: 3,
			ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/live", Port: intstr.FromInt32(8080)}}}
	case c.has("init"):
		first := *app.DeepCopy()
		first.Name = "migrate"
		s.InitContainers = append(s.InitContainers, first)
	}
}

// staged returns the same pod with the commands that stand in for its images.
func (c Incident) staged(shown *corev1.Pod, dns string) corev1.Pod {
	pod := *shown.DeepCopy()
	pod.Spec.NodeName, pod.OwnerReferences = "", nil
	if c.has("no-dns") {
		dns = deadIP
	}
	one := "1"
	pod.Spec.DNSPolicy = corev1.DNSNone
	pod.Spec.DNSConfig = &corev1.PodDNSConfig{Nameservers: []string{dns}, Options: []corev1.PodDNSConfigOption{{Name: "timeout", Value: &one}, {Name: "attempts", Value: &one}}}
	for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			c.command(&list[i])
		}
	}
	return pod
}

// command sets the command of a container.
func (c Incident) command(k *corev1.Container) {
	f := formOf[c.form]
	after := func(n int, command ...string) []string {
		return append([]string{"sh", "-c", fmt.Sprintf(`trap "exit 143" TERM; sleep %d & wait; exec "$@"`, n), "sh"}, command...)
	}
	if k.ReadinessProbe != nil {
		k.ReadinessProbe.FailureThreshold = 1000
	}
	switch k.Name {
	case "outrider-init", "redirect":
	case f.init:
		k.Command, k.Args = []string{"outrider-agent", "capture", "-p", f.outbound, "-z", f.inbound, "-u", f.user, "-g", f.user, "-i", "*", "-b", "*", "-d", f.ready, "--park=off"}, nil
		if c.has("excluded") {
			k.Command = append(k.Command, "-o", c.port())
		}
		if c.has("no-rules") {
			k.Command = []string{"true"}
		}
		k.SecurityContext = &corev1.SecurityContext{Capabilities: &corev1.Capabilities{Add: []corev1.Capability{"NET_ADMIN", "NET_RAW"}}}
	case "outrider-proxy":
		k.Command = after(c.slow, k.Command...)
	case f.proxy:
		command := []string{"envoy", "-c", "/app/envoy-" + c.form + ".yaml"}
		if c.dies > 0 {
			command = append([]string{"timeout", "-s", "KILL", fmt.Sprint(c.dies)}, command...)
		}
		k.Command, k.Args, k.Env = after(c.slow, command...), nil, nil
		if c.held {
			k.Command[2] = `trap "exit 143" TERM; until [ -e /app/` + c.Name + ` ]; do sleep 0.05; done; exec "$@"`
		}
	default:
		wait := c.wait
		if k.Name == "migrate" {
			wait = 0
		}
		k.Command = after(wait, runtimes[c.runtime]...)
		k.Env = append(k.Env, corev1.EnvVar{Name: "MODE", Value: c.mode})
	}
}

// envoys writes the proxy's configuration for each form.
func envoys(dir string) error {
	text, err := forms.ReadFile("forms/envoy.yaml")
	if err != nil {
		return err
	}
	for name, f := range formOf { // any order: a file for each
		one := strings.NewReplacer("OUTBOUND", f.outbound, "INBOUND", f.inbound, "READY", f.ready).Replace(string(text))
		if err := os.WriteFile(filepath.Join(dir, "envoy-"+name+".yaml"), []byte(one), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// A life is one run of a container.
type life struct {
	started, finished time.Time
	code              int
	lines             []line
}

type line struct {
	at   time.Time
	text string
}

// A Sight holds the observations of a staged pod.
type Sight struct {
	Incident
	pod     *corev1.Pod
	mu      sync.Mutex
	over    bool // the pod has been recorded; later events do not count
	began   time.Time
	taken   time.Time
	deleted time.Time
	lives   map[string][]*life
	ready   map[string]bool
	events  []corev1.Event
	exited  func() // called when the application first exits, in a case that is held
	proxied chan struct{}
}

// Record stages a case and watches it.
func (w *Recorder) Record(c Incident) (*Sight, error) {
	shown, err := c.shown()
	if err != nil {
		return nil, err
	}
	o, err := w.options(c)
	if err != nil {
		return nil, err
	}
	if c.has("no-plane") {
		o.Hosts["outriderd.outrider-system.svc"] = "10.244.0.250" // an address of no machine
	}
	s := &Sight{Incident: c, pod: shown, lives: map[string][]*life{}, ready: map[string]bool{}, proxied: make(chan struct{})}
	s.exited = sync.OnceFunc(func() { _ = os.WriteFile(w.dir+"/app/"+c.Name, nil, 0o644) }) // the file for which the proxy waits
	o.Pod, o.Line, o.Journal = c.staged(shown, w.node.Addresses()[0].String()), s.line, s.entry
	running, err := w.node.Start(o)
	if err != nil {
		return nil, err
	}
	defer running.Wait()
	defer running.Kill()
	s.pod.Status.PodIP = running.Addresses()[0].String()
	if c.form == "outrider" {
		in := fmt.Sprintf("apiVersion: v1\nkind: Pod\nmetadata: {name: %s, namespace: shop, labels: {app: %s, security.istio.io/tlsMode: istio}}\n"+
			"spec: {serviceAccountName: shop, containers: [{name: app}]}\nstatus: {phase: Running, podIP: %[3]s, podIPs: [{ip: %[3]s}]}\n", shown.Name, c.app(), s.pod.Status.PodIP)
		if err := os.WriteFile(w.dir+"/mesh/"+shown.Name+".yaml", []byte(in), 0o644); err != nil {
			return nil, err
		}
	}
	if c.held {
		select {
		case <-s.proxied:
		case <-time.After(2 * time.Minute):
			return nil, fmt.Errorf("%s: the application has not exited, or then its proxy is not ready", c.Name)
		}
	}
	if c.delete > 0 {
		time.Sleep(seconds(c.delete))
		s.mu.Lock()
		s.deleted = time.Now()
		s.mu.Unlock()
		running.Delete(0)
	}
	time.Sleep(seconds(c.takes - c.delete))
	s.mu.Lock()
	s.over, s.taken = true, time.Now()
	s.mu.Unlock()
	return s, nil
}

// at returns the current life of a container, or begins one: lines arrive before the news of the
// container's end, and possibly before the news of its start.
func (s *Sight) at(container string) *life {
	all := s.lives[container]
	if n := len(all); n > 0 && all[n-1].finished.IsZero() {
		return all[n-1]
	}
	s.lives[container] = append(all, &life{})
	return s.lives[container][len(all)]
}

// ended reports whether a container has run and no longer does.
func (s *Sight) ended(container string) bool {
	all := s.lives[container]
	return len(all) > 0 && !all[len(all)-1].finished.IsZero()
}

func (s *Sight) line(container, text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.over {
		l := s.at(container)
		l.lines = append(l.lines, line{time.Now(), text})
	}
}

func (s *Sight) entry(e localpod.Entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over {
		return
	}
	if s.began.IsZero() {
		s.began = time.Now().Add(-e.At)
	}
	now, kind := s.began.Add(e.At), string(e.Kind)+" "+e.What
	switch {
	case kind == "event started" && !e.Failed:
		s.at(e.Container).started = now
		s.event(now, e.Container, "Normal", "Started", "Started container "+e.Container)
	case kind == "event exited":
		l := s.at(e.Container)
		l.finished, l.code = now, *e.ExitCode
		s.ready[e.Container] = false
		if e.Container == s.app() && s.held {
			s.exited()
		}
	case kind == "event probe-answered":
		if e.Which == "readiness" || e.Which == "startup" {
			if e.Container == formOf[s.form].proxy && !e.Failed && !s.ready[e.Container] && s.held {
				close(s.proxied)
			}
			s.ready[e.Container] = !e.Failed
		}
		if e.Failed {
			which := string(e.Which)
			s.event(now, e.Container, "Warning", "Unhealthy", strings.ToUpper(which[:1])+which[1:]+" probe failed: "+e.Detail)
		}
	case kind == "event hook-returned" && e.Failed && e.Which == "postStart":
		s.event(now, e.Container, "Warning", "FailedPostStartHook", "PostStartHook failed")
	case kind == "action stop" && s.deleted.IsZero() && s.lives[e.Container] != nil:
		why := "Container " + e.Container + " failed liveness probe, will be restarted"
		if c := s.container(e.Container); c != nil && c.LivenessProbe == nil {
			why = "FailedPostStartHook" // the kubelet's own text
		}
		s.event(now, e.Container, "Normal", "Killing", why)
	case kind == "action stop":
		s.event(now, e.Container, "Normal", "Killing", "Stopping container "+e.Container)
	case kind == "action back-off" && s.ended(e.Container):
		s.event(now, e.Container, "Warning", "BackOff", fmt.Sprintf("Back-off restarting failed container %s in pod %s_%s(%s)", e.Container, s.pod.Name, s.pod.Namespace, s.pod.UID))
	}
}

func (s *Sight) container(name string) *corev1.Container {
	for _, list := range [][]corev1.Container{s.pod.Spec.InitContainers, s.pod.Spec.Containers} {
		if i := slices.IndexFunc(list, func(c corev1.Container) bool { return c.Name == name }); i >= 0 {
			return &list[i]
		}
	}
	return nil
}

// event records an event; repetitions increase a count, as with the kubelet.
func (s *Sight) event(at time.Time, container, kind, reason, message string) {
	path := fmt.Sprintf("spec.containers{%s}", container)
	if slices.ContainsFunc(s.pod.Spec.InitContainers, func(c corev1.Container) bool { return c.Name == container }) {
		path = fmt.Sprintf("spec.initContainers{%s}", container)
	}
	when := metav1.NewTime(at.Truncate(time.Second))
	for i := range s.events {
		if e := &s.events[i]; e.Message == message && e.InvolvedObject.FieldPath == path {
			e.Count++
			e.LastTimestamp = when
			return
		}
	}
	s.events = append(s.events, corev1.Event{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Event"},
		ObjectMeta:     metav1.ObjectMeta{Name: fmt.Sprintf("%s.%x", s.pod.Name, at.UnixNano()), Namespace: s.pod.Namespace, CreationTimestamp: when},
		InvolvedObject: corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Name: s.pod.Name, Namespace: s.pod.Namespace, UID: s.pod.UID, FieldPath: path},
		Reason:         reason, Message: message, Type: kind, Source: corev1.EventSource{Component: "kubelet", Host: "node-1"}, ReportingController: "kubelet",
		FirstTimestamp: when, LastTimestamp: when, Count: 1})
}
