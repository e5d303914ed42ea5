package podspec

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"outrider.dev/startup"
)

func TestHelperContainers(t *testing.T) {
	for name, c := range map[string]struct {
		argv, want []string
	}{
		"its gate names them":          {[]string{AgentPath, "gate", "--name", "db", "--helper-of", "app,report", "--", "postgres"}, []string{"app", "report"}},
		"one flag, as people write it": {[]string{AgentPath, "gate", "--helper-of=app", "--", "postgres"}, []string{"app"}},
		"a gate without it":            {[]string{AgentPath, "gate", "--name", "db", "--", "postgres"}, nil},
		"the command's own flag":       {[]string{AgentPath, "gate", "--", "postgres", "--helper-of", "app"}, nil},
		"no gate":                      {[]string{"postgres", "--helper-of", "app"}, nil},
	} {
		if got := HelperOf(&corev1.Container{Command: c.argv[:1], Args: c.argv[1:]}); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

func TestHelpersOfAJob(t *testing.T) {
	gate := func(from, to string, after startup.Condition) startup.Edge {
		return startup.Edge{From: from, To: to, After: after, By: startup.Gate}
	}
	edges := []startup.Edge{
		gate("db", "cache", startup.Healthy), gate("cache", "app", startup.Healthy), gate("db", "report", startup.Healthy),
		gate("migrate", "app", startup.Completed), gate("first", "app", startup.Started),
		gate("side", "app", startup.Healthy), gate(OurProxy, "app", startup.Healthy),
	}
	for _, c := range []struct {
		name   string
		policy corev1.RestartPolicy
		want   []string
	}{
		{"db", corev1.RestartPolicyNever, []string{"app", "first", "migrate", "report", "uploads"}},
		{"cache", corev1.RestartPolicyOnFailure, []string{"app", "first", "migrate", "report", "uploads"}}, // report may use the cache without declaring it
		{"db", corev1.RestartPolicyAlways, nil},
		{"db", "", nil},
		{"migrate", corev1.RestartPolicyNever, nil}, // ends by itself
		{"first", corev1.RestartPolicyNever, nil},   // has work of its own
		{"app", corev1.RestartPolicyNever, nil},
		{"side", corev1.RestartPolicyNever, nil}, // the kubelet ends it, after all others
		{OurProxy, corev1.RestartPolicyNever, nil},
	} {
		always := corev1.ContainerRestartPolicyAlways
		pod := &corev1.Pod{Spec: corev1.PodSpec{RestartPolicy: c.policy, InitContainers: []corev1.Container{{Name: "side", RestartPolicy: &always}}}}
		for _, name := range []string{OurProxy, "db", "cache", "app", "report", "migrate", "first", "uploads", "no gate"} {
			pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: name})
		}
		if got := helpersIn(pod, edges, []string{"uploads"}).served(c.name); !slices.Equal(got, c.want) {
			t.Errorf("%s with %s helps %v, want %v", c.name, c.policy, got, c.want)
		}
	}
}
