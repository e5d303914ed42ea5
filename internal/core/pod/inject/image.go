package inject

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/core/pod/podspec"
	"outrider.dev/startup"
)

// An ImageCommand is what an image runs in a container that names no command.
type ImageCommand struct {
	Entrypoint, Cmd []string
	Digest          string // of the index or manifest that the image's name stands for
	Why             string // it is unknown; empty: it is known
}

// An imageCommand is an image's command that was written into a container, and what the
// container had before.
type imageCommand struct {
	Image   string   `json:"image"`
	Digest  string   `json:"digest,omitempty"` // the image is pinned to it; empty: it was pinned before
	Args    []string `json:"args,omitempty"`
	Command []string `json:"command"` // as written
}

func (c imageCommand) pinned() string {
	if c.Digest == "" {
		return c.Image
	}
	return c.Image + "@" + c.Digest
}

// commandless are the containers with an unknown command, for which an edge has no gate.
func commandless(r podspec.Reading, choices []podspec.Choice) []string {
	var out []string
	seen := map[string]bool{}
	for _, c := range choices {
		if !slices.ContainsFunc(c.Refused, func(o podspec.Option) bool { return o.By == startup.Gate }) {
			continue
		}
		for _, name := range []string{c.Edge.To, c.Edge.From} {
			if f := r.Facts[name]; !f.Command && !f.Proxy && !seen[name] {
				seen[name] = true
				out = append(out, name)
			}
		}
	}
	return out
}

// commands are the result of look-ups.
type commands struct {
	pod     *corev1.Pod // with the commands that are known
	written map[string]imageCommand
	unknown map[string]string // by container, and why
}

// commandsOf writes the commands of images into the named containers. Images that have not
// been looked up yet are reported.
func commandsOf(in input, names []string, r *report) commands {
	out := commands{pod: withLists(in.pod), written: map[string]imageCommand{}, unknown: map[string]string{}}
	for _, name := range names {
		c := find(out.pod, name)
		if c == nil || c.Image == "" {
			continue
		}
		found, ok := in.o.Commands[c.Image]
		if c.ImagePullPolicy == corev1.PullNever {
			found, ok = ImageCommand{Why: fmt.Sprintf("image %s has imagePullPolicy: Never: the node has the image, and a registry need not have it", c.Image)}, true
		}
		if !ok {
			if !slices.Contains(r.unknown, c.Image) {
				r.unknown = append(r.unknown, c.Image)
			}
			continue
		}
		argv, why := found.argv(c)
		if why != "" {
			out.unknown[name] = why
			r.warn("%s: its command is not known: %s", name, why)
			continue
		}
		written := imageCommand{Image: c.Image, Args: c.Args, Command: argv}
		if !strings.Contains(c.Image, "@") {
			written.Digest = found.Digest // the tag may name another image when the node pulls it
		}
		out.written[name] = written
		c.Image, c.Command, c.Args = written.pinned(), argv, nil
	}
	return out
}

// argv is what the kubelet and the runtime would run: the container's arguments replace CMD.
// The second result is why that is unknown, or must not be wrapped.
func (k ImageCommand) argv(c *corev1.Container) ([]string, string) {
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

// escaped returns an image's words for a pod: there $(NAME) stands for a variable, in an
// image for itself.
func escaped(words []string) []string {
	out := make([]string, len(words))
	for i, w := range words {
		out[i] = strings.ReplaceAll(w, "$", "$$")
	}
	return out
}

// keepCommands keeps the commands that a gate wraps, and reports them. Any other container
// stays as it was.
func (p *plan) keepCommands(written map[string]imageCommand, r *report) {
	gated := map[string]bool{}
	for _, e := range p.edges.Edges {
		if e.By == startup.Gate {
			gated[e.To], gated[e.From] = true, true
		}
	}
	for _, name := range slices.Sorted(maps.Keys(written)) {
		w := written[name]
		if !gated[name] {
			c := find(p.pod, name)
			c.Image, c.Command, c.Args = w.Image, nil, w.Args
			continue
		}
		if p.commands == nil {
			p.commands = map[string]imageCommand{}
		}
		p.commands[name] = w
		pinned := ""
		if w.Digest != "" {
			pinned = ", and the image is pinned to it"
		}
		_, digest, _ := strings.Cut(w.pinned(), "@")
		r.note("%s: the command of %s is %q (looked up by digest, %s): it is written into the pod%s",
			name, w.Image, strings.Join(w.Command, " "), digest, pinned)
	}
}

// restoreCommands undoes [commandsOf]. A command that was changed since belongs to the pod.
func restoreCommands(pod *corev1.Pod, written map[string]imageCommand) {
	for name, w := range written {
		c := find(pod, name)
		if c == nil || !slices.Equal(c.Command, w.Command) || len(c.Args) > 0 {
			continue
		}
		c.Command, c.Args = nil, w.Args
		if c.Image == w.pinned() {
			c.Image = w.Image
		}
	}
}

// Resolving is [Pod] with commands from look. It is called once at most, with the images whose
// commands a gate needs; most pods need none. Without an answer the strategy avoids gates.
func Resolving(pod *corev1.Pod, ns Namespace, o Options, look func(images []string) map[string]ImageCommand) (Result, error) {
	o.Commands = map[string]ImageCommand{}
	r, err := Pod(pod, ns, o)
	if len(r.Unknown) == 0 {
		return r, err
	}
	o.Commands = look(r.Unknown)
	return Pod(pod, ns, o)
}
