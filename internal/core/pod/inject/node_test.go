package inject

import (
	"errors"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/core/pod/inject/containers"
	"outrider.dev/internal/core/pod/inject/verdict"
	"outrider.dev/internal/core/pod/podspec"
)

// The order of precedence is: the pod's annotation, the namespace's annotation, the mesh's value, the work that
// the nodes offer.
func TestWhoCaptures(t *testing.T) {
	const none = ""
	for _, tt := range []struct {
		pod, namespace, value string
		offered, byNode       bool
	}{
		{none, none, none, false, false},
		{none, none, none, true, true},
		{"auto", none, none, true, true},
		{"container", none, none, true, false},
		{"node", none, none, false, true},
		{none, "node", none, false, true},
		{none, none, "node", false, true},
		{none, "container", "node", true, false},
		{"node", "container", "container", false, true},
		{"auto", "node", "node", false, false},
	} {
		p := podOf(t, "metadata: {name: shop}\nspec: {"+plainApp+"}")
		if tt.pod != none {
			p.Annotations = map[string]string{contract.Init: tt.pod}
		}
		ns := Namespace{Name: "shop"}
		if tt.namespace != none {
			ns.Annotations = map[string]string{contract.Init: tt.namespace}
		}
		o := Options{NodeServes: tt.offered}
		o.Values.Injector.Init = tt.value
		r, err := Pod(p, ns, o)
		if err != nil {
			t.Fatalf("%+v: %v", tt, err)
		}
		work, byNode := podspec.NodeWork(r.Pod)
		if byNode != tt.byNode || byNode == (containers.Find(r.Pod, contract.InitContainer) != nil) {
			t.Errorf("%+v: the node's work is %v, and the pod has %v", tt, work, r.Pod.Spec.InitContainers)
		}
		if said := slices.ContainsFunc(r.Notes, func(n string) bool { return strings.Contains(n, "the nodes capture") }); said != tt.byNode {
			t.Errorf("%+v: notes %q", tt, r.Notes)
		}
	}
}

// If the nodes capture connections, pods can be injected in a namespace with any level of pod security.
func TestNodeWorkNeedsNoPrivilege(t *testing.T) {
	for _, level := range []string{"baseline", "restricted"} {
		ns := Namespace{Name: "shop", Labels: map[string]string{contract.NamespaceLabel: "enabled", contract.PodSecurityLabel: level}}
		p := podOf(t, "metadata: {name: shop}\nspec: {"+plainApp+"}")
		var refusal *verdict.Refusal
		if _, err := Pod(p, ns, Options{}); !errors.As(err, &refusal) || refusal.Code != verdict.PodSecurity || !strings.Contains(refusal.Hint, contract.Init+": node") {
			t.Errorf("%s, by an init container: %v", level, err)
		}
		r, err := Pod(p, ns, Options{NodeServes: true})
		if err != nil {
			t.Fatalf("%s, by the node: %v", level, err)
		}
		for _, c := range slices.Concat(r.Pod.Spec.InitContainers, r.Pod.Spec.Containers) {
			if s := c.SecurityContext; s != nil && s.Capabilities != nil && len(s.Capabilities.Add) > 0 {
				t.Errorf("%s: %s has %v", level, c.Name, s.Capabilities.Add)
			}
		}
		for _, v := range r.Pod.Spec.Volumes {
			if v.HostPath != nil || slices.Contains(podspec.Volumes, v.Name) {
				t.Errorf("%s: the pod has the volume %s", level, v.Name)
			}
		}
	}
}

// Settings that an init container would get as environment variables, from the mesh's proxyMetadata, become flags
// for the node.
func TestNodeCapturesByTheMeshsVariables(t *testing.T) {
	p := podOf(t, `
metadata: {name: shop, annotations: {outrider.dev/init: node, traffic.sidecar.istio.io/excludeOutboundPorts: "5432",
  proxy.istio.io/config: '{"proxyMetadata": {"ISTIO_META_DNS_CAPTURE": "true", "PROXY_UID": "7", "OTHER": "x"}}'}}
spec: {`+plainApp+`}`)
	work, _ := podspec.NodeWork(injected(t, p, Options{}).Pod)
	if !slices.Contains(work.Capture, "--redirect-dns=true") || !slices.Contains(work.Capture, "5432") || strings.Contains(strings.Join(work.Capture, " "), "--proxy-uid") {
		t.Errorf("the flags are %q", work.Capture)
	}
}

// Injection adds our plugin to the required plugins, and keeps the others.
func TestNodeIsRequired(t *testing.T) {
	for given, want := range map[string]string{"": "[outrider]", "[other]": "[other, outrider]", "- outrider\n- other": "[outrider, other]"} {
		p := podOf(t, "metadata: {name: shop}\nspec: {"+plainApp+"}")
		p.Annotations = map[string]string{contract.Init: contract.InitByNode}
		if given != "" {
			p.Annotations[contract.RequiredPlugins] = given
		}
		r := injected(t, p, Options{})
		if got := r.Pod.Annotations[contract.RequiredPlugins]; got != want || r.Pod.Spec.NodeSelector[contract.NodeLabel] != contract.NodeInstalled {
			t.Errorf("%q becomes %q, and the pod selects %v", given, got, r.Pod.Spec.NodeSelector)
		}
		if diff := podDiff(p, mustStrip(t, r.Pod)); diff != "" {
			t.Errorf("undone (-given +undone):\n%s", diff)
		}
	}
	for annotation, value := range map[string]string{contract.RequiredPlugins: "{a: b}", contract.NodeAnnotation: "{}", contract.Init: "nodes"} {
		p := podOf(t, "metadata: {name: shop}\nspec: {"+plainApp+"}")
		p.Annotations = map[string]string{contract.Init: contract.InitByNode}
		p.Annotations[annotation] = value
		var refusal *verdict.Refusal
		if _, err := Pod(p, Namespace{Name: "shop"}, Options{}); !errors.As(err, &refusal) || refusal.Code != verdict.InvalidAnnotation || !strings.Contains(refusal.Sentence, annotation) {
			t.Errorf("%s: %s: %v", annotation, value, err)
		}
	}
}

// If the pod gets no order, the proxy is at the position where the author lists it; otherwise it is the first
// container.
func TestPlaceOfTheProxy(t *testing.T) {
	for _, tt := range []struct{ annotations, containers, hook, want string }{
		{`outrider.dev/start: "off"`, "app", "", "outrider-proxy app"},
		{`outrider.dev/start: "off"`, "app outrider-proxy", "", "app outrider-proxy"},
		{`outrider.dev/start: "off"`, "outrider-proxy app", "", "outrider-proxy app"},
		{`outrider.dev/start: "off"`, "app istio-proxy log", "", "app outrider-proxy log"},
		{`outrider.dev/start: "off"`, "app outrider-proxy", ", lifecycle: {postStart: {exec: {command: [a]}}}", "app outrider-proxy"},
		{"outrider.dev/start: gate", "app outrider-proxy", "", "outrider-proxy app"},
	} {
		for _, init := range []string{contract.InitByNode, contract.InitContained} {
			var list []string
			for name := range strings.FieldsSeq(tt.containers) {
				c := "{name: " + name + ", image: x, command: [/x]" + tt.hook + "}"
				if strings.HasSuffix(name, "-proxy") {
					c = "{name: " + name + ", image: auto}"
				}
				list = append(list, c)
			}
			p := podOf(t, "metadata: {name: shop, annotations: {outrider.dev/init: "+init+", "+tt.annotations+"}}\nspec: {containers: ["+strings.Join(list, ", ")+"]}")
			r, err := Pod(p, Namespace{Name: "shop"}, Options{})
			if err != nil {
				t.Fatalf("%+v: %v", tt, err)
			}
			all := func(pod *corev1.Pod) string {
				var out []string
				for _, c := range pod.Spec.Containers {
					out = append(out, c.Name)
				}
				return strings.Join(out, " ")
			}
			if got := all(r.Pod); got != tt.want {
				t.Errorf("%s: %+v: the containers are %s", init, tt, got)
			}
			again, err := Pod(r.Pod, Namespace{Name: "shop"}, Options{})
			if err != nil || all(again.Pod) != tt.want {
				t.Errorf("%s: %+v: injected again: %s, %v", init, tt, all(again.Pod), err)
			}
			if stripped, err := Stripped(r.Pod); err != nil || tt.annotations == `outrider.dev/start: "off"` && all(stripped) != tt.containers {
				t.Errorf("%s: %+v: stripped: %s, %v", init, tt, all(stripped), err)
			}
			if warned := strings.Contains(strings.Join(r.Warnings, "\n"), "postStart"); warned != (tt.hook != "") {
				t.Errorf("%s: %+v: warnings %q", init, tt, r.Warnings)
			}
		}
	}
}

// A first arrangement may show that the proxy must be a sidecar. Its messages are then dropped together with it.
func TestOnlyTheArrangementThatIsUsedReports(t *testing.T) {
	p := podOf(t, `metadata: {name: shop, annotations: {outrider.dev/start: "off", outrider.dev/depends-on.app: outrider-proxy}}
spec: {containers: [{name: app, image: x, lifecycle: {postStart: {exec: {command: [a]}}}}, {name: outrider-proxy, image: auto}]}`)
	r := injected(t, p, Options{})
	if len(r.Pod.Spec.InitContainers) != 2 || r.Pod.Spec.InitContainers[1].Name != contract.ProxyContainer {
		t.Fatalf("the proxy is no sidecar: %v", r.Pod.Spec.InitContainers)
	}
	if said := strings.Join(slices.Concat(r.Notes, r.Warnings), "\n"); strings.Contains(said, "before the proxy") || strings.Contains(said, "starts after app") {
		t.Errorf("the proxy is the first to start, and the reports have:\n%s", said)
	}
}

// If a container declares a port of the proxy under several names, the clash is reported once.
func TestClashIsReportedOnce(t *testing.T) {
	p := podOf(t, "metadata: {name: shop}\nspec: {containers: [{name: app, image: x, command: [/x], ports: [{name: a, containerPort: 15001}, {name: b, containerPort: 15001}]}]}")
	if r := injected(t, p, Options{}); len(r.Clashes) != 1 {
		t.Errorf("the clashes are %v", r.Clashes)
	}
}
