//go:build linux

package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"

	"outrider.dev/cmd/internal/view"
	"outrider.dev/internal/base/cli"
	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/core/pod/kubelet"
	"outrider.dev/internal/core/pod/mechanism"
	"outrider.dev/internal/core/pod/offline"
	"outrider.dev/internal/core/pod/plan"
	"outrider.dev/internal/core/pod/podfile"
	"outrider.dev/internal/core/pod/podrun"
	"outrider.dev/internal/core/pod/podspec"
	"outrider.dev/internal/lab/localpod"
	"outrider.dev/internal/lab/localpod/containerinit"
	"outrider.dev/internal/lab/outside"
	"outrider.dev/startup"
)

type runOptions struct {
	injected
	file       string
	pod        string
	output     string
	kube       cli.KubeVersion
	duration   time.Duration
	network    string
	token      string
	hostPath   bool
	privileged bool
	entrypoint []string
}

const runExamples = `  # run a pod's containers on this machine, until Ctrl-C
  sudo outrider run -f pod.yaml

  # the same for 10 seconds; print all events as JSON lines
  sudo outrider run -f pod.yaml --duration 10s -o json

  # a pod with a container that gets its command from its image
  sudo outrider run -f pod.yaml --entrypoint redis:8=redis-server`

// becomeContainer turns this process into a container of a pod, if it was started for that. The commands run and demo
// execute this program again for each container.
func becomeContainer() { containerinit.Become() }

func newRun() *cobra.Command {
	o := &runOptions{kube: 34}
	cmd := &cobra.Command{
		Use:   "run -f FILE",
		Short: runShort,
		Long: `Runs the containers of a pod as processes on this machine, with the kubelet's order, hooks,
probes, restarts, signals and grace period, in a network namespace. Images are not used: a
container sees this machine's files, copy on write, and its command must be in the pod spec
or be given by --entrypoint. Nothing is left when the pod ends.

The pod runs as it is in the file, so an order that only injection would write is not kept.
With --injected it is injected first; the images that injection adds then run the outrider-agent
next to this program, or in PATH. A proxy needs a control plane, as in a cluster; a pod with the
annotation outrider.dev/proxy: none does not.

Ctrl-C deletes the pod in order; a second Ctrl-C kills it. At the end the start is compared
with the pod's plan. The exit status is 1 if the start violated the plan or the pod failed, 2
if the pod cannot run here.`,
		Example: runExamples,
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return o.run(cmd) },
	}
	fs := cmd.Flags()
	fs.StringVarP(&o.file, "filename", "f", "", "manifests with the pod or workload, and its ConfigMaps and Secrets: a file or folder, a URL, or '-' for standard input")
	fs.StringVar(&o.pod, "pod", "", "name of the pod or workload, if the file has several")
	fs.Var(&o.kube, "kube", "Kubernetes version of the kubelet's rules")
	cli.Choice(cmd, &o.output, "output", "o", "how to print, json a line for each entry", "text", "json")
	fs.DurationVar(&o.duration, "duration", 0, "delete the pod after this time")
	fs.StringVar(&o.network, "network", "10.244.0.0/24", "network of the pod")
	fs.StringArrayVar(&o.entrypoint, "entrypoint", nil, "IMAGE=COMMAND: command of an image, words separated by spaces; may be repeated")
	fs.StringVar(&o.token, "token", "", "file with the service account token")
	fs.BoolVar(&o.hostPath, "allow-host-path", false, "let hostPath volumes change this machine's files")
	fs.BoolVar(&o.privileged, "allow-privileged", false, "let privileged containers and capabilities like SYS_ADMIN change this machine")
	o.injected.flags(cmd)
	return cmd
}

func (o *runOptions) run(cmd *cobra.Command) error {
	if o.duration < 0 {
		return &cli.UsageError{Err: fmt.Errorf("--duration=%s: must be a time like 30s, or 0 for no end", o.duration)}
	}
	options, err := o.options(cmd)
	if err != nil {
		return &cli.UsageError{Err: err}
	}
	network, err := localpod.ParseNetwork(o.network)
	if err != nil {
		return &cli.UsageError{Err: fmt.Errorf("--network=%w", err)}
	}
	node, err := localpod.NewNode(localpod.NodeOptions{IPv4: network})
	if errors.Is(err, localpod.ErrNotRoot) {
		return &cli.UsageError{Err: err, Hint: "sudo " + strings.Join(os.Args, " ")}
	}
	if err != nil {
		return err
	}
	defer node.Close()
	var containers []string
	for _, c := range slices.Concat(options.Pod.Spec.InitContainers, options.Pod.Spec.Containers) {
		containers = append(containers, c.Name)
	}
	w := cmd.OutOrStdout()
	show := view.NewRun(w, cli.TerminalOf(w), o.output == "json", containers)
	options.Line, options.Journal = show.Line, show.Entry
	// From here on Ctrl-C deletes the pod, also if it has not started yet.
	stop := make(chan os.Signal, 2)
	signal.Notify(stop, syscall.SIGINT, syscall.SIGTERM)
	defer signal.Stop(stop)
	seen, err := outside.Watch(&options, time.Now())
	if err != nil {
		return err
	}
	defer seen.Close()
	pod, err := node.Start(options)
	if err != nil {
		return &cli.UsageError{Err: fmt.Errorf("%s: %w", o.file, err)}
	}
	result := pod.Await(stop, o.duration)
	diagnosis, err := seen.Diagnose(cmd.Context(), time.Now())
	if err != nil {
		return err
	}
	if err := show.Summary(result, diagnosis); err != nil {
		return err
	}
	if !result.OK() {
		return errors.New(strings.Join(view.Problems(result), "; "))
	}
	return nil
}

// options reads the pod from the file, and returns the options for its run.
func (o *runOptions) options(cmd *cobra.Command) (localpod.Options, error) {
	var none localpod.Options
	if o.file == "" {
		return none, errNothing
	}
	files, err := readFiles(cmd, []string{o.file})
	if err != nil {
		return none, err
	}
	name := o.file
	if len(files) == 1 {
		name = files[0].Name
	}
	if files, err = o.apply(cmd, files, o.kube); err != nil {
		return none, err
	}
	data := offline.Result{Files: files}.Text()
	objects, err := parse(cmd, name, data)
	if err != nil {
		return none, err
	}
	object, err := podfile.Named(name, objects, o.pod)
	if err != nil {
		return none, err
	}
	if err := plan.CheckRunnable(object, startup.Kubernetes(o.kube)); err != nil {
		return none, err
	}
	reading, err := podspec.Read(&object.Pod)
	if err != nil {
		return none, err
	}
	out := localpod.Options{Pod: object.Pod, Plan: reading.Plan(), Kube: kubelet.Minor(int(o.kube)), AllowHostPath: o.hostPath, AllowPrivileged: o.privileged}
	if out.Pod.Name == "" {
		out.Pod.Name = object.Name
	}
	if out.ConfigMaps, out.Secrets, err = localpod.Objects(name, data); err != nil {
		return none, err
	}
	if out.Entrypoints, err = localpod.ParseEntrypoints(o.entrypoint); err != nil {
		return none, fmt.Errorf("--entrypoint=%w", err)
	}
	if _, byNode := podspec.NodeWork(&out.Pod); byNode {
		pod, err := podspec.InsteadOfNode(&out.Pod, agentProgram, func(image string) []string { return out.Entrypoints[image] })
		if err != nil {
			return none, err
		}
		out.Pod = *pod
		cli.Note(cmd, "there is no node here: an init container does what outrider-node would do for the pod")
	}
	if _, byNode := podspec.NodeWork(&object.Pod); o.on || byNode {
		addAgent(out.Entrypoints, &out.Pod)
	}
	for _, sentence := range podrun.Unmodelled(&out.Pod) {
		cli.Note(cmd, "%s", object.Field(sentence))
	}
	for _, c := range mechanism.Choose(reading, startup.Kubernetes(o.kube)) {
		if e := c.Edge; c.Present == nil && e.By != "" {
			e.By = ""
			cli.Note(cmd, "nothing in the pod keeps %q: injection would, see --injected", e)
		}
	}
	if o.token != "" {
		out.Token = func(string) ([]byte, error) { return os.ReadFile(o.token) }
	}
	return out, nil
}

// addAgent sets the entry point of the images that injection added: the agent in the folder of this program, or in
// PATH. If there is no agent, it sets none, and the start of the pod then fails with the name of the image.
func addAgent(entrypoints map[string][]string, pod *corev1.Pod) {
	agent, err := exec.LookPath(agentProgram)
	if own, ownErr := os.Executable(); ownErr == nil {
		if beside, lookErr := exec.LookPath(filepath.Join(filepath.Dir(own), agentProgram)); lookErr == nil {
			agent, err = beside, nil
		}
	}
	if err != nil {
		return
	}
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		_, given := entrypoints[c.Image]
		if (c.Name == contract.InitContainer || c.Name == contract.ProxyContainer) && !given {
			entrypoints[c.Image] = []string{agent}
		}
	}
}

const agentProgram = "outrider-agent"
