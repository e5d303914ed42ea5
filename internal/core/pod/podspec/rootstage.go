package podspec

import (
	"fmt"
	"path"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"outrider.dev/internal/core/pod/startcost"
)

// With a root stage, a proxy captures connections and copies the agent for the gates, so that our init container
// is not needed. The proxy's first process does this as root and then becomes the proxy. This file alone writes
// and reads the command lines of the stage and of the hook that waits for it:
//
//	outrider-agent root-stage --copy /outrider/bin/outrider-agent -u 1337 ... -- proxy sidecar ...
//	outrider-agent captured --copy /outrider/bin/outrider-agent
const (
	stageWord    = "root-stage"
	capturedWord = "captured"
	flagCopy     = "--copy"
)

// WriteStage puts a root stage with these flags before the arguments of c, whose image must contain the agent as
// its entrypoint. The postStart hook of c is replaced by one that waits for the stage. WriteStage fails if
// another mount of c overlaps the directory of the agent.
func WriteStage(c *corev1.Container, flags []string) error {
	c.Args = slices.Concat([]string{stageWord, flagCopy, AgentPath}, flags, []string{endFlags}, c.Args)
	if c.Lifecycle == nil {
		c.Lifecycle = &corev1.Lifecycle{}
	}
	c.Lifecycle.PostStart = &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: []string{"outrider-agent", capturedWord, flagCopy, AgentPath}}}
	return mount(c, corev1.VolumeMount{Name: BinVolume, MountPath: BinDir})
}

// Staged reports whether c begins with a root stage.
func Staged(c *corev1.Container) bool {
	return argument(c, 0) == stageWord || path.Base(argument(c, 0)) == "outrider-agent" && argument(c, 1) == stageWord
}

// noteStage adds notes about the cost and the limits of a root stage.
func (r *reader) noteStage() {
	for _, c := range r.all {
		if !Staged(c.Container) {
			continue
		}
		more, kubelet := startcost.OfRootStage()
		r.Note(
			fmt.Sprintf("%s captures and brings the gates by itself, and its postStart hook waits for that alone: the mesh costs %.1f s of the pod's start (kubelet %s), and no init container", c.Name, more, kubelet),
			fmt.Sprintf("where that hook fails the kubelet starts the others all the same: their gates wait for %s, or are not there yet; then the container fails with StartError (exit 128) and is started again, after 10 s, 20 s and so on", c.Name),
			fmt.Sprintf("kubectl exec into %s is root with NET_ADMIN, whatever its first process has given up", c.Name))
	}
}
