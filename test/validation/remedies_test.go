package validation

import (
	"encoding/json"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/apimachinery/pkg/util/validation/field"
	podutil "k8s.io/kubernetes/pkg/api/pod"
	"k8s.io/kubernetes/pkg/apis/apps"
	appsvalidation "k8s.io/kubernetes/pkg/apis/apps/validation"
	"k8s.io/kubernetes/pkg/apis/batch"
	batchvalidation "k8s.io/kubernetes/pkg/apis/batch/validation"
	corevalidation "k8s.io/kubernetes/pkg/apis/core/validation"
	"sigs.k8s.io/yaml"

	"outrider.dev/internal/doctor/diagnose/remedies"
	"outrider.dev/internal/doctor/evidence"
)

// A made is an object that makes pods, as a cluster has it.
type made struct {
	manifest string
	version  any // an empty object of its version
	owners   []evidence.Owner
	refs     []metav1.OwnerReference
}

const containers = `metadata: {labels: {app: web}, annotations: {kept: "yes"}}, spec: {restartPolicy: Always, containers: [{name: app, image: "example.com/app:1"}]}`

var makers = map[string]made{
	"Deployment": {
		`{apiVersion: apps/v1, kind: Deployment, metadata: {name: web, namespace: shop, resourceVersion: "1"}, spec: {selector: {matchLabels: {app: web}}, template: {` + containers + `}}}`,
		appsv1.Deployment{}, []evidence.Owner{{Kind: "ReplicaSet", Name: "web-5d9c"}, {Kind: "Deployment", Name: "web"}}, refsTo("apps/v1", "ReplicaSet", "web-5d9c"),
	},
	"StatefulSet": {
		`{apiVersion: apps/v1, kind: StatefulSet, metadata: {name: web, namespace: shop, resourceVersion: "1"}, spec: {serviceName: web, selector: {matchLabels: {app: web}}, template: {` + containers + `}}}`,
		appsv1.StatefulSet{}, []evidence.Owner{{Kind: "StatefulSet", Name: "web"}}, refsTo("apps/v1", "StatefulSet", "web"),
	},
	"DaemonSet": {
		`{apiVersion: apps/v1, kind: DaemonSet, metadata: {name: web, namespace: shop, resourceVersion: "1"}, spec: {selector: {matchLabels: {app: web}}, template: {` + containers + `}}}`,
		appsv1.DaemonSet{}, []evidence.Owner{{Kind: "DaemonSet", Name: "web"}}, refsTo("apps/v1", "DaemonSet", "web"),
	},
	"ReplicaSet": {
		`{apiVersion: apps/v1, kind: ReplicaSet, metadata: {name: web, namespace: shop, resourceVersion: "1"}, spec: {selector: {matchLabels: {app: web}}, template: {` + containers + `}}}`,
		appsv1.ReplicaSet{}, []evidence.Owner{{Kind: "ReplicaSet", Name: "web", Object: &metav1.ObjectMeta{}}}, refsTo("apps/v1", "ReplicaSet", "web"),
	},
	"CronJob": {
		`{apiVersion: batch/v1, kind: CronJob, metadata: {name: web, namespace: shop, resourceVersion: "1"}, spec: {schedule: "0 1 * * *", jobTemplate: {spec: {template: {` + strings.ReplaceAll(containers, "Always", "Never") + `}}}}}`,
		batchv1.CronJob{}, []evidence.Owner{{Kind: "Job", Name: "web-1", Object: &metav1.ObjectMeta{OwnerReferences: refsTo("batch/v1", "CronJob", "web")}}, {Kind: "CronJob", Name: "web"}}, refsTo("batch/v1", "Job", "web-1"),
	},
	"Job": {
		`{apiVersion: batch/v1, kind: Job, metadata: {name: web, namespace: shop, resourceVersion: "1"}, spec: {template: {` + strings.ReplaceAll(containers, "Always", "Never") + `}}}`,
		batchv1.Job{}, []evidence.Owner{{Kind: "Job", Name: "web"}}, refsTo("batch/v1", "Job", "web"),
	},
	"Pod": {
		`{apiVersion: v1, kind: Pod, metadata: {name: web, namespace: shop, resourceVersion: "1", annotations: {kept: "yes"}}, spec: {containers: [{name: app, image: "example.com/app:1"}]}}`,
		corev1.Pod{}, nil, nil,
	},
}

func refsTo(version, kind, name string) []metav1.OwnerReference {
	return []metav1.OwnerReference{{APIVersion: version, Kind: kind, Name: name, UID: "u"}}
}

// The API server takes each patch that a diagnosis advises, and refuses that of an object for which a part of a
// manifest is advised instead; of that it takes a new object.
func TestRemediesAreTaken(t *testing.T) {
	tried := 0
	for kind, m := range makers { // in any order: subtests
		for proxy, image := range map[string]string{"istio-proxy": "proxyv2:1.21.2", "linkerd-proxy": "proxy:stable-2.14.10", "kuma-sidecar": "kuma-dp:2.9.1", "daprd": "daprd:1.15.1", "outrider-proxy": "outrider-proxy:1.4.0"} { // in any order: subtests
			for p := remedies.Start; p <= remedies.End; p++ {
				pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web-5d9c-x2", OwnerReferences: m.refs}}
				a := remedies.Of(remedies.Case{Purpose: p, Pod: pod, Owners: m.owners, Proxy: proxy, Image: image, App: "app", Port: 5432})
				if a.Patch+a.Change == "" { // the words say what to do
					continue
				}
				tried++
				t.Run(strings.Join([]string{kind, proxy, string(rune('0' + p))}, " "), func(t *testing.T) { m.takes(t, kind, a) })
			}
		}
	}
	if tried < 100 {
		t.Errorf("only %d remedies were tried", tried)
	}
}

func (m made) takes(t *testing.T, kind string, a remedies.Advice) {
	t.Helper()
	before, err := yaml.YAMLToJSON([]byte(m.manifest))
	if err != nil {
		t.Fatal(err)
	}
	change, err := yaml.YAMLToJSON([]byte(a.Patch + a.Change))
	if err != nil {
		t.Fatal(err)
	}
	after, err := strategicpatch.StrategicMergePatch(before, change, m.version)
	if err != nil {
		t.Fatal(err)
	}
	if text := string(after); !strings.Contains(text, `"kept":"yes"`) || len(after) <= len(before) {
		t.Errorf("the change is not in %s", text)
	}
	v, err := judge(fresh(t, after))
	if err != nil || len(v.errors) > 0 || len(v.pod.Annotations) != 2 {
		t.Errorf("%v %v: annotations %v of the pods", err, v.errors, v.pod.Annotations)
	}
	immutable := kind == "Job"
	if kind == "Pod" { // its annotations may change, and nothing reads them then
		return
	}
	errors := updated(t, before, after)
	if refused := len(errors) > 0; refused != immutable || (a.Patch == "") != immutable {
		t.Errorf("an update has the errors %v, and the advice is %+v", errors, a)
	}
	if immutable && !strings.Contains(errors.ToAggregate().Error(), "field is immutable") {
		t.Error(errors)
	}
}

// fresh returns an object as its manifest has it.
func fresh(t *testing.T, raw []byte) []byte {
	t.Helper()
	var o map[string]any
	if err := json.Unmarshal(raw, &o); err != nil {
		t.Fatal(err)
	}
	delete(o["metadata"].(map[string]any), "resourceVersion")
	out, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// updated returns the errors of an update, with the same calls as the strategies in k8s.io/kubernetes/pkg/registry.
func updated(t *testing.T, before, after []byte) field.ErrorList {
	t.Helper()
	var objects []runtime.Object
	for _, raw := range [][]byte{before, after} {
		o, _, err := decoder.Decode(raw, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		objects = append(objects, o)
	}
	opts := corevalidation.PodValidationOptions{}
	if template, _ := templateOf(objects[1]); template != nil {
		opts = podutil.GetValidationOptionsFromPodTemplate(template, template)
	}
	switch o := objects[1].(type) {
	case *apps.Deployment:
		return appsvalidation.ValidateDeploymentUpdate(o, objects[0].(*apps.Deployment), opts)
	case *apps.StatefulSet:
		return appsvalidation.ValidateStatefulSetUpdate(o, objects[0].(*apps.StatefulSet), opts)
	case *apps.DaemonSet:
		o.Spec.TemplateGeneration++ // as the API server does
		return appsvalidation.ValidateDaemonSetUpdate(o, objects[0].(*apps.DaemonSet), opts)
	case *apps.ReplicaSet:
		return appsvalidation.ValidateReplicaSetUpdate(o, objects[0].(*apps.ReplicaSet), opts)
	case *batch.CronJob:
		return batchvalidation.ValidateCronJobUpdate(o, objects[0].(*batch.CronJob), opts)
	case *batch.Job:
		was := objects[0].(*batch.Job)
		selector := &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}} // the API server generates it
		o.Spec.Selector, was.Spec.Selector = selector, selector
		return batchvalidation.ValidateJobUpdate(o, was, batchvalidation.JobValidationOptions{PodValidationOptions: opts})
	}
	t.Fatalf("%T has no update", objects[1])
	return nil
}
