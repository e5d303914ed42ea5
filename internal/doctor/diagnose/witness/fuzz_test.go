package witness

import (
	"bytes"
	"context"
	"io"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"outrider.dev/internal/doctor"
	"outrider.dev/internal/doctor/diagnose/calls"
	"outrider.dev/internal/doctor/diagnose/result"
	"outrider.dev/internal/doctor/evidence"
)

// No text beside a pod makes reading it, or asking it, fail.
func FuzzText(f *testing.F) {
	for _, s := range []string{
		"NAME ENDPOINTS AGE\norders   <none>   3d\n", "Name: a\nTargetPort: 1/TCP\nPort: x 80/TCP\nEndpoints: 10.0.0.1:1,\n", "kind: Service\nmetadata: {name: a}\nspec: {ports: [{port: 80, targetPort: x}]}\n",
		"kind: EndpointSlice\nmetadata: {labels: {kubernetes.io/service-name: a}}\nendpoints: [{addresses: [x]}]\n", "kind: NetworkPolicy\nspec: {policyTypes: [Egress], egress: [{to: [{ipBlock: {cidr: 1.2.3.4/5}}]}]}\n",
		"a -> 10.0.0.1:80 DROPPED web\n", "listen 127.0.0.1:80\n", "NAME   READY   STATUS\nweb-1   0/1   Error\n", "$ kubectl -n a logs b\nFATAL x\n", "kind: List\nitems:\n- kind: List\n  items: [{kind: Endpoints, metadata: {name: a}}]\n",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		open := func(context.Context) (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(data)), nil }
		p := evidence.NewPod(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "shop"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "app"}, {Name: "envoy"}}}}, evidence.Source{})
		p.Beside = []evidence.Beside{{Log: evidence.NewLog(evidence.Source{File: "x.txt"}, open, nil)}}
		all := calls.Calls{{Failure: calls.Refused, Container: "app", To: doctor.Destination{Host: "10.0.0.1", Port: 80}}, {Failure: calls.TimedOut, Container: "app", To: doctor.Destination{Host: "a.b.svc", Port: 80}}, {Failure: calls.Unresolved, Container: "app", To: doctor.Destination{Host: "a"}}}
		r, err := Read(t.Context(), p, all, false)
		if err != nil {
			t.Fatal(err)
		}
		for _, y := range all {
			if a, is := r.Of(Question{Failure: y.Failure, To: y.To, Said: "EAI_AGAIN"}); is && (a.Sentence == "" || a.Remedy == "" || len(a.Quotes) == 0) {
				t.Errorf("%+v", a)
			}
		}
		r.SetToListen(80, "app")
		var found result.Finding
		r.NamesKey(&found, "couldn't find key a_b in Secret shop/web")
		r.About(&found, "web")
	})
}
