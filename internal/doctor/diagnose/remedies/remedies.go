// Package remedies says how to change the order of a proxy and an application so that the change takes effect: by what
// the version of the proxy's mesh has, and in the object that made the pod.
//
// Where to read: ways.go, what each mesh has, from which version on; release.go, versions; owner.go, the object that
// made a pod, and where the annotations of its pods are.
package remedies

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/base/manifest"
	"outrider.dev/internal/doctor/evidence"
	"outrider.dev/startup"
)

// A Case asks for a remedy.
type Case struct {
	Purpose
	Pod    *corev1.Pod
	Owners []evidence.Owner // nearest first
	Proxy  string           // its container
	Image  string           // of the proxy
	App    string
	Port   uint16 // of the failed call; 0: not known
	// Unowned says that the owners of the pod are not in the evidence: it is not known that it has none.
	Unowned bool
	Works   bool // the pod does its work by now, or has done it: a change is for the next one
}

// An Advice is a remedy that can be applied.
type Advice struct {
	Sentence string
	Command  string            // for kubectl, without the namespace; it uses the file of Patch or Change; may be empty
	Patch    string            // of the owner, for kubectl patch; empty: there is none, or the owner takes none
	Change   string            // the part of the owner's manifest that changes, if it takes no patch
	By       startup.Mechanism // of the order at the start; empty: none
}

// Of returns the remedy for a case.
func Of(c Case) Advice {
	version, known := c.release()
	fill := c.filler(version, known)
	if c.isNative() {
		return Advice{Sentence: fill.Replace(already[c.Purpose])}
	}
	var notes []string
	for _, w := range ways {
		if !c.serves(w) {
			continue
		}
		if known && !version.has(w.since) {
			notes = append(notes, w.older)
			continue
		}
		value, ok := c.value(w, fill)
		if !ok {
			continue
		}
		also := append([]string{w.also}, notes...)
		if w.since != (since{}) && !known {
			also = append(also, fmt.Sprintf("it needs version %d.%d of the mesh, and the image of {proxy} does not say its version", w.since.release[0], w.since.release[1]))
		}
		return c.advice(w, value, also, fill)
	}
	if !slices.ContainsFunc(ways, func(w way) bool { return w.proxy == c.container() }) {
		return Advice{Sentence: fill.Replace(byHand[c.Purpose]), By: startup.Native}
	}
	return Advice{Sentence: joined(otherwise[c.Purpose], notes, fill)}
}

// release returns the version of the proxy's mesh: by the image that is specified, or that runs, or as Linkerd notes it.
func (c Case) release() (release, bool) {
	images := []string{c.Image}
	for _, s := range slices.Concat(c.Pod.Status.InitContainerStatuses, c.Pod.Status.ContainerStatuses) {
		if s.Name == c.Proxy {
			images = append(images, s.Image)
		}
	}
	if c.Proxy == "linkerd-proxy" {
		images = append(images, "proxy:"+c.Pod.Annotations["linkerd.io/proxy-version"])
	}
	for _, image := range images {
		if r, known := releaseOf(image); known {
			return r, true
		}
	}
	return release{}, false
}

// isNative reports whether the proxy is a native sidecar.
func (c Case) isNative() bool {
	return slices.ContainsFunc(c.Pod.Spec.InitContainers, func(i corev1.Container) bool {
		return i.Name == c.Proxy && i.RestartPolicy != nil && *i.RestartPolicy == corev1.ContainerRestartPolicyAlways
	})
}

// container returns the proxy's name in the table. Consul has one proxy for each service of a pod, whose name follows,
// and the proxies of some meshes are named as a plain Envoy.
func (c Case) container() string {
	_, osm := c.Pod.Labels["osm-proxy-uuid"]
	switch {
	case strings.HasPrefix(c.Proxy, "consul-dataplane-"):
		return "consul-dataplane"
	case strings.Contains(c.Image, "appmesh-envoy"):
		return "App Mesh"
	case osm && c.Proxy == "envoy":
		return "OSM"
	}
	return c.Proxy
}

func (c Case) serves(w way) bool {
	return w.proxy == c.container() && slices.Contains(w.purposes, c.Purpose)
}

// filler replaces what the case knows of.
func (c Case) filler(version release, known bool) *strings.Replacer {
	pairs := []string{"{app}", c.App, "{proxy}", c.Proxy}
	if c.Port > 0 {
		pairs = append(pairs, "{port}", fmt.Sprint(c.Port))
	}
	if s := c.grace(); s > 0 {
		pairs = append(pairs, "{grace}", fmt.Sprint(s))
	}
	if known {
		pairs = append(pairs, "{release}", version.String())
	}
	return strings.NewReplacer(pairs...)
}

// reserve is the time in seconds that a proxy keeps for its own end, of the pod's grace period.
const reserve = 5

// grace returns the seconds for which a proxy can go on when its pod is deleted; 0: too few.
func (c Case) grace() int64 {
	period := int64(corev1.DefaultTerminationGracePeriodSeconds)
	if s := c.Pod.Spec.TerminationGracePeriodSeconds; s != nil {
		period = *s
	}
	return max(period-reserve, 0)
}

// value returns the value of the annotation, and false if the way does not fit the case: it needs what is not known, or
// the pod has it already.
func (c Case) value(w way, fill *strings.Replacer) (string, bool) {
	value := fill.Replace(w.value)
	if strings.ContainsAny(fill.Replace(w.words+w.annotation)+value, "{}") {
		return "", false
	}
	has := c.Pod.Annotations[w.annotation]
	switch {
	case w.config != "":
		return c.configured(w.config, value)
	case w.list && has != "":
		list := strings.Split(has, ",")
		return has + "," + value, !slices.ContainsFunc(list, func(p string) bool { return strings.TrimSpace(p) == value })
	case w.annotation != "":
		return value, has != value
	}
	return "", true
}

// configured returns the annotation proxy.istio.io/config of the pod with one field set, and false if it cannot be read
// or has it already.
func (c Case) configured(field, value string) (string, bool) {
	config := map[string]any{}
	if text := c.Pod.Annotations[contract.ProxyConfig]; text != "" && manifest.DecodeAnnotation(text, &config) != nil {
		return "", false
	}
	was := fmt.Sprint(config[field])
	config[field] = json.RawMessage(value)
	text, err := json.Marshal(config)
	return string(text), err == nil && was != strings.Trim(value, `"`)
}

// advice returns the remedy by a way.
func (c Case) advice(w way, value string, also []string, fill *strings.Replacer) Advice {
	a := Advice{By: w.by}
	name := fill.Replace(w.annotation)
	if w.config != "" {
		name = contract.ProxyConfig
	}
	words := w.words
	if words == "" {
		words = "make {proxy} a native sidecar (Kubernetes 1.29), " + nativeWords[c.Purpose]
	}
	if name == "" {
		a.Sentence = joined(words, also, fill)
		return a
	}
	owner := OwnerOf(c.Pod, c.Owners)
	if c.Unowned && owner.Kind == "" {
		owner = Owner{Kind: unknown, Name: "this pod"}
	}
	at := placeOf(owner)
	text := fmt.Sprintf("metadata:\n  annotations:\n    %s: %q\n", name, value)
	for _, field := range slices.Backward(at.path) {
		text = nest(field, text)
	}
	kind := owner.Kind
	words += ", by the annotation " + name
	switch {
	case at.path == nil:
		words += fmt.Sprintf(": %q", value)
	case at.patched:
		a.Patch, kind = text, strings.ToLower(kind)
	default:
		a.Change = text
	}
	put := strings.NewReplacer("{kind}", kind, "{name}", owner.Name, "{pod}", c.Pod.Name)
	where := at.words
	switch {
	case (c.Purpose == End || c.Works) && at.next != "":
		where = at.next
	default:
		a.Command = put.Replace(at.command)
	}
	a.Sentence = joined(words+put.Replace(where), also, fill)
	return a
}

func nest(field, text string) string {
	return field + ":\n  " + strings.TrimSuffix(strings.ReplaceAll(text, "\n", "\n  "), "  ")
}

// joined returns a sentence with notes after it.
func joined(words string, notes []string, fill *strings.Replacer) string {
	out := fill.Replace(words)
	for _, n := range notes {
		if n != "" {
			out += "; " + fill.Replace(n)
		}
	}
	return out
}
