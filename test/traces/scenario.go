package traces

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/txtar"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// A Scenario is a pod and a script of events.
type Scenario struct {
	Name   string // base name of its file
	About  string
	Pod    corev1.Pod // as written, without the witness's image and volume
	Script []Command
	Source []byte
}

// A Command is one line of a script. Commands are executed in order.
//
//	at 5s delete                         5 s after the pod was created
//	when app started delete              as soon as containerd has started the container app
//	when app runs until                  ends the recording when the witness in app writes its first line
//	when app started 2 +1s kill app      1 s after the second start of app
//	when pod ready +500ms kill sandbox   500 ms after the pod is ready
//	until 20s                            ends the recording 20 s after the pod was created
//
// kill sends SIGKILL; reboot kills the sandbox and all containers at once; image makes the image "late" available.
type Command struct {
	When  string // name of a container, or "pod"; empty for a time since the pod was created
	State string // of the container: started or runs; of the pod: ready
	Count int    // number of the container's start, from 1
	After time.Duration
	Do    string // delete, kill, reboot, image or until
	What  string
}

// Read reads a scenario from a file.
func Read(file string) (Scenario, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return Scenario{}, err
	}
	s := Scenario{Name: strings.TrimSuffix(filepath.Base(file), ".txt"), Source: text}
	archive := txtar.Parse(text)
	s.About = strings.TrimSpace(string(archive.Comment))
	for _, f := range archive.Files {
		switch f.Name {
		case "pod":
			err = yaml.UnmarshalStrict(f.Data, &s.Pod)
		case "script":
			s.Script, err = parseScript(string(f.Data))
		default:
			err = fmt.Errorf("has no place for a file %q, only for pod and script", f.Name)
		}
		if err != nil {
			return s, fmt.Errorf("%s: %w", file, err)
		}
	}
	if s.About == "" || len(s.Pod.Spec.Containers) == 0 || len(s.Script) == 0 {
		return s, fmt.Errorf("%s: must have a description, a pod and a script", file)
	}
	return s, nil
}

func parseScript(text string) ([]Command, error) {
	var script []Command
	for line := range strings.Lines(text) {
		if strings.TrimSpace(line) == "" {
			continue
		}
		c, err := parseCommand(strings.Fields(line))
		if err != nil {
			return nil, fmt.Errorf("%q: %w", strings.TrimSpace(line), err)
		}
		script = append(script, c)
	}
	return script, nil
}

func parseCommand(w []string) (c Command, err error) {
	if len(w) < 2 {
		return c, fmt.Errorf("is too short")
	}
	c.Count = 1
	switch w[0] {
	case "at":
		if c.After, err = time.ParseDuration(w[1]); err != nil {
			return c, err
		}
		w = w[2:]
	case "when":
		if len(w) < 4 {
			return c, fmt.Errorf("must be: when NAME started|ready [N] [+DURATION] WHAT")
		}
		c.When, c.State, w = w[1], w[2], w[3:]
		if n, err := strconv.Atoi(w[0]); err == nil {
			c.Count, w = n, w[1:]
		}
		if len(w) == 0 {
			break
		}
		if d, ok := strings.CutPrefix(w[0], "+"); ok {
			if c.After, err = time.ParseDuration(d); err != nil {
				return c, err
			}
			w = w[1:]
		}
	case "until":
		c.Do = "until"
		c.After, err = time.ParseDuration(w[1])
		return c, err
	}
	if len(w) == 0 {
		return c, fmt.Errorf("has a time but no action")
	}
	c.Do = w[0]
	if len(w) > 1 {
		c.What = w[1]
	}
	switch c.Do {
	case "delete", "kill", "reboot", "image", "until":
		return c, nil
	}
	return c, fmt.Errorf("%q is none of delete, kill, reboot, image", c.Do)
}

// Image is the witness's image. missingImage never exists. lateImage stands in a scenario for an image that exists
// only after the script's command image.
const (
	Image        = "test.outrider.dev/witness:1"
	missingImage = "test.outrider.dev/missing:1"
	lateImage    = "late"
)

// manifest returns the pod to create. A container without an image gets the witness's image.
func (s Scenario) manifest(dir string) corev1.Pod {
	pod := *s.Pod.DeepCopy()
	pod.APIVersion, pod.Kind = "v1", "Pod"
	pod.Name, pod.Namespace = s.Name, "default"
	pod.Labels = map[string]string{"trace": s.Name}
	off := false
	pod.Spec.AutomountServiceAccountToken, pod.Spec.EnableServiceLinks = &off, &off
	pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: "trace",
		VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: dir}}})
	for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			s.fill(&list[i])
		}
	}
	return pod
}

func (s Scenario) fill(c *corev1.Container) {
	switch c.Image {
	case "":
		c.Image = Image
	case "missing":
		c.Image = missingImage
	case lateImage:
		c.Image = s.lateImage()
	}
	if c.ImagePullPolicy == "" {
		c.ImagePullPolicy = corev1.PullNever
	}
	c.Env = append(c.Env, corev1.EnvVar{Name: "WITNESS", Value: c.Name})
	c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: "trace", MountPath: "/trace"})
}

func (s Scenario) lateImage() string { return "test.outrider.dev/" + s.Name + ":1" }
