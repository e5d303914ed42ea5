package evidence

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func TestInsteadOfALog(t *testing.T) {
	spec := corev1.PodSpec{Containers: []corev1.Container{
		{Name: "orders", Image: "registry.example/orders:2"},
		{Name: "deploy", Image: "registry.example/tools:1", Command: []string{"sh", "-c", "kubectl apply -f /m"}},
	}}
	p := &Pod{Object: &corev1.Pod{Spec: spec}}
	const kubelet = `Error from server: Get "https://192.168.7.3:10250/containerLogs/shop/a/orders?tailLines=5": dial tcp 192.168.7.3:10250: i/o timeout`
	for name, c := range map[string]struct { // in any order: subtests
		text, container, want string
	}{
		"the kubelet does not answer":            {kubelet + "\n", "orders", kubelet},
		"also of a container that runs kubectl":  {kubelet, "deploy", kubelet},
		"a note stands before it":                {"Defaulted container \"orders\" out of: orders, deploy\n" + kubelet + "\n", "orders", kubelet},
		"a container that waits":                 {`Error from server (BadRequest): container "orders" in pod "a" is waiting to start: ContainerCreating`, "orders", `Error from server (BadRequest): container "orders" in pod "a" is waiting to start: ContainerCreating`},
		"no earlier run":                         {`Error from server (BadRequest): previous terminated container "deploy" in pod "a" not found`, "deploy", `Error from server (BadRequest): previous terminated container "deploy" in pod "a" not found`},
		"the user may not read logs":             {`Error from server (Forbidden): pods "a" is forbidden: User "eve" cannot get resource "pods/log" in API group ""`, "deploy", `Error from server (Forbidden): pods "a" is forbidden: User "eve" cannot get resource "pods/log" in API group ""`},
		"the log is gone":                        {"unable to retrieve container logs for containerd://12", "orders", "unable to retrieve container logs for containerd://12"},
		"several containers":                     {"error: a container name must be specified for pod a, choose one of: [orders deploy]", "orders", "error: a container name must be specified for pod a, choose one of: [orders deploy]"},
		"no API server":                          {"Unable to connect to the server: dial tcp 10.0.0.1:6443: connect: connection refused", "orders", "Unable to connect to the server: dial tcp 10.0.0.1:6443: connect: connection refused"},
		"the container's own kubectl":            {"Unable to connect to the server: dial tcp 10.96.0.1:443: connect: connection refused", "deploy", ""},
		"a container that is not known":          {"Unable to connect to the server: dial tcp 10.96.0.1:443: connect: connection refused", "other", ""},
		"its own answer of the API server":       {`Error from server (NotFound): deployments.apps "web" not found`, "deploy", ""},
		"an address that only a pod calls":       {"The connection to the server 10.96.0.1:443 was refused - did you specify the right host or port?", "orders", ""},
		"a program's own error":                  {"error: dial tcp 10.0.0.7:5432: connect: connection refused", "orders", ""},
		"a log with such a line at its end":      {"listening on 8080\n" + kubelet, "orders", ""},
		"a program that calls a kubelet":         {`E0101 scraping Get "https://10.0.0.3:10250/metrics": dial tcp 10.0.0.3:10250: connect: connection refused`, "orders", ""},
		"an empty log":                           {"\n", "orders", ""},
		"a log of which only the note was saved": {"Defaulted container \"orders\" out of: orders, deploy\n", "orders", ""},
	} {
		t.Run(name, func(t *testing.T) {
			if got := p.Instead([]byte(c.text), c.container); got != c.want {
				t.Errorf("Instead of %q: %q, want %q", c.text, got, c.want)
			}
		})
	}
}

func FuzzInstead(f *testing.F) {
	f.Add("Error from server: /containerLogs/", "app")
	f.Fuzz(func(t *testing.T, text, container string) {
		p := &Pod{Object: &corev1.Pod{}}
		if says := p.Instead([]byte(text), container); text == "" && says != "" {
			t.Errorf("%q", says)
		}
	})
}
