package world

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"outrider.dev/internal/base/contract"
	"outrider.dev/test/chart"
)

// Kubectl runs kubectl and returns its output.
func (w *World) Kubectl(ctx context.Context, stdin string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "kubectl", args...)
	cmd.Stdin = bytes.NewBufferString(stdin)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("kubectl %v: %w: %s", args, err, out)
	}
	return string(out), nil
}

// Apply creates or updates the objects of a manifest.
func (w *World) Apply(ctx context.Context, manifest string) error {
	_, err := w.Kubectl(ctx, manifest, "apply", "--filename=-")
	return err
}

// Overloaded is the time limit for a first call when fifty pods start at once and overload the node.
const Overloaded = 10 * time.Second

// A Release is a version of Outrider that an operator installs.
type Release struct {
	Command string   // path of the command outrider
	Tag     string   // tag of the images
	Lacks   []string // names of values that its chart does not have yet
}

// Head is the release of this checkout.
func (w *World) Head() Release {
	return Release{Command: filepath.Join(w.Root, "bin", "outrider"), Tag: "dev"}
}

// Install installs this checkout with "outrider install", as [World.Release] does.
func (w *World) Install(ctx context.Context, replicas int, firstUse time.Duration, more ...string) error {
	return w.Release(ctx, w.Head(), "install", replicas, firstUse, more...)
}

// Release installs a release with its "outrider install" or "outrider upgrade", as an operator does. Unless firstUse is
// 0, it is the time limit for first calls. The command waits until everything serves, and checks the installation.
// Called again with another release or with more values, it upgrades the installation.
func (w *World) Release(ctx context.Context, r Release, verb string, replicas int, firstUse time.Duration, more ...string) error {
	args := []string{verb, "--set=global.tag=" + r.Tag}
	for _, v := range append(w.values(replicas, firstUse), more...) {
		if name, _, _ := strings.Cut(v, "="); !slices.Contains(r.Lacks, name) {
			args = append(args, "--set="+v)
		}
	}
	text, err := r.Run(ctx, args...)
	if err != nil {
		logs, _ := w.Kubectl(ctx, "", "logs", "deployment/outriderd", "--namespace="+chart.Namespace)
		return fmt.Errorf("%w\n%s", err, logs)
	}
	fmt.Fprintln(os.Stderr, text)
	return nil
}

// helm is the Helm command in the version that outrider uses as a library.
const helm = "bin/helm"

// InstallByHelm does the same as Install with Helm's own command, and waits until "outrider check" succeeds.
func (w *World) InstallByHelm(ctx context.Context, replicas int, firstUse time.Duration) error {
	args := []string{"install", "outrider", "charts/outrider", "--namespace=" + chart.Namespace, "--create-namespace", "--wait", "--timeout=" + Patience.String()}
	for _, v := range w.values(replicas, firstUse) {
		args = append(args, "--set="+v)
	}
	if err := w.Helm(ctx, args...); err != nil {
		return err
	}
	var text string
	var err error
	if e := w.Until(ctx, "the check is green", func() bool {
		text, err = w.Outrider(ctx, "check")
		return err == nil
	}); e != nil {
		return errors.Join(e, err)
	}
	fmt.Fprintln(os.Stderr, text)
	return nil
}

// Helm runs Helm's own command.
func (w *World) Helm(ctx context.Context, args ...string) error {
	if err := build(ctx, w.Root, filepath.Join(w.Root, helm), "helm.sh/helm/v3/cmd/helm"); err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, filepath.Join(w.Root, helm), args...)
	cmd.Dir = w.Root
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("helm %v: %w: %s", args, err, out)
	}
	return nil
}

// values returns the chart values of the installation, as flags.
func (w *World) values(replicas int, firstUse time.Duration) []string {
	out := []string{fmt.Sprintf("pilot.replicaCount=%d", replicas), "authority.rootSpread=" + RootSpread.String()}
	if firstUse > 0 {
		out = append(out, "serve.firstUseTimeout="+firstUse.String())
	}
	if w.ByNode {
		out = append(out, "node.enabled=true", "node.runtimeConfig="+filepath.Join(w.Dir, "conf", "containerd.toml"))
	}
	return out
}

// RootSpread is the time for which a new root is published before it signs certificates. By then every running
// pod has it, because the kubelet updates a pod's ConfigMaps within two minutes.
const RootSpread = 3 * time.Minute

// Outrider runs the command outrider of this checkout, as [Release.Run] does.
func (w *World) Outrider(ctx context.Context, args ...string) (string, error) {
	return w.Head().Run(ctx, args...)
}

// Run runs the command outrider of a release, and returns what it writes to standard output and standard error.
func (r Release) Run(ctx context.Context, args ...string) (string, error) {
	out, err := exec.CommandContext(ctx, r.Command, args...).CombinedOutput()
	if err != nil {
		return string(out), fmt.Errorf("outrider %v: %w: %s", args, err, out)
	}
	return string(out), nil
}

// Inject returns the pod that "outrider inject" makes of a pod.
func (w *World) Inject(ctx context.Context, pod *corev1.Pod, flags ...string) (*corev1.Pod, error) {
	in := pod.DeepCopy()
	in.APIVersion, in.Kind = "v1", "Pod"
	text, err := yaml.Marshal(in)
	if err != nil {
		return nil, err
	}
	kube := "--kube=" + w.Version[1:] // such as v1.34
	if w.ByNode {
		flags = append(flags, "--set=values.sidecarInjectorWebhook.init="+contract.InitByNode)
	}
	cmd := exec.CommandContext(ctx, filepath.Join(w.Root, "bin", "outrider"), append([]string{"inject", "-f", "-", kube}, flags...)...)
	cmd.Stdin = bytes.NewReader(text)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("outrider inject: %w: %s", err, &stderr)
	}
	var injected corev1.Pod
	if err := yaml.UnmarshalStrict(out, &injected); err != nil {
		return nil, fmt.Errorf("what outrider inject printed: %w", err)
	}
	return &injected, nil
}

// Tag gives an image another name, as if an image of that name had been pulled.
func (w *World) Tag(ctx context.Context, image, name string) error {
	out, err := exec.CommandContext(ctx, "ctr", "--namespace=k8s.io", "images", "tag", "--force", image, name).CombinedOutput()
	if err != nil {
		return fmt.Errorf("naming an image: %w: %s", err, out)
	}
	return nil
}

// Untag removes an image's name, as if the image had not been pulled yet.
func (w *World) Untag(ctx context.Context, name string) error {
	out, err := exec.CommandContext(ctx, "ctr", "--namespace=k8s.io", "images", "rm", "--sync", name).CombinedOutput()
	if err != nil {
		return fmt.Errorf("removing the name of an image: %w: %s", err, out)
	}
	return nil
}
