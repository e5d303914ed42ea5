package podspec

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"outrider.dev/internal/core/pod/podstart"
	"outrider.dev/internal/core/pod/shell"
	"outrider.dev/startup"
)

// Without returns a copy of the pod without an ordering that [Read] found in this pod. It fails if the ordering
// cannot be removed, or if the script that contains it has changed.
func Without(pod *corev1.Pod, f podstart.Found) (*corev1.Pod, error) {
	out := pod.DeepCopy()
	all := podContainers(out)
	i := slices.IndexFunc(all, func(c podContainer) bool { return c.Name == f.Container })
	if i < 0 || !f.Replaceable {
		return nil, fmt.Errorf("%s of %s cannot be taken out of the pod", f.By, f.Container)
	}
	c := all[i]
	switch f.Mechanism {
	case startup.Hold, startup.PostStartProbe:
		if c.Lifecycle == nil {
			return nil, fmt.Errorf("%s has no hook any more", c.Name)
		}
		DropPostStart(c.Container)
	case startup.Gate, startup.Wrapper:
		argv := c.argv()
		if f.Unwrap <= 0 || f.Unwrap >= len(argv) {
			return nil, fmt.Errorf("the command of %s is another one now", c.Name)
		}
		if !unwrap(c.Container) { // unwrap also restores what our gate took over
			c.Command, c.Args = argv[f.Unwrap:], nil
		}
	case startup.Sleep, startup.HealthLoop, startup.BoundedLoop:
		if !cut(c, f) {
			return nil, fmt.Errorf("the script of %s is another one now", c.Name)
		}
	}
	return out, nil
}

// cut removes a statement from the script of c. It returns false if the script has become shorter than the
// statement's position.
func cut(c podContainer, f podstart.Found) bool {
	s, ok := shell.ScriptOf(c.argv())
	if !ok || f.Cut[1] > len(s.Text) || f.Cut[0] >= f.Cut[1] {
		return false
	}
	text := s.Text[:f.Cut[0]] + s.Text[f.Cut[1]:]
	if s.At < len(c.Command) {
		c.Command[s.At] = text
	} else {
		c.Args[s.At-len(c.Command)] = text
	}
	return true
}
