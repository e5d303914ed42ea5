// Package imagecmd writes the command of an image into a container that sets no command, so that a gate can wrap
// it. It also removes such a command again.
package imagecmd

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/core/pod/inject/containers"
)

// A Command is the command of an image, which runs if the container sets none.
type Command struct {
	Entrypoint, Cmd []string
	Digest          string // digest of the index or manifest to which the image reference resolved
	Why             string // the reason why the command is unknown; empty if it is known
}

// A Written is a command that was taken from an image and written into a container, with the fields that it
// replaced.
type Written struct {
	Image   string   `json:"image"`
	Digest  string   `json:"digest,omitempty"` // digest added to the image reference; empty if the author had already pinned the image
	Args    []string `json:"args,omitempty"`
	Command []string `json:"command"` // the command that was written
}

// Pinned returns the image reference with the digest.
func (c Written) Pinned() string {
	if c.Digest == "" {
		return c.Image
	}
	return c.Image + "@" + c.Digest
}

// Commands holds a pod into which [Of] wrote the known commands of images.
type Commands struct {
	Pod     *corev1.Pod        // with the known commands written into it
	Written map[string]Written // by container
	Unknown map[string]string  // by container: the reason why its command is unknown
}

// Of writes the known commands of images into a copy of the pod, in the containers that set no command. A
// container whose image has not been looked up is not changed, nor is a second container of the same name, because
// the result is by name.
func Of(pod *corev1.Pod, known map[string]Command) Commands {
	out := Commands{Pod: containers.WithLists(pod), Written: map[string]Written{}, Unknown: map[string]string{}}
	seen := map[string]bool{}
	for _, list := range [][]corev1.Container{out.Pod.Spec.InitContainers, out.Pod.Spec.Containers} {
		for i := range list {
			c := &list[i]
			if !seen[c.Name] && len(c.Command) == 0 && c.Image != "" {
				out.write(c, known)
			}
			seen[c.Name] = true
		}
	}
	return out
}

func (out Commands) write(c *corev1.Container, known map[string]Command) {
	found, ok := known[c.Image]
	if c.ImagePullPolicy == corev1.PullNever {
		found, ok = Command{Why: fmt.Sprintf("image %s has imagePullPolicy: Never: the image is on the node, and may be in no registry", c.Image)}, true
	}
	if !ok {
		return
	}
	argv, why := found.Argv(c)
	if why != "" {
		out.Unknown[c.Name] = why
		return
	}
	written := Written{Image: c.Image, Args: c.Args, Command: argv}
	if !strings.Contains(c.Image, "@") {
		written.Digest = found.Digest // pinned, because the tag may refer to another image when the node pulls it
	}
	out.Written[c.Name] = written
	c.Image, c.Command, c.Args = written.Pinned(), argv, nil
}

// LookUp returns the images of the named containers that have not been looked up yet.
func (out Commands) LookUp(names []string) []string {
	var images []string
	for _, name := range names {
		c := containers.Find(out.Pod, name)
		if _, unknown := out.Unknown[name]; c != nil && c.Image != "" && !unknown && !slices.Contains(images, c.Image) {
			images = append(images, c.Image)
		}
	}
	return images
}

// Argv returns the command line that the kubelet and the runtime would run: the container's args replace CMD. If
// the command line is unknown or must not be wrapped, the second result is the reason.
func (k Command) Argv(c *corev1.Container) ([]string, string) {
	args := c.Args
	if len(args) == 0 {
		args = escaped(k.Cmd)
	}
	argv := slices.Concat(escaped(k.Entrypoint), args)
	switch {
	case k.Why != "":
		return nil, k.Why
	case len(argv) == 0:
		return nil, fmt.Sprintf("image %s has neither ENTRYPOINT nor CMD", c.Image)
	case contract.RunsFirst(argv[0]):
		return nil, fmt.Sprintf("image %s runs %s, which has to be process 1, and that is the gate: name the command in the pod if this one need not be", c.Image, argv[0])
	}
	return argv, ""
}

// escaped returns words of an image's command as a pod must write them. The kubelet replaces $(NAME) in the
// command of a pod but not in the command of an image, so each $ is doubled.
func escaped(words []string) []string {
	out := make([]string, len(words))
	for i, w := range words {
		out[i] = strings.ReplaceAll(w, "$", "$$")
	}
	return out
}

// Restore undoes [Of]. A command that was changed after the injection is left as it is.
func Restore(pod *corev1.Pod, written map[string]Written) {
	for name, w := range written {
		c := containers.Find(pod, name)
		if c == nil || !slices.Equal(c.Command, w.Command) || len(c.Args) > 0 {
			continue
		}
		c.Command, c.Args = nil, w.Args
		if c.Image == w.Pinned() {
			c.Image = w.Image
		}
	}
}
