package inject

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"outrider.dev/internal/pod/podspec"
	"outrider.dev/startup"
)

// An ImageCommand is what an image runs in a container that names no command.
type ImageCommand struct {
	Entrypoint, Cmd []string
	Digest          string // of the index or manifest that the image's name stands for
	Why             string // it is not known; empty: it is known
}

// taken is what a container said before the command of its image was written into it.
type taken struct {
	Image   string   `json:"image"`
	Digest  string   `json:"digest,omitempty"` // that the image was pinned to; empty: it was before
	Args    []string `json:"args,omitempty"`
	Command []string `json:"command"` // that was written
}

func (t taken) pinned() string {
	if t.Digest == "" {
		return t.Image
	}
	return t.Image + "@" + t.Digest
}

// commandless are the containers because of which an edge has no gate: nobody knows their
// commands.
func commandless(r podspec.Reading, choices []podspec.Choice) []string {
	var out []string
	for _, c := range choices {
		if !slices.ContainsFunc(c.Refused, func(o podspec.Option) bool { return o.By == startup.Gate }) {
			continue
		}
		for _, name := range []string{c.Edge.To, c.Edge.From} {
			if f := r.Facts[name]; !f.Command && !f.Proxy && !slices.Contains(out, name) {
				out = append(out, name)
			}
		}
	}
	return out
}

// takeCommands writes the commands of images into containers that have none, and says
// whether anything is known now that was not. Images that nobody has looked up yet are
// noted.
func (in *injection) takeCommands(names []string) bool {
	if in.o.Commands == nil {
		return false // nobody asked for look-ups
	}
	in.unknownWhy = map[string]string{}
	for _, name := range names {
		c := find(in.pod, name)
		if c == nil || c.Image == "" {
			continue
		}
		known, ok := in.o.Commands[c.Image]
		if c.ImagePullPolicy == corev1.PullNever {
			known, ok = ImageCommand{Why: fmt.Sprintf("image %s has imagePullPolicy: Never: it is what the node has, which no registry knows", c.Image)}, true
		}
		if !ok {
			if !slices.Contains(in.unknown, c.Image) {
				in.unknown = append(in.unknown, c.Image)
			}
			continue
		}
		argv, why := known.argv(c)
		if why != "" {
			in.unknownWhy[name] = why
			in.warn("%s: its command is not known: %s", name, why)
			continue
		}
		t := taken{Image: c.Image, Args: c.Args, Command: argv}
		if !strings.Contains(c.Image, "@") {
			t.Digest = known.Digest // a tag may be another image by the time the node asks for it
		}
		if in.memory.Commands == nil {
			in.memory.Commands = map[string]taken{}
		}
		in.memory.Commands[name] = t
		c.Image, c.Command, c.Args = t.pinned(), argv, nil
	}
	return len(in.memory.Commands)+len(in.unknownWhy) > 0
}

// argv is what the kubelet and the runtime would run: the container's arguments stand for
// CMD. Or it says why that is not known, or must not be wrapped.
func (k ImageCommand) argv(c *corev1.Container) ([]string, string) {
	args := c.Args
	if len(args) == 0 {
		args = literal(k.Cmd)
	}
	argv := slices.Concat(literal(k.Entrypoint), args)
	switch {
	case k.Why != "":
		return nil, k.Why
	case len(argv) == 0:
		return nil, fmt.Sprintf("image %s has neither ENTRYPOINT nor CMD", c.Image)
	case podspec.First(argv[0]):
		return nil, fmt.Sprintf("image %s runs %s, which has to be process 1, and that is the gate: name the command in the pod if this one need not be", c.Image, argv[0])
	}
	return argv, ""
}

// literal are words of an image as a pod has to write them: in a pod $(NAME) stands for a
// variable, in an image for itself.
func literal(words []string) []string {
	out := make([]string, len(words))
	for i, w := range words {
		out[i] = strings.ReplaceAll(w, "$", "$$")
	}
	return out
}

// keepCommands leaves those commands that a gate wraps, and says what they are. A container
// that gets none stays as it was.
func (in *injection) keepCommands(a arrangement) {
	for _, name := range sortedKeys(in.memory.Commands) {
		t := in.memory.Commands[name]
		if !slices.ContainsFunc(a.plan.Edges, func(e startup.Edge) bool {
			return e.By == startup.Gate && (e.To == name || e.From == name)
		}) {
			c := find(a.pod, name)
			c.Image, c.Command, c.Args = t.Image, nil, t.Args
			delete(in.memory.Commands, name)
			continue
		}
		pinned := ""
		if t.Digest != "" {
			pinned = ", and the image is pinned to it"
		}
		in.note("%s: the command of %s is %q (looked up by digest, %s): it is written into the pod%s",
			name, t.Image, strings.Join(t.Command, " "), digestOf(t), pinned)
	}
}

func digestOf(t taken) string {
	_, d, _ := strings.Cut(t.pinned(), "@")
	return d
}

// commandsBack takes commands that are an image's out of a pod again. One that somebody
// has changed since is that of the pod.
func (m memory) commandsBack(pod *corev1.Pod) {
	for name, t := range m.Commands {
		c := find(pod, name)
		if c == nil || !slices.Equal(c.Command, t.Command) || len(c.Args) > 0 {
			continue
		}
		c.Command, c.Args = nil, t.Args
		if c.Image == t.pinned() {
			c.Image = t.Image
		}
	}
}

// Resolving is [Pod] with commands from look, which is called once at most, with the images
// that a gate needs the commands of; of most pods it is not. What it does not know changes
// nothing: the strategy goes on without.
func Resolving(pod *corev1.Pod, ns Namespace, o Options, look func(images []string) map[string]ImageCommand) (Result, error) {
	o.Commands = map[string]ImageCommand{}
	r, err := Pod(pod, ns, o)
	if len(r.Unknown) == 0 {
		return r, err
	}
	o.Commands = look(r.Unknown)
	return Pod(pod, ns, o)
}
