package bugreport

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"outrider.dev/internal/base/mask"
	"outrider.dev/internal/core/controlplane/debugapi"
	"outrider.dev/internal/ops/kubeclient"
	"outrider.dev/internal/ops/replicas"
)

// A listing describes a file of the report that contains the objects of one kind. There is none for Secrets.
type listing struct {
	file     string
	resource schema.GroupVersionResource
	own      bool                        // only objects of the control plane, by namespace and label; otherwise of the whole cluster
	reduce   func(o map[string]any) bool // removes parts that are not needed; if it returns false, the object is left out
}

func resource(group, version, name string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: group, Version: version, Resource: name}
}

var listings = []listing{
	{"control-plane/deployments.yaml", resource("apps", "v1", "deployments"), true, nil},
	{"control-plane/replicasets.yaml", resource("apps", "v1", "replicasets"), true, nil},
	{"control-plane/services.yaml", resource("", "v1", "services"), true, nil},
	{"control-plane/endpointslices.yaml", resource("discovery.k8s.io", "v1", "endpointslices"), true, nil},
	{"control-plane/poddisruptionbudgets.yaml", resource("policy", "v1", "poddisruptionbudgets"), true, nil},
	{"control-plane/networkpolicies.yaml", resource("networking.k8s.io", "v1", "networkpolicies"), true, nil},
	{"cluster/mutatingwebhookconfigurations.yaml", resource("admissionregistration.k8s.io", "v1", "mutatingwebhookconfigurations"), false, withoutBundles},
	{"cluster/customresourcedefinitions.yaml", resource("apiextensions.k8s.io", "v1", "customresourcedefinitions"), false, ofMeshes},
	{"cluster/nodes.yaml", resource("", "v1", "nodes"), false, only("status.nodeInfo", "status.conditions", "spec.taints")},
	{"cluster/namespaces.yaml", resource("", "v1", "namespaces"), false, only("status.phase")},
}

// withoutBundles replaces the CA bundle of each webhook by its size.
func withoutBundles(o map[string]any) bool {
	hooks, _, _ := unstructured.NestedSlice(o, "webhooks")
	for _, h := range hooks {
		hook, _ := h.(map[string]any)
		config, _ := hook["clientConfig"].(map[string]any)
		if bundle, ok := config["caBundle"].(string); ok {
			config["caBundle"] = fmt.Sprintf("(%d characters)", len(bundle))
		}
	}
	return unstructured.SetNestedSlice(o, hooks, "webhooks") == nil
}

// ofMeshes selects definitions of the kinds that meshes read, and removes the schemas of their versions.
func ofMeshes(o map[string]any) bool {
	group, _, _ := unstructured.NestedString(o, "spec", "group")
	if !slices.ContainsFunc([]string{"istio.io", "outrider.dev", "gateway.networking.k8s.io", "gateway.networking.x-k8s.io"}, func(of string) bool {
		return group == of || strings.HasSuffix(group, "."+of)
	}) {
		return false
	}
	versions, _, _ := unstructured.NestedSlice(o, "spec", "versions")
	for _, v := range versions {
		if version, ok := v.(map[string]any); ok {
			delete(version, "schema")
		}
	}
	return unstructured.SetNestedSlice(o, versions, "spec", "versions") == nil
}

// only returns a function that removes all fields except names, labels, times and the given fields.
func only(fields ...string) func(map[string]any) bool {
	return func(o map[string]any) bool {
		kept := map[string]any{}
		for _, f := range append(fields, "metadata.name", "metadata.labels", "metadata.creationTimestamp", "metadata.deletionTimestamp") {
			names := strings.Split(f, ".")
			if v, there, _ := unstructured.NestedFieldCopy(o, names...); there {
				_ = unstructured.SetNestedField(kept, v, names...) // cannot fail, because all these maps are made here
			}
		}
		for _, f := range []string{"spec", "status", "metadata"} {
			if delete(o, f); kept[f] != nil {
				o[f] = kept[f]
			}
		}
		return true
	}
}

func (r *report) cluster() error {
	for _, l := range listings {
		if err := r.list(l); err != nil {
			return err
		}
	}
	namespaces := []string{r.ControlPlane}
	if r.Namespace != r.ControlPlane {
		namespaces = append(namespaces, r.Namespace)
	}
	for _, n := range namespaces {
		if err := r.events(n); err != nil {
			return err
		}
	}
	return nil
}

// list adds the file of a listing.
func (r *report) list(l listing) error {
	in, o := "", metav1.ListOptions{Limit: 500}
	if l.own {
		in, o.LabelSelector = r.ControlPlane, replicas.Selector
	}
	all, ok := read(r, l.resource.Resource, func(ctx context.Context) (*unstructured.UnstructuredList, error) {
		return r.Dynamic.Resource(l.resource).Namespace(in).List(ctx, o)
	})
	if !ok {
		return nil
	}
	if all.GetContinue() != "" {
		r.leaveOut("%s: there are more than %d", l.file, o.Limit)
	}
	items := []any{}
	for _, item := range all.Items {
		if l.reduce == nil || l.reduce(item.Object) {
			items = append(items, lean(item.Object))
		}
	}
	return r.yaml(File{Path: l.file, Kind: Objects, Namespace: in}, map[string]any{"apiVersion": "v1", "kind": "List", "items": items})
}

// lean returns an object without managedFields, which only the API server needs.
func lean(o map[string]any) map[string]any {
	unstructured.RemoveNestedField(o, "metadata", "managedFields")
	return o
}

// events adds the newest events of a namespace.
func (r *report) events(namespace string) error {
	all, ok := read(r, "events of namespace "+cmp.Or(namespace, "(all)"), func(ctx context.Context) (*corev1.EventList, error) {
		return r.Core.CoreV1().Events(namespace).List(ctx, metav1.ListOptions{Limit: 5 * maxEvents})
	})
	if !ok {
		return nil
	}
	items := all.Items
	slices.SortStableFunc(items, func(a, b corev1.Event) int { return newest(b).Compare(newest(a).Time) })
	if all.Continue != "" || len(items) > maxEvents {
		r.leaveOut("events of namespace %s: of those that were read, the newest %d are there", cmp.Or(namespace, "(all)"), maxEvents)
		items = items[:min(len(items), maxEvents)]
	}
	for i := range items {
		items[i].ManagedFields = nil
	}
	return r.yaml(File{Path: path.Join("events", cmp.Or(namespace, "all-namespaces")+".yaml"), Kind: Objects, Namespace: namespace},
		map[string]any{"apiVersion": "v1", "kind": "List", "items": items})
}

func newest(e corev1.Event) *metav1.Time {
	if e.LastTimestamp.IsZero() {
		return &metav1.Time{Time: e.EventTime.Time}
	}
	return &e.LastTimestamp
}

// controlPlane adds for each replica its pod, its logs, and the pages that it serves.
func (r *report) controlPlane() error {
	all, ok := read(r, "the replicas", func(ctx context.Context) (*corev1.PodList, error) {
		return r.Core.CoreV1().Pods(r.ControlPlane).List(ctx, metav1.ListOptions{LabelSelector: replicas.Selector})
	})
	if !ok {
		return nil
	}
	for _, p := range all.Items {
		if err := r.pod(path.Join("control-plane/pods", p.Name), &p); err != nil {
			return err
		}
		if p.Status.Phase != corev1.PodRunning {
			continue
		}
		if err := r.served(&p); err != nil {
			return err
		}
	}
	return nil
}

// served adds the pages that a replica serves.
func (r *report) served(p *corev1.Pod) error {
	get := r.get
	if get == nil {
		if _, ok := read(r, "replica "+p.Name, func(ctx context.Context) (string, error) { return r.set.Monitoring(ctx, p.Name) }); !ok {
			return nil
		}
		get = func(ctx context.Context, pod, at string) ([]byte, error) {
			body, _, err := r.set.Get(ctx, pod, at, maxAnswer)
			return body, err
		}
	}
	dir := path.Join("control-plane/pods", p.Name)
	for _, f := range []struct {
		path, name string
		kind       Kind
	}{
		{"/version", "version.json", Version}, {"/debug/proxies", "proxies.json", Proxies},
		{"/debug/problems", "problems.json", Problems}, {"/metrics", "metrics.txt", Metrics},
	} {
		text, ok := read(r, p.Name+f.path, func(ctx context.Context) ([]byte, error) { return get(ctx, p.Name, f.path) })
		if !ok {
			continue
		}
		if err := r.answer(File{Path: path.Join(dir, f.name), Kind: f.kind, Namespace: p.Namespace, Pod: p.Name}, text); err != nil {
			return err
		}
		if f.kind == Proxies {
			if err := r.summaries(p, get, text); err != nil {
				return err
			}
		}
	}
	return nil
}

// answer adds a page of a replica. Secrets in it are masked, and JSON is indented.
func (r *report) answer(f File, text []byte) error {
	var v any
	if json.Unmarshal(text, &v) == nil {
		return r.json(f, v)
	}
	return r.add(f, r.mask.Text(text))
}

// summaries adds, for each of the first proxies of the namespace, a list of the resources that the control plane has
// sent to it, without their bodies.
func (r *report) summaries(p *corev1.Pod, get func(context.Context, string, string) ([]byte, error), proxies []byte) error {
	var all []debugapi.Proxy
	if err := json.Unmarshal(proxies, &all); err != nil {
		r.fail(p.Name+"/debug/proxies", err)
		return nil
	}
	n := 0
	for _, proxy := range all {
		if r.Namespace != "" && proxy.Namespace != r.Namespace {
			continue
		}
		if n++; n > r.Pods {
			r.leaveOut("resources of more than %d proxies of replica %s", r.Pods, p.Name)
			return nil
		}
		resources, ok := read(r, "resources of "+proxy.ID, func(ctx context.Context) ([]debugapi.Resource, error) {
			text, err := get(ctx, p.Name, "/debug/proxy?"+url.Values{"id": {proxy.ID}}.Encode())
			if err != nil {
				return nil, err
			}
			var out []debugapi.Resource
			err = json.Unmarshal(text, &out)
			for i := range out {
				out[i].Body = nil
			}
			return out, err
		})
		if !ok {
			continue
		}
		f := File{Path: path.Join("control-plane/pods", p.Name, "resources", strconv.Itoa(n)+".json"), Kind: Resources, Namespace: proxy.Namespace, Pod: proxy.Name()}
		if err := r.json(f, resources); err != nil {
			return err
		}
	}
	return nil
}

// pods adds the newest pods with a proxy.
func (r *report) pods() error {
	var meshed []corev1.Pod
	o := metav1.ListOptions{Limit: 500}
	for {
		l, ok := read(r, "pods", func(ctx context.Context) (*corev1.PodList, error) {
			return r.Core.CoreV1().Pods(r.Namespace).List(ctx, o)
		})
		if !ok {
			break
		}
		for _, p := range l.Items {
			if kubeclient.Proxy(&p) != nil {
				meshed = append(meshed, p)
			}
		}
		if o.Continue = l.Continue; o.Continue == "" {
			break
		}
	}
	slices.SortFunc(meshed, func(a, b corev1.Pod) int {
		return cmp.Or(b.CreationTimestamp.Compare(a.CreationTimestamp.Time), strings.Compare(a.Namespace+"/"+a.Name, b.Namespace+"/"+b.Name))
	})
	if len(meshed) > r.Pods {
		r.leaveOut("pods with a proxy: the newest %d of %d are there", r.Pods, len(meshed))
		meshed = meshed[:r.Pods]
	}
	for i, p := range meshed {
		r.Progress.Wait("reading pod %d of %d with a proxy", i+1, len(meshed))
		if err := r.pod(path.Join("pods", p.Namespace, p.Name), &p); err != nil {
			return err
		}
	}
	return nil
}

// pod adds a pod and the logs of its containers. Secret values of its environment variables are masked
// in its logs too.
func (r *report) pod(dir string, p *corev1.Pod) error {
	r.mask = &mask.Masker{}
	defer func() { r.mask = &mask.Masker{} }()
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(p)
	if err != nil {
		return err
	}
	object["apiVersion"], object["kind"] = "v1", "Pod"
	if err := r.yaml(File{Path: path.Join(dir, "pod.yaml"), Kind: PodObject, Namespace: p.Namespace, Pod: p.Name}, lean(object)); err != nil {
		return err
	}
	for _, s := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses, p.Status.EphemeralContainerStatuses) {
		if s.State.Running != nil || s.State.Terminated != nil {
			if err := r.log(dir, p, s.Name, false); err != nil {
				return err
			}
		}
		if s.LastTerminationState.Terminated != nil {
			if err := r.log(dir, p, s.Name, true); err != nil {
				return err
			}
		}
	}
	return nil
}

// maxLines limits the lines that are read from a log.
const maxLines = 20_000

func (r *report) log(dir string, p *corev1.Pod, container string, previous bool) error {
	name := container + ".log"
	if previous {
		name = container + ".previous.log"
	}
	lines := int64(maxLines)
	o := &corev1.PodLogOptions{Container: container, Previous: previous, Timestamps: true, TailLines: &lines}
	text, ok := read(r, fmt.Sprintf("log of %s/%s, %s", p.Namespace, p.Name, name), func(ctx context.Context) ([]byte, error) {
		from, err := r.logs(ctx, p.Namespace, p.Name, o)
		if err != nil {
			return nil, err
		}
		defer from.Close()
		return lastOf(from, r.Log)
	})
	if !ok {
		return nil
	}
	lost := len(text) > r.Log || bytes.Count(text, []byte("\n")) >= maxLines
	text, cut := tail(r.mask.Text(text), r.Log)
	f := File{Path: path.Join(dir, name), Kind: Log, Namespace: p.Namespace, Pod: p.Name, Container: container, Previous: previous,
		Truncated: cut || lost}
	return r.add(f, text)
}

// lastOf reads to the end and returns the last lines, at most 2*most bytes. It leaves out a first line that is
// incomplete: without the name at its beginning, a secret in it would not be masked.
func lastOf(from io.Reader, most int) ([]byte, error) {
	var kept []byte
	cut := false
	part := make([]byte, 64<<10)
	for {
		n, err := from.Read(part)
		kept = append(kept, part[:n]...)
		if len(kept) > 2*most {
			kept, cut = append(kept[:0], kept[len(kept)-most:]...), true
		}
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, err
		}
	}
	if cut {
		_, kept, _ = bytes.Cut(kept, []byte("\n"))
	}
	return kept, nil
}
