package inject

import (
	"encoding/json"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"outrider.dev/startup"
)

// A status is the annotation outrider.dev/status: what injection added.
type status struct {
	InitContainers   []string `json:"initContainers,omitempty"`
	Containers       []string `json:"containers,omitempty"`
	Volumes          []string `json:"volumes,omitempty"`
	ImagePullSecrets []string `json:"imagePullSecrets,omitempty"`
	Revision         string   `json:"revision"`

	plan startup.Plan
}

// A memory is the annotation outrider.dev/overrides: what of the author's was changed,
// so that it can be had again. A value that is null was not there.
type memory struct {
	InitContainers []corev1.Container `json:"initContainers,omitempty"` // the author's own of our names
	Containers     []corev1.Container `json:"containers,omitempty"`
	Annotations    map[string]*string `json:"annotations,omitempty"`
	Labels         map[string]*string `json:"labels,omitempty"`
	Order          []string           `json:"order,omitempty"`    // of the plain containers, where it was changed
	Commands       map[string]taken   `json:"commands,omitempty"` // of images, by container
}

// annotate sets an annotation, or takes it away, and remembers what was there.
func (in *injection) annotate(key string, value *string) {
	in.pod.Annotations = changed(in.pod.Annotations, &in.memory.Annotations, key, value)
}

func (in *injection) label(key, value string) {
	if _, there := in.pod.Labels[key]; !there && value != "" {
		in.pod.Labels = changed(in.pod.Labels, &in.memory.Labels, key, &value)
	}
}

func changed(m map[string]string, before *map[string]*string, key string, value *string) map[string]string {
	old, there := m[key]
	if value != nil && there && old == *value || value == nil && !there {
		return m
	}
	if *before == nil {
		*before = map[string]*string{}
	}
	if _, noted := (*before)[key]; !noted {
		(*before)[key] = nil
		if there {
			(*before)[key] = &old
		}
	}
	if m == nil {
		m = map[string]string{}
	}
	if value == nil {
		delete(m, key)
	} else {
		m[key] = *value
	}
	return m
}

// Labels of Istio's, which telemetry and policies read.
const (
	tlsModeLabel      = "security.istio.io/tlsMode"
	canonicalName     = "service.istio.io/canonical-name"
	canonicalRevision = "service.istio.io/canonical-revision"
	networkLabel      = "topology.istio.io/network"
)

// addMetadata adds labels, and the annotations that people's tools read.
func (in *injection) addMetadata() error {
	for _, key := range sortedKeys(in.o.Values.Injector.InjectedAnnotations) {
		if _, there := in.pod.Annotations[key]; !there {
			value := in.o.Values.Injector.InjectedAnnotations[key]
			in.annotate(key, &value)
		}
	}
	for _, key := range []string{defaultContainer, defaultLogs} {
		if _, there := in.pod.Annotations[key]; !there {
			if name := in.firstApp(); name != "" {
				in.annotate(key, &name)
			}
		}
	}
	if !in.settings.proxy {
		return nil
	}
	revision := in.o.revision()
	in.annotate(revisionLabel, &revision)
	if in.scrape != "" {
		in.setProxyEnv(targets, in.scrape)
	}
	l := in.pod.Labels
	in.label(tlsModeLabel, "istio")
	in.label(canonicalName, cut(first(l["app.kubernetes.io/name"], l["app"], in.workloadName())))
	in.label(canonicalRevision, cut(first(l["app.kubernetes.io/version"], l["version"], "latest")))
	in.label(networkLabel, in.o.Values.Global.Network)
	return nil
}

func (in *injection) firstApp() string {
	for _, c := range in.pod.Spec.Containers {
		if c.Name != proxyName && !slices.Contains(otherMeshes, c.Name) {
			return c.Name
		}
	}
	return ""
}

func first(names ...string) string {
	for _, n := range names {
		if n != "" {
			return n
		}
	}
	return ""
}

// cut keeps a label's value within what the API takes.
func cut(s string) string {
	if len(s) > 63 {
		s = s[:63]
	}
	for s != "" && !alphanumeric(s[len(s)-1]) {
		s = s[:len(s)-1]
	}
	return s
}

func alphanumeric(b byte) bool {
	return b >= 'a' && b <= 'z' || b >= 'A' && b <= 'Z' || b >= '0' && b <= '9'
}

// record adds volumes and pull secrets, and writes down what is ours.
func (in *injection) record() error {
	for _, c := range in.pod.Spec.InitContainers {
		if c.Name == initName || c.Name == proxyName {
			in.status.InitContainers = append(in.status.InitContainers, c.Name)
		}
	}
	for _, c := range in.pod.Spec.Containers {
		if c.Name == proxyName {
			in.status.Containers = append(in.status.Containers, c.Name)
		}
	}
	if in.settings.proxy {
		in.addVolumes()
	}
	for _, v := range in.pod.Spec.Volumes {
		if !in.hadVolume[v.Name] {
			in.status.Volumes = append(in.status.Volumes, v.Name)
		}
	}
	in.addPullSecrets()
	in.status.Revision = in.o.revision()
	for key, value := range map[string]any{statusKey: in.status, overridesKey: in.memory} {
		text, err := json.Marshal(value)
		if err != nil {
			return err
		}
		if in.pod.Annotations == nil {
			in.pod.Annotations = map[string]string{}
		}
		in.pod.Annotations[key] = string(text)
	}
	return nil
}

func (in *injection) addPullSecrets() {
	had := map[string]bool{}
	for _, s := range in.pod.Spec.ImagePullSecrets {
		had[s.Name] = true
	}
	for _, name := range in.o.Values.Global.ImagePullSecrets {
		if !had[name] {
			in.pod.Spec.ImagePullSecrets = append(in.pod.Spec.ImagePullSecrets, corev1.LocalObjectReference{Name: name})
			in.status.ImagePullSecrets = append(in.status.ImagePullSecrets, name)
		}
	}
}
