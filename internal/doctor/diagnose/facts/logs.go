package facts

import (
	"fmt"

	"outrider.dev/internal/doctor/evidence"
)

// Kubectl returns a kubectl command for the pod's namespace.
func (p *Pod) Kubectl(format string, args ...any) string {
	in := ""
	if p.Object.Namespace != "" {
		in = "-n " + p.Object.Namespace + " "
	}
	return "kubectl " + in + fmt.Sprintf(format, args...)
}

// Logs returns the arguments by which kubectl prints the log of a run of a container.
func (p *Pod) Logs(container string, run int) string {
	args := fmt.Sprintf("logs %s -c %s", p.Object.Name, container)
	if IsPrevious(p.Container(container), run) {
		args += " --previous"
	}
	return args
}

// IsPrevious reports whether kubectl has the log of a run by its flag --previous. A container that never
// restarted has none. While a container waits for its restart, the flag returns the log of the last run.
// Source: validateContainerLogStatus in pkg/kubelet/kubelet_pods.go of Kubernetes 1.34.
func IsPrevious(c *evidence.Container, run int) bool {
	return c != nil && c.Restarts > 0 && (run < c.Restarts || c.Waiting != nil)
}

// Ended returns the number of the last run of a container that has ended; -1: none has.
func Ended(c *evidence.Container) int {
	if last := c.Last(); last != nil && last.Running {
		return c.Restarts - 1
	}
	return c.Restarts
}

// AnyContainer returns a container whose log may be looked at first.
func (p *Pod) AnyContainer() string {
	for _, c := range p.Object.Spec.Containers {
		return c.Name
	}
	return "CONTAINER"
}
