// Package validation tests with the API server's own code that injected pods are valid. It handles a new object as
// the API server does: defaults, conversion, validation, warnings, and Pod Security. It is a separate module, so that
// Outrider's go.mod does not contain k8s.io/kubernetes.
package validation

import (
	"context"
	"fmt"
	"regexp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/validation/field"
	feature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	podutil "k8s.io/kubernetes/pkg/api/pod"
	"k8s.io/kubernetes/pkg/apis/apps"
	_ "k8s.io/kubernetes/pkg/apis/apps/install"
	appsvalidation "k8s.io/kubernetes/pkg/apis/apps/validation"
	"k8s.io/kubernetes/pkg/apis/batch"
	_ "k8s.io/kubernetes/pkg/apis/batch/install"
	batchvalidation "k8s.io/kubernetes/pkg/apis/batch/validation"
	"k8s.io/kubernetes/pkg/apis/core"
	_ "k8s.io/kubernetes/pkg/apis/core/install"
	corevalidation "k8s.io/kubernetes/pkg/apis/core/validation"
	"k8s.io/kubernetes/pkg/capabilities"
	"k8s.io/kubernetes/pkg/features"
	security "k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"
)

// decoder decodes an object of any version as the API server does: unknown and duplicate fields are
// errors, defaults are set, and the result has the internal version.
var decoder = serializer.NewCodecFactory(legacyscheme.Scheme, serializer.EnableStrict).UniversalDecoder()

// init allows privileged containers, as the flag --allow-privileged of the API server does. Clusters in which a
// DaemonSet installs the network plugin need it.
func init() { capabilities.Setup(true, 0) }

// init enables two feature gates, which are on by default from 1.37 on. Without them the API server silently removes
// a ClusterTrustBundle from a pod's volume.
func init() {
	err := feature.DefaultMutableFeatureGate.SetFromMap(map[string]bool{string(features.ClusterTrustBundle): true, string(features.ClusterTrustBundleProjection): true})
	if err != nil {
		panic(err)
	}
}

// A verdict is the result of the API server's code for an object that contains a pod.
type verdict struct {
	object   string // kind and name
	pod      *core.Pod
	errors   []string
	warnings []string
	level    security.Level // the strictest Pod Security level that admits the pod
}

const namespace = "shop"

// judge handles the creation of an object, given as JSON, and of the pod that a controller creates from its template.
func judge(raw []byte) (verdict, error) {
	o, kind, err := decoder.Decode(raw, nil, nil)
	if err != nil {
		return verdict{}, err
	}
	of := o.(metav1.Object)
	of.SetNamespace(namespace)
	v := verdict{object: kind.Kind + " " + of.GetName()}
	if pod, ok := o.(*core.Pod); ok {
		v.create(pod)
		return v, nil
	}
	template, at := templateOf(o)
	if template == nil {
		return v, fmt.Errorf("%s has no pod", v.object)
	}
	podutil.DropDisabledTemplateFields(template, nil)
	v.fail(validate(o, podutil.GetValidationOptionsFromPodTemplate(template, nil)))
	v.warnings = podutil.GetWarningsForPodTemplate(context.Background(), at, template, nil)
	pod := external(&core.Pod{ObjectMeta: template.ObjectMeta, Spec: template.Spec})
	pod.Namespace, pod.Name, pod.GenerateName = namespace, of.GetName()+"-0", of.GetName()+"-"
	if set, ok := o.(*apps.StatefulSet); ok {
		for _, claim := range set.Spec.VolumeClaimTemplates {
			pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: claim.Name, VolumeSource: corev1.VolumeSource{
				PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim.Name + "-" + pod.Name}}})
		}
	}
	v.create(internal(pod))
	return v, nil
}

func templateOf(o runtime.Object) (*core.PodTemplateSpec, *field.Path) {
	at := field.NewPath("spec", "template")
	switch o := o.(type) {
	case *apps.Deployment:
		return &o.Spec.Template, at
	case *apps.StatefulSet:
		return &o.Spec.Template, at
	case *apps.DaemonSet:
		return &o.Spec.Template, at
	case *apps.ReplicaSet:
		return &o.Spec.Template, at
	case *batch.Job:
		return &o.Spec.Template, at
	case *batch.CronJob:
		return &o.Spec.JobTemplate.Spec.Template, field.NewPath("spec", "jobTemplate", "spec", "template")
	}
	return nil, nil
}

// validate validates an object with the same calls as the strategies in k8s.io/kubernetes/pkg/registry.
func validate(o runtime.Object, opts corevalidation.PodValidationOptions) field.ErrorList {
	switch o := o.(type) {
	case *apps.Deployment:
		return appsvalidation.ValidateDeployment(o, opts)
	case *apps.StatefulSet:
		return appsvalidation.ValidateStatefulSet(o, opts)
	case *apps.DaemonSet:
		return appsvalidation.ValidateDaemonSet(o, opts)
	case *apps.ReplicaSet:
		return appsvalidation.ValidateReplicaSet(o, opts)
	case *batch.CronJob:
		return batchvalidation.ValidateCronJobCreate(o, opts)
	case *batch.Job:
		// A Job is validated without its selector, which the API server generates.
		return append(corevalidation.ValidateObjectMeta(&o.ObjectMeta, true, corevalidation.ValidateReplicationControllerName, field.NewPath("metadata")),
			batchvalidation.ValidateJobTemplateSpec(&batch.JobTemplateSpec{Spec: o.Spec}, field.NewPath(""), opts)...)
	}
	panic(fmt.Sprintf("%T has no pod", o))
}

// create handles the creation of a pod: the admission that sets the service account, and then the strategy of pods
// (pkg/registry/core/pod).
func (v *verdict) create(pod *core.Pod) {
	if pod.Spec.ServiceAccountName == "" {
		pod.Spec.ServiceAccountName = "default"
	}
	podutil.DropDisabledPodFields(pod, nil)
	opts := podutil.GetValidationOptionsFromPodSpecAndMeta(&pod.Spec, nil, &pod.ObjectMeta, nil)
	opts.ResourceIsPod = true
	v.pod = pod
	v.fail(corevalidation.ValidatePodCreate(pod, opts))
	v.warnings = append(v.warnings, podutil.GetWarningsForPod(context.Background(), pod, nil)...)
	for i := range v.warnings {
		v.warnings[i] = places.ReplaceAllString(v.warnings[i], "containers[]")
	}
	v.level = levelOf(external(pod))
}

// places matches paths with indexes of containers, which change when injection inserts a container before others, or
// makes one a sidecar.
var places = regexp.MustCompile(`(initContainers|containers)\[\d+\](\.ports\[\d+\])?`)

func (v *verdict) fail(all field.ErrorList) {
	for _, e := range all {
		if !slices.Contains(v.errors, e.Error()) {
			v.errors = append(v.errors, e.Error())
		}
	}
}

// internal sets the defaults of a pod, and returns it in the internal version, which the API server validates.
func internal(pod *corev1.Pod) *core.Pod {
	legacyscheme.Scheme.Default(pod)
	out := &core.Pod{}
	if err := legacyscheme.Scheme.Convert(pod, out, nil); err != nil {
		panic(err) // every pod can be converted
	}
	return out
}

// external returns a pod in version v1, as the API server serves it.
func external(pod *core.Pod) *corev1.Pod {
	out := &corev1.Pod{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}}
	if err := legacyscheme.Scheme.Convert(pod.DeepCopy(), out, nil); err != nil {
		panic(err) // every pod can be converted
	}
	return out
}

var evaluator = func() policy.Evaluator {
	e, err := policy.NewEvaluator(policy.DefaultChecks())
	if err != nil {
		panic(err)
	}
	return e
}()

func levelOf(pod *corev1.Pod) security.Level {
	for _, level := range []security.Level{security.LevelRestricted, security.LevelBaseline} {
		at := security.LevelVersion{Level: level, Version: security.LatestVersion()}
		if policy.AggregateCheckResults(evaluator.EvaluatePod(at, &pod.ObjectMeta, &pod.Spec)).Allowed {
			return level
		}
	}
	return security.LevelPrivileged
}
