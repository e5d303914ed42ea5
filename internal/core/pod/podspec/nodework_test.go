package podspec

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"outrider.dev/internal/base/contract"
	"outrider.dev/startup"
	"outrider.dev/test/pods"
)

// For a gate that the node adds, Write changes no command and adds no volume. Read finds the same order as with a
// gate in the pod.
func TestWriteForNode(t *testing.T) {
	given := pods.Parse(t, `
spec:
  containers:
  - {name: outrider-proxy, image: p, readinessProbe: {httpGet: {path: /healthz/ready, port: 15021}}}
  - {name: app, image: a, args: [serve], startupProbe: {tcpSocket: {port: 80}}, lifecycle: {postStart: {exec: {command: [warm]}}}}
  - {name: cache, image: c, readinessProbe: {tcpSocket: {port: 6379}}, livenessProbe: {tcpSocket: {port: 6379}, initialDelaySeconds: 9}}
`)
	plan := startup.Plan{Edges: []startup.Edge{
		{From: OurProxy, To: "cache", After: startup.Healthy, By: startup.Gate},
		{From: "cache", To: "app", After: startup.Healthy, By: startup.Gate},
	}}
	written, err := WriteForNode(given, plan)
	if err != nil {
		t.Fatal(err)
	}
	if len(written.Spec.Volumes) > 0 || len(written.Spec.InitContainers) > 0 {
		t.Errorf("volumes %v, init containers %v", written.Spec.Volumes, written.Spec.InitContainers)
	}
	work, ok := NodeWork(written)
	if !ok || !slices.Equal(slices.Sorted(maps.Keys(work.Containers)), []string{"app", "cache", OurProxy}) || len(work.Containers[OurProxy]) > 0 {
		t.Fatalf("the node's work is %s", written.Annotations[contract.NodeAnnotation])
	}
	for i, c := range written.Spec.Containers {
		if was := given.Spec.Containers[i]; !slices.Equal(c.Command, was.Command) || !slices.Equal(c.Args, was.Args) || len(c.VolumeMounts) > 0 {
			t.Errorf("%s runs %q %q and mounts %v", c.Name, c.Command, c.Args, c.VolumeMounts)
		}
		if c.Name != OurProxy && !IsStarted(&c) {
			t.Errorf("the startup probe of %s is %v", c.Name, c.StartupProbe)
		}
	}
	r, err := Read(written)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range plan.Edges {
		if !slices.Contains(r.Plan().Edges, e) {
			t.Errorf("%s is not read back: %v", e, r.Plan().Edges)
		}
	}
	for _, f := range r.Found {
		if f.Mechanism == startup.Gate && (f.Replaceable || !strings.HasSuffix(f.By, "by the node") || !strings.Contains(f.Evidence.Field, contract.NodeAnnotation)) {
			t.Errorf("found %+v", f)
		}
	}
	again, err := WriteForNode(written, r.Plan())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(written, again); diff != "" {
		t.Errorf("written again (-first +again):\n%s", diff)
	}
	undone := Ungated(written)
	undone.ObjectMeta.Annotations = nil // the annotation with the edges stays
	if diff := cmp.Diff(given, undone); diff != "" {
		t.Errorf("undone (-given +undone):\n%s", diff)
	}
}

// Invalid work for a node is not applied, and removing it does not remove anything that the author wrote.
func TestNodeWorkThatCannotBeRead(t *testing.T) {
	p := pods.Parse(t, `
metadata: {annotations: {outrider.dev/node-work: '{"containers":{"app":["rm"]}}'}}
spec: {containers: [{name: app, image: a, command: [/app]}]}
`)
	if AsRun(p) != p {
		t.Error("a gate that the agent would not accept is read")
	}
	if out := Ungated(p); !slices.Equal(out.Spec.Containers[0].Command, []string{"/app"}) {
		t.Errorf("the command is %q", out.Spec.Containers[0].Command)
	}
}

// A container that mounts something else in the directory of the gates cannot get the node's mount.
func TestNodeWorkNeedsItsDirectory(t *testing.T) {
	p := pods.Parse(t, `
spec:
  volumes: [{name: v, emptyDir: {}}]
  containers: [{name: outrider-proxy, image: p}, {name: app, image: a, volumeMounts: [{name: v, mountPath: /outrider/own/x}]}]
`)
	_, err := WriteForNode(p, startup.Plan{Edges: []startup.Edge{{From: OurProxy, To: "app", After: startup.Healthy, By: startup.Gate}}})
	if taken := new(TakenError); !errors.As(err, &taken) {
		t.Errorf("%v; want that /outrider/own/x is taken", err)
	}
}

// In an environment without the node plugin, an init container does the node's work. The gates are the same; if
// the pod sets no command, the gate wraps the command of the image.
func TestInsteadOfNode(t *testing.T) {
	given := pods.Parse(t, `
spec:
  containers:
  - {name: outrider-proxy, image: p, readinessProbe: {httpGet: {path: /healthz/ready, port: 15021}}}
  - {name: app, image: a, args: [serve]}
`)
	plan := startup.Plan{Edges: []startup.Edge{{From: OurProxy, To: "app", After: startup.Healthy, By: startup.Gate}}}
	written, err := WriteForNode(given, plan)
	if err != nil {
		t.Fatal(err)
	}
	work, _ := NodeWork(written)
	work.Capture = []string{"-p", "15001"}
	SetNodeWork(written, work)
	got, err := InsteadOfNode(written, "agent", func(image string) []string { return []string{"/" + image} })
	if err != nil {
		t.Fatal(err)
	}
	if _, still := NodeWork(got); still {
		t.Error("the annotation is still there")
	}
	first, app := got.Spec.InitContainers[0], got.Spec.Containers[1]
	if line, ok := gateLine(&app); !ok || !slices.Equal(line.Command, []string{"/a", "serve"}) || len(app.VolumeMounts) != 3 {
		t.Errorf("the application runs %q %q", app.Command, app.Args)
	}
	if want := []string{"init", "--copy", AgentPath, "-p", "15001"}; first.Image != "agent" || len(first.Command) > 0 || !slices.Equal(first.Args, want) {
		t.Errorf("the init container runs %q %q", first.Command, first.Args)
	}
	r, err := Read(got)
	if err != nil || !slices.Contains(r.Plan().Edges, plan.Edges[0]) {
		t.Errorf("the order is %v, %v", r.Plan().Edges, err)
	}
	if same, err := InsteadOfNode(given, "agent", nil); same != given || err != nil {
		t.Errorf("a pod without work for a node became another one: %v", err)
	}
}
