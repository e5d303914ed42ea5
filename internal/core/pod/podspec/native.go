package podspec

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"outrider.dev/internal/core/pod/podstart"
	"outrider.dev/startup"
)

// native recognises a restartable init container. Every container listed after the sidecar starts later. Such a
// container waits until the sidecar is healthy only if the sidecar has a startup probe or a blocking hook.
func native(r *reader, c podContainer) {
	if c.kind != startup.Sidecar {
		return
	}
	f := podstart.Found{Container: c.Name, Mechanism: startup.Native, By: "native sidecar",
		Evidence: podstart.Evidence{Field: c.field() + ".restartPolicy", Text: "Always"}}
	after := startup.Started
	switch {
	case r.holdsItself(c):
		after = startup.Healthy
		f.Evidence = podstart.Evidence{Field: c.field() + ".lifecycle.postStart.exec.command", Text: hookText(c)}
	case c.StartupProbe != nil:
		after = startup.Healthy
		f.Evidence = podstart.Evidence{Field: c.field() + ".startupProbe", Text: probeText(c.StartupProbe)}
	}
	f.Edges = make([]startup.Edge, 0, len(r.all)-c.at-1)
	for _, to := range r.all[c.at+1:] {
		f.Edges = append(f.Edges, startup.Edge{From: c.Name, To: to.Name, After: after, By: startup.Native})
	}
	r.add(f)
}

// probeText returns a short description of a probe.
func probeText(p *corev1.Probe) string {
	every := max(p.PeriodSeconds, 1)
	if p.PeriodSeconds == 0 {
		every = 10 // the API server's default
	}
	what := "probe"
	switch {
	case p.HTTPGet != nil:
		what = fmt.Sprintf("httpGet :%s%s", p.HTTPGet.Port.String(), p.HTTPGet.Path)
	case p.TCPSocket != nil:
		what = "tcpSocket :" + p.TCPSocket.Port.String()
	case p.GRPC != nil:
		what = fmt.Sprintf("grpc :%d", p.GRPC.Port)
	case p.Exec != nil:
		what = fmt.Sprintf("exec %q", p.Exec.Command)
	}
	return fmt.Sprintf("%s every %ds", what, every)
}
