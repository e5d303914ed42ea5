package chain

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"outrider.dev/internal/doctor/diagnose/result"
	"outrider.dev/internal/doctor/evidence"
)

// LimitChanged adds to a finding about the memory of a container that its limit is not the one of the pod template: something
// changed it when the pod was created, or later.
func (c *Case) LimitChanged(f *result.Finding) {
	spec, controller := c.Spec(f.Container), metav1.GetControllerOf(c.Object)
	if spec == nil || controller == nil || controller.Kind != "ReplicaSet" && controller.Kind != "Job" { // the templates of others may have changed since
		return
	}
	limit, set := spec.Resources.Limits[corev1.ResourceMemory]
	for _, o := range c.Owners {
		if o.Kind != controller.Kind || o.Name != controller.Name || o.Template == nil || !set {
			continue
		}
		for _, t := range o.Template.Spec.Containers {
			meant, has := t.Resources.Limits[corev1.ResourceMemory]
			if t.Name != f.Container || has && meant.Cmp(limit) == 0 {
				continue
			}
			said, who := meant.String(), "an admission webhook, a VerticalPodAutoscaler or a resize"
			if !has {
				said, who = "not set", "a LimitRange or an admission webhook"
			}
			f.Sentence += fmt.Sprintf(": its limit is %s, and %s in the pod template: %s changed it", limit.String(), said, who)
			f.Evidence = append(f.Evidence, c.Quote(evidence.Time{}, "memory limit of %s: %s, of the template of %s %s: %s", f.Container, limit.String(), o.Kind, o.Name, said))
			f.Remedy.Sentence = fmt.Sprintf("find out what sets the memory limit of %s to %s (%s), and correct it there: the template does not decide it", f.Container, limit.String(), who)
			f.Remedy.Command = "kubectl get mutatingwebhookconfiguration"
			if !has {
				f.Remedy.Command = c.Kubectl("describe limitrange")
			}
			return
		}
	}
}
