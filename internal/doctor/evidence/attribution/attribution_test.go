package attribution

import (
	"bytes"
	"context"
	"io"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"outrider.dev/internal/doctor/evidence"
)

// The form of the lines shows the program; lines of applications show none.
func TestPrograms(t *testing.T) {
	for line, want := range map[string]string{
		"[     0.002511s]  INFO ThreadId(01) linkerd2_proxy: Admin interface on 0.0.0.0:4191": "linkerd-proxy",
		`time="2026-03-02T10:00:00Z" level=info msg="x" app_id=a scope=dapr.runtime`:          "daprd",
		"2026-03-02T10:00:00.882Z\tINFO\tkuma-dp.run\tstarting Kuma DP":                       "kuma-sidecar",
		"2026-03-02T10:00:00.871Z [INFO]  consul-dataplane.server: x":                         "consul-dataplane",
		"2026/03/02 10:00:00 [acme:eu:db] Listening on 127.0.0.1:5432":                        "cloud-sql-proxy",
		"2026-03-02T10:00:00.118440Z\twarn\tca\tca request failed":                            "istio-proxy",
		"-A ISTIO_OUTPUT -d 127.0.0.1/32 -j RETURN":                                           "istio-init",
		"2026-03-02T10:00:00Z\tinfo\tcontroller started":                                      "",
		"1:M 02 Mar 2026 10:00:00.214 * Reading RDB base file":                                "",
		"INFO connecting to linkerd and envoy":                                                "",
	} {
		if got := ProgramIn([]byte(line + "\n")); got != want {
			t.Errorf("%s: %q, want %q", line, got, want)
		}
	}
}

func logOf(text []byte, heading string) Log {
	return Log{Heading: heading, Log: evidence.NewLog(evidence.Source{File: "x.txt"}, func(context.Context) (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(text)), nil }, nil)}
}

// FuzzOf checks that a log is of none but the containers of the pod, and that the reason is said unless it names its own.
func FuzzOf(f *testing.F) {
	f.Add("sidecar of it:", []byte("[     0.002511s]  INFO ThreadId(01) linkerd2_proxy: x\n"))
	f.Add("", []byte("# another cluster\n2026-03-02T10:00:00Z FATAL x\n"))
	f.Fuzz(func(t *testing.T, heading string, text []byte) {
		p := evidence.NewPod(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web-0"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "web"}, {Name: "linkerd-proxy"}}}}, evidence.Source{})
		for _, find := range []func(context.Context, *evidence.Pod, Log) (Match, bool){Of, Left} {
			if m, ok := find(t.Context(), p, logOf(text, heading)); ok && p.Container(m.Container.Name) != m.Container {
				t.Fatalf("%+v", m)
			}
		}
		RunOf(t.Context(), p.Containers[0], logOf(text, heading).Log)
	})
}
