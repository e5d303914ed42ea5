package inject

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/core/pod/inject/order"
	"outrider.dev/internal/core/pod/inject/settings"
	"outrider.dev/internal/core/pod/inject/verdict"
	"outrider.dev/internal/core/pod/podspec"
)

// An effective holds the settings that apply to one pod: the mesh's configuration, overridden by the pod's
// annotations.
type effective struct {
	mesh    settings.Mesh
	config  settings.ProxyConfig // defaultConfig, overridden by the pod's annotation
	fields  map[string]any       // fields of defaultConfig
	podHold *bool                // holdApplicationUntilProxyStarts in the pod's annotation; may be nil

	proxy   bool   // the pod gets our proxy
	capture bool   // connections are captured, or parked if another mesh has the proxy
	mode    string // interceptionMode; NONE without our proxy
	port    int32  // the agent's status port
	probes  bool   // the proxy is probed, and the agent answers the app's probes

	uid, gid         int64
	image, initImage string
	init             string // a value of the annotation outrider.dev/init, such as contract.InitByNode: see [initOf]
	pull             corev1.PullPolicy
	resources        corev1.ResourceRequirements // shared: must not be changed
	agentLevel       string                      // log level of the agent

	agentConfig string // value of the variable PROXY_CONFIG
	grace       string // the pod's grace period, in the notation that the agent reads

	volumes []corev1.Volume // the author's volumes for the proxy
	mounts  []corev1.VolumeMount
	metrics metrics

	noLabel map[string]string // labels of this pod that have no effect, with the reasons
	clashes []Clash
}

// labelsWithoutEffect warns of each label of the pod or its namespace that has no effect. It returns the pod's
// labels among these, with the reasons.
func labelsWithoutEffect(in input, r *verdict.Report) map[string]string {
	ofPod := settings.CheckLabels(in.pod.Labels, "", in.alongside)
	out := map[string]string{}
	for i, u := range append(ofPod, settings.CheckLabels(in.ns.Labels, " of the namespace "+in.ns.Name, in.alongside)...) {
		r.Warn("%s", u.Warning)
		if i < len(ofPod) && u.Name != "" {
			out[u.Name] = u.Why
		}
	}
	return out
}

// settingsOf is the second step of [Pod]: it combines and checks the settings of annotations, namespace and mesh.
// If it fails, it also returns the settings that it has already read.
func settingsOf(in input, r *verdict.Report) (s effective, err error) {
	a := in.annotations()
	s = effective{proxy: !in.alongside, pull: corev1.PullPolicy(in.o.Values.Global.ImagePullPolicy), grace: strconv.FormatInt(graceOf(in.pod), 10) + "s"}
	unused, err := settings.CheckAnnotations(a)
	if err != nil {
		return s, verdict.Refuse(verdict.InvalidAnnotation, "", "%v", err)
	}
	for _, u := range unused {
		r.Ignored(u.Name, u.Why)
		r.Warn("%s", u.Warning)
	}
	s.noLabel = labelsWithoutEffect(in, r)
	if s.init, err = initOf(in, r); err != nil {
		return s, err
	}
	if err = s.readConfig(in.o, a); err != nil {
		return s, err
	}
	if s.mode, s.capture, err = captureOf(a, s.config, s.proxy); err != nil {
		return s, err
	}
	if s.port, s.probes, err = statusPortOf(a, in.o.Values, s.config); err != nil {
		return s, err
	}
	s.agentLevel = agentLevelOf(a, r)
	s.image, s.initImage = imagesOf(in.o, a, s.config, r)
	if s.resources, err = resourcesOf(a, in.o.Values.Global.Proxy.Resources); err != nil {
		return s, err
	}
	s.resources = fitted(s.resources, in.pod, r)
	if s.capture, err = checkSecurity(in, s, r); err != nil {
		return s, err
	}
	if s.agentConfig, err = agentConfigOf(in, s, r); err != nil {
		return s, err
	}
	if err = checkOwn(in, s); err != nil {
		return s, err
	}
	s.uid, s.gid = userOf(in, s.mode)
	if s.volumes, s.mounts, err = proxyVolumesOf(in, s); err != nil {
		return s, err
	}
	if err = checkPrograms(in, s); err != nil {
		return s, err
	}
	warnOfBypasses(in, s, r)
	if s.proxy {
		s.clashes = clashesOf(in.pod, s.port)
		for _, clash := range s.clashes {
			r.Warn("%s", clash)
		}
	}
	s.metrics, err = metricsOf(in.pod, s, r)
	return s, err
}

// hold returns the value of holdApplicationUntilProxyStarts. The pod's annotation takes precedence over the
// mesh's defaultConfig, and the defaultConfig over the values.
func (s effective) hold(v settings.Values) order.Hold {
	const name = "holdApplicationUntilProxyStarts"
	switch {
	case s.podHold != nil:
		return order.Hold{Value: s.podHold, At: "annotation " + contract.ProxyConfig + ": " + name, OfPod: true}
	case s.config.Hold != nil:
		return order.Hold{Value: s.config.Hold, At: "the mesh's defaultConfig." + name}
	}
	return order.Hold{Value: v.Global.Proxy.Hold, At: "value global.proxy." + name}
}

// readConfig reads the mesh's defaultConfig and the annotation that overrides it.
func (s *effective) readConfig(o Options, a map[string]string) error {
	var err error
	if s.mesh, err = o.Values.MeshOver(o.Mesh); err != nil {
		return err
	}
	s.fields = s.mesh.DefaultConfig
	if s.config, err = settings.ProxyConfigOf(s.fields); err != nil {
		return fmt.Errorf("the mesh's defaultConfig: %w", err)
	}
	if text, ok := a[contract.ProxyConfig]; ok {
		own, c, err := settings.ParseProxyConfig(text)
		if err == nil {
			s.podHold = c.Hold
			s.config, err = settings.ProxyConfigOf(settings.Overlay(s.fields, own))
		}
		if err != nil {
			return verdict.Refuse(verdict.InvalidAnnotation, "", "annotation %s: %v", contract.ProxyConfig, err)
		}
	}
	if t, ok := a[settings.TemplatesKey]; ok && t != "sidecar" {
		return verdict.Refuse(verdict.InvalidAnnotation, "", "annotation %s: %q: no template but \"sidecar\" is there", settings.TemplatesKey, t)
	}
	return nil
}

// captureOf returns the interceptionMode, and whether connections are captured (or parked, if the proxy is not
// ours).
func captureOf(a map[string]string, config settings.ProxyConfig, proxy bool) (mode string, capture bool, err error) {
	mode = cmp.Or(a[contract.InterceptionMode], config.InterceptionMode, settings.Redirect)
	if err := settings.Modes(mode); err != nil {
		return "", false, verdict.Refuse(verdict.InvalidAnnotation, "", "interceptionMode %q: want %v", mode, err)
	}
	if a[contract.Capture] == "none" {
		mode = settings.NoMode
	}
	if proxy {
		return mode, mode != settings.NoMode, nil
	}
	return settings.NoMode, mode != settings.NoMode && a[contract.Park] != "off", nil
}

// statusPortOf returns the agent's status port: from the pod's annotation, else from the ProxyConfig, else from
// the values. A setting of 0 means the default port without probes.
func statusPortOf(a map[string]string, v settings.Values, config settings.ProxyConfig) (port int32, probes bool, err error) {
	port = contract.StatusPort
	if v := v.Global.Proxy.StatusPort; v != nil {
		port = *v
	}
	if config.StatusPort != 0 {
		port = config.StatusPort
	}
	if text, ok := a[contract.StatusPortAnnotation]; ok {
		n, err := strconv.ParseUint(text, 10, 16)
		if err != nil {
			return port, false, verdict.Refuse(verdict.InvalidAnnotation, "", "annotation %s: %q is no port", contract.StatusPortAnnotation, text)
		}
		_, configured := a[contract.ProxyConfig]
		if p := config.StatusPort; p != 0 && p != int32(n) && configured {
			return port, false, verdict.Refuse(verdict.InvalidAnnotation, "keep one of the two", "annotation %s is %d, and statusPort of %s is %d", contract.StatusPortAnnotation, n, contract.ProxyConfig, p)
		}
		port = int32(n)
	}
	if port == 0 {
		return contract.StatusPort, false, nil
	}
	if slices.Contains(reservedPorts, port) && port != contract.StatusPort {
		return port, true, verdict.Refuse(verdict.PortConflict, "", "the agent's port %d is another one of the proxy's", port)
	}
	return port, true, nil
}

// agentLevelOf returns the agent's log level. Istio's annotation can give each logging scope a level; the agent
// has only one, so such a list counts as info.
func agentLevelOf(a map[string]string, r *verdict.Report) string {
	text, ok := a[settings.AgentLogKey]
	if level := strings.TrimPrefix(text, "default:"); ok && !strings.ContainsAny(level, ",:") {
		return level
	}
	if ok {
		r.Warn("annotation %s: the agent has one level for all; %q counts as info", settings.AgentLogKey, text)
	}
	return "info"
}

// imagesOf returns the image references of the proxy and of the init container. A name without a slash is
// completed with the hub and the tag.
func imagesOf(o Options, a map[string]string, config settings.ProxyConfig, r *verdict.Report) (proxy, init string) {
	v := o.Values.Global
	kind := config.Image.ImageType
	if t, ok := a[settings.ImageTypeKey]; ok {
		kind = t
	}
	if kind != "" && kind != "default" && kind != "distroless" {
		r.Warn("image type %s: there is one image, which has no shell", kind)
	}
	reference := func(name string) string {
		if strings.Contains(name, "/") {
			return name
		}
		return cmp.Or(v.Hub, defaultHub) + "/" + name + ":" + cmp.Or(o.Values.Tag(), defaultTag)
	}
	proxy = reference(cmp.Or(a[settings.ImageKey], o.Images.Proxy, v.Proxy.Image, defaultImage))
	return proxy, reference(cmp.Or(o.Images.Init, v.ProxyInit.Image, proxy))
}

// The parts of the default image reference, which "make images" builds.
const (
	defaultHub   = "outrider.dev"
	defaultTag   = "dev"
	defaultImage = "outrider-proxy"
)

// resourcesOf returns the proxy's resources. If the pod sets any of the four annotations for resources, the
// mesh's defaults do not apply.
func resourcesOf(a map[string]string, mesh settings.Resources) (corev1.ResourceRequirements, error) {
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
			return out, verdict.Refuse(verdict.InvalidAnnotation, "", "annotation %s: %q is no amount", r.key, text)
		}
		if *r.list == nil {
			*r.list = corev1.ResourceList{}
		}
		(*r.list)[r.name] = q
	}
	for _, name := range slices.Sorted(maps.Keys(out.Limits)) {
		limit := out.Limits[name]
		if request, ok := out.Requests[name]; ok && request.Cmp(limit) > 0 {
			return out, verdict.Refuse(verdict.InvalidAnnotation, "", "the proxy's %s request %s is more than its limit %s", name, request.String(), limit.String())
		}
	}
	if out.Requests != nil || out.Limits != nil {
		return out, nil
	}
	return mesh.OrDefault(), nil
}

// checkOwn refuses a pod in which the author's own containers with our names cannot be used.
func checkOwn(in input, s effective) error {
	if len(in.pod.Spec.Containers) == 0 {
		return verdict.Refuse(verdict.InvalidOverride, "", "the pod has no container but %s", contract.ProxyContainer)
	}
	if own, ok := in.own.find(contract.ProxyContainer); ok && !s.proxy {
		return verdict.Refuse(verdict.InvalidOverride, "leave one of the two out", "the pod has its own container %s, and annotation %s: none", own.Name, contract.Proxy)
	}
	by := map[string]string{}
	for _, own := range slices.Concat(in.own.init, in.own.plain) {
		name := overridden(own)
		if first, twice := by[name]; twice {
			return verdict.Refuse(verdict.InvalidOverride, "leave one of the two out", "the pod's own containers %s and %s both change %s", first, own.Name, name)
		}
		by[name] = own.Name
	}
	return nil
}

// userOf returns the proxy's user and group. The capture recognises the proxy's own connections by this user and
// group. The author's own container outrider-proxy may set others. In TPROXY mode that container cannot change
// the user, since the proxy is root.
func userOf(in input, mode string) (uid, gid int64) {
	uid, gid = settings.ProxyUser(in.ns.Annotations)
	own, _ := in.own.find(contract.ProxyContainer)
	if c := own.SecurityContext; c != nil {
		if c.RunAsUser != nil && mode != settings.TProxy {
			uid = *c.RunAsUser
		}
		if c.RunAsGroup != nil {
			gid = *c.RunAsGroup
		}
	}
	return uid, gid
}

// graceOf returns the pod's grace period in seconds.
func graceOf(pod *corev1.Pod) int64 { return int64(podspec.Grace(pod) / time.Second) }

// agentConfigOf returns the value of PROXY_CONFIG: the mesh's defaultConfig with the pod's discoveryAddress and
// statusPort. It also parses the pod's annotation with the agent's own parser, so that a mistake is reported at
// admission and not by a container that crashes.
func agentConfigOf(in input, s effective, r *verdict.Report) (string, error) {
	fields := maps.Clone(s.fields)
	if fields == nil {
		fields = map[string]any{}
	}
	if a, ok := in.pod.Annotations[settings.DiscoveryKey]; ok {
		fields["discoveryAddress"] = a
	}
	if _, ok := fields["discoveryAddress"]; !ok {
		fields["discoveryAddress"] = in.o.controlPlane()
	}
	if _, set := fields["statusPort"]; set || s.port != contract.StatusPort {
		fields["statusPort"] = s.port
	}
	text, err := settings.AgentFields(fields)
	own, ok := in.pod.Annotations[contract.ProxyConfig]
	if err != nil || !ok || !s.proxy {
		return text, err
	}
	notes, err := settings.ReadByAgent([]string{"PROXY_CONFIG=" + text, "OUTRIDER_GRACE=" + s.grace}, own)
	if err != nil {
		return "", verdict.Refuse(verdict.InvalidAnnotation, "", "annotation %s: the agent could not use it: %v", contract.ProxyConfig, err)
	}
	for _, note := range notes {
		r.Warn("%s", note)
	}
	return text, nil
}
