package simulate

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"outrider.dev/internal/model/kubelet"
	"outrider.dev/startup"
)

// PodOf is a pod as its plan describes it: what the plan says is healthy by a
// probe or a hook has one, by exec, once a second.
func PodOf(p startup.Plan) kubelet.Pod {
	var pod kubelet.Pod
	for _, c := range p.Containers {
		k := kubelet.Container{Name: c.Name}
		everySecond := kubelet.Probe{Handler: kubelet.Exec, Period: time.Second, Failures: 60}
		switch c.Health {
		case startup.StartupProbe:
			k.Startup = everySecond
		case startup.ReadinessProbe:
			k.Readiness = everySecond
		case startup.PostStart:
			k.PostStart = kubelet.Exec
		}
		switch c.Kind {
		case startup.Init:
			pod.Init = append(pod.Init, k)
		case startup.Sidecar:
			k.Restart = kubelet.Always
			pod.Init = append(pod.Init, k)
		default:
			pod.Containers = append(pod.Containers, k)
			if pod.Restart == "" {
				pod.Restart = policies[c.Restart]
			}
		}
	}
	return pod
}

var policies = map[startup.Restart]kubelet.RestartPolicy{
	startup.Always: kubelet.Always, startup.OnFailure: kubelet.OnFailure, startup.Never: kubelet.Never,
}

// ParsePod is [PodOf] with what its plan cannot say, from text:
//
//	grace 10s
//	proxy: startup probe every 5s, pre-stop
//	app: liveness probe every 10s failing 3 times
//
// The error is a *SyntaxError.
func ParsePod(p startup.Plan, text string) (kubelet.Pod, error) {
	pod := PodOf(p)
	for i, line := range strings.Split(text, "\n") {
		line, _, _ = strings.Cut(line, "#")
		if strings.TrimSpace(line) == "" {
			continue
		}
		if err := parsePodLine(&pod, line); err != nil {
			return kubelet.Pod{}, &SyntaxError{Line: i + 1, Reason: err.Error()}
		}
	}
	return pod, nil
}

func parsePodLine(pod *kubelet.Pod, line string) (err error) {
	name, said, ofContainer := strings.Cut(line, ":")
	if w := strings.Fields(line); !ofContainer {
		if len(w) != 2 || w[0] != "grace" {
			return fmt.Errorf("%q says nothing about a pod: want grace D, or NAME: and its probes and hooks", strings.Join(w, " "))
		}
		pod.Grace, err = positive(w[1])
		return err
	}
	c := find(pod, strings.TrimSpace(name))
	if c == nil {
		return fmt.Errorf("the plan has no container %q", strings.TrimSpace(name))
	}
	for said := range strings.SplitSeq(said, ",") {
		if err := parse(c, podClauses, strings.Fields(said)); err != nil {
			return err
		}
	}
	return nil
}

func find(pod *kubelet.Pod, name string) *kubelet.Container {
	for _, list := range [][]kubelet.Container{pod.Init, pod.Containers} {
		if i := slices.IndexFunc(list, func(c kubelet.Container) bool { return c.Name == name }); i >= 0 {
			return &list[i]
		}
	}
	return nil
}

// podClauses is everything that can be said of a container's specification.
var podClauses = []clause[kubelet.Container]{
	{"post-start", "", func(c *kubelet.Container, v values) error { c.PostStart = kubelet.Exec; return nil }},
	{"pre-stop", "", func(c *kubelet.Container, v values) error { c.PreStop = kubelet.Exec; return nil }},
	{"startup probe every D", "", func(c *kubelet.Container, v values) error { return setProbe(&c.Startup, v) }},
	{"startup probe every D failing N times", "", func(c *kubelet.Container, v values) error { return setProbe(&c.Startup, v) }},
	{"liveness probe every D", "", func(c *kubelet.Container, v values) error { return setProbe(&c.Liveness, v) }},
	{"liveness probe every D failing N times", "", func(c *kubelet.Container, v values) error { return setProbe(&c.Liveness, v) }},
	{"readiness probe every D", "", func(c *kubelet.Container, v values) error { return setProbe(&c.Readiness, v) }},
}

func setProbe(p *kubelet.Probe, v values) error {
	if v.times[0] < time.Second || v.times[0]%time.Second != 0 {
		return fmt.Errorf("a probe every %s: Kubernetes counts in whole seconds", v.times[0])
	}
	*p = kubelet.Probe{Handler: kubelet.Exec, Period: v.times[0]}
	if len(v.ints) > 0 {
		p.Failures = v.ints[0]
	}
	return nil
}
