package objects

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"outrider.dev/internal/core/mesh"
)

// The field trafficDistribution takes precedence over Istio's annotation.
func TestTrafficDistribution(t *testing.T) {
	for name, tt := range map[string]struct {
		field, annotation string
		want              mesh.Traffic
		err               string
	}{
		"neither":                 {want: mesh.AnyTraffic},
		"the field":               {field: "PreferSameNode", annotation: "PreferClose", want: mesh.SameNode},
		"the annotation":          {annotation: "PreferClose", want: mesh.SameZone},
		"an annotation's case":    {annotation: "prefersamenode", want: mesh.SameNode},
		"an annotation's mistake": {annotation: "near", err: `networking.istio.io/traffic-distribution: "near" is unknown: must be PreferClose`},
	} {
		t.Run(name, func(t *testing.T) {
			s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: "b", Annotations: map[string]string{trafficDistribution: tt.annotation}}}
			s.Spec.Ports = []corev1.ServicePort{{Port: 80}}
			if tt.field != "" {
				s.Spec.TrafficDistribution = &tt.field
			}
			out, err := Service(s)
			switch {
			case tt.err == "" && (err != nil || out.Traffic != tt.want):
				t.Errorf("%+v, %v; want %v", out, err, tt.want)
			case tt.err != "" && (err == nil || !strings.Contains(err.Error(), tt.err)):
				t.Errorf("%v, want %s", err, tt.err)
			}
		})
	}
}
