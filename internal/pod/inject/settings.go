package inject

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// The proxy's own user, and Istio's ports.
const (
	proxyUser      = 1337
	statusPort     = 15020
	readinessPort  = 15021
	prometheusPort = 15090
)

// How connections come to the proxy.
const (
	redirect = "REDIRECT"
	tproxy   = "TPROXY"
	noMode   = "NONE"
)

// settings are what holds for one pod, from its annotations and from the mesh.
type settings struct {
	mesh   Mesh
	config proxyConfig    // defaultConfig with the annotation over it
	fields map[string]any // of defaultConfig, for the agent

	podHold *bool // of the annotation alone

	proxy   bool // the pod gets a proxy
	capture bool // its connections are captured, or at least parked
	mode    string
	status  int32 // the agent's port
	probes  bool  // the proxy is probed, and the agent makes the app's probes
	uid     int64
	gid     int64

	image, initImage string
	pull             corev1.PullPolicy
	resources        corev1.ResourceRequirements // to be read: others may have them too
}

// resolve reads the annotations; those that cannot be used refuse the pod.
func (in *injection) resolve() error {
	s := &in.settings
	a := in.ours()
	var err error
	if s.mesh, err = in.o.Values.mesh(in.o.Mesh); err != nil {
		return err
	}
	s.fields = s.mesh.DefaultConfig
	if s.config, err = proxyConfigOf(s.fields); err != nil {
		return fmt.Errorf("the mesh's defaultConfig: %w", err)
	}
	if text, ok := a[proxyConfigKey]; ok {
		own, c, err := parseProxyConfig(text)
		if err != nil {
			return refuse(BadAnnotation, "", "annotation %s: %v", proxyConfigKey, err)
		}
		s.podHold = c.Hold
		if s.config, err = proxyConfigOf(overlaid(s.fields, own)); err != nil {
			return refuse(BadAnnotation, "", "annotation %s: %v", proxyConfigKey, err)
		}
	}
	if t, ok := a[templatesKey]; ok && t != "sidecar" {
		return refuse(BadAnnotation, "", "annotation %s: %q: no template but \"sidecar\" is there", templatesKey, t)
	}
	s.proxy = !in.beside
	if err := s.resolveCapture(a); err != nil {
		return err
	}
	if err := in.resolvePort(); err != nil {
		return err
	}
	if text := a[agentLogKey]; strings.ContainsAny(strings.TrimPrefix(text, "default:"), ",:") {
		in.warn("annotation %s: the agent has one level for all; %q counts as info", agentLogKey, text)
		level := "info"
		in.annotate(agentLogKey, &level) // the agent reads the annotation too
	}
	s.uid, s.gid = ranged(in.ns)
	in.resolveImages()
	s.resources, err = resources(a, in.o.Values.Global.Proxy.Resources)
	return err
}

func (s *settings) resolveCapture(a map[string]string) error {
	s.mode = a[modeKey]
	if s.mode == "" {
		s.mode = s.config.InterceptionMode
	}
	if s.mode == "" {
		s.mode = redirect
	}
	if err := oneOf(redirect, tproxy, noMode)(s.mode); err != nil {
		return refuse(BadAnnotation, "", "interceptionMode %q: want %v", s.mode, err)
	}
	if a[captureKey] == "none" {
		s.mode = noMode
	}
	s.capture = s.mode != noMode && (s.proxy || a[parkKey] != "off")
	if !s.proxy {
		s.mode = noMode
	}
	return nil
}

// resolvePort is the agent's port: of the annotation, else of the ProxyConfig.
func (in *injection) resolvePort() error {
	s := &in.settings
	s.status, s.probes = statusPort, true
	if v := in.o.Values.Global.Proxy.StatusPort; v != nil {
		s.status = *v
	}
	if p := s.config.StatusPort; p != 0 {
		s.status = p
	}
	if text, ok := in.ours()[statusPortKey]; ok {
		n, err := strconv.ParseUint(text, 10, 16)
		if err != nil {
			return refuse(BadAnnotation, "", "annotation %s: %q is no port", statusPortKey, text)
		}
		if p := s.config.StatusPort; p != 0 && p != int32(n) && in.hasOwnConfig() {
			return refuse(BadAnnotation, "keep one of the two", "annotation %s is %d, and statusPort of %s is %d", statusPortKey, n, proxyConfigKey, p)
		}
		s.status = int32(n)
	}
	if s.status == 0 {
		s.status, s.probes = statusPort, false
	}
	if slices.Contains(reservedPorts, s.status) && s.status != statusPort {
		return refuse(PortTaken, "", "the agent's port %d is another one of the proxy's", s.status)
	}
	return nil
}

func (in *injection) hasOwnConfig() bool { _, ok := in.pod.Annotations[proxyConfigKey]; return ok }

// resolveImages: an image is a full reference if it has a slash, else a name in the hub.
func (in *injection) resolveImages() {
	s, v := &in.settings, in.o.Values.Global
	hub, tag := v.Hub, ""
	if v.Tag != nil {
		tag = fmt.Sprint(v.Tag)
	}
	if hub == "" {
		hub = defaultHub
	}
	if tag == "" {
		tag = defaultTag
	}
	kind := s.config.Image.ImageType
	if t, ok := in.pod.Annotations[imageTypeKey]; ok {
		kind = t
	}
	if kind != "" && kind != "default" && kind != "distroless" {
		in.warn("image type %s: there is one image, which has no shell", kind)
	}
	reference := func(name string) string {
		if strings.Contains(name, "/") {
			return name
		}
		return hub + "/" + name + ":" + tag
	}
	s.image = reference(first(in.pod.Annotations[imageKey], in.o.Images.Proxy, v.Proxy.Image, defaultImage))
	s.initImage = reference(first(in.o.Images.Init, v.ProxyInit.Image, s.image))
	s.pull = corev1.PullPolicy(v.ImagePullPolicy)
}

// Where the images are, if nobody says otherwise: as "make images" names them.
const (
	defaultHub   = "outrider.dev"
	defaultTag   = "dev"
	defaultImage = "outrider-proxy"
)

// usual are the proxy's resources, Istio's.
var usual = corev1.ResourceRequirements{
	Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m"), corev1.ResourceMemory: resource.MustParse("128Mi")},
	Limits:   corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2"), corev1.ResourceMemory: resource.MustParse("1Gi")},
}

// resources: if one of the four annotations is there, nobody else's defaults count.
func resources(a map[string]string, mesh *corev1.ResourceRequirements) (corev1.ResourceRequirements, error) {
	out := corev1.ResourceRequirements{}
	for _, r := range []struct {
		key  string
		list *corev1.ResourceList
		name corev1.ResourceName
	}{
		{"sidecar.istio.io/proxyCPU", &out.Requests, corev1.ResourceCPU},
		{"sidecar.istio.io/proxyMemory", &out.Requests, corev1.ResourceMemory},
		{"sidecar.istio.io/proxyCPULimit", &out.Limits, corev1.ResourceCPU},
		{"sidecar.istio.io/proxyMemoryLimit", &out.Limits, corev1.ResourceMemory},
	} {
		text, ok := a[r.key]
		if !ok {
			continue
		}
		q, err := resource.ParseQuantity(text)
		if err != nil {
			return out, refuse(BadAnnotation, "", "annotation %s: %q is no amount", r.key, text)
		}
		if *r.list == nil {
			*r.list = corev1.ResourceList{}
		}
		(*r.list)[r.name] = q
	}
	for name, limit := range out.Limits {
		if request, ok := out.Requests[name]; ok && request.Cmp(limit) > 0 {
			return out, refuse(BadAnnotation, "", "the proxy's %s request %s is more than its limit %s", name, request.String(), limit.String())
		}
	}
	switch {
	case out.Requests != nil || out.Limits != nil:
		return out, nil
	case mesh != nil:
		return *mesh, nil
	}
	return usual, nil
}

// agentConfig is the mesh's defaultConfig for the agent, with what injection decided.
func (in *injection) agentConfig() (string, error) {
	fields := maps.Clone(in.settings.fields)
	if fields == nil {
		fields = map[string]any{}
	}
	if a, ok := in.pod.Annotations[discoveryKey]; ok {
		fields["discoveryAddress"] = a
	}
	if _, ok := fields["discoveryAddress"]; !ok {
		fields["discoveryAddress"] = in.o.controlPlane()
	}
	if in.settings.status != statusPort {
		fields["statusPort"] = in.settings.status
	}
	delete(fields, "holdApplicationUntilProxyStarts") // injection's own
	text, err := json.Marshal(fields)
	return string(text), err
}
