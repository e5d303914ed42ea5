package main

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"outrider.dev/internal/cli"
	"outrider.dev/internal/model/kubelet"
	"outrider.dev/internal/pod/plan"
	"outrider.dev/internal/pod/podspec"
	"outrider.dev/internal/run/localpod"
	"outrider.dev/internal/view"
	"outrider.dev/startup"
)

type runOptions struct {
	file       string
	pod        string
	output     string
	kube       cli.KubeVersion
	duration   time.Duration
	network    string
	token      string
	hostPath   bool
	entrypoint []string
}

const runExamples = `  # a pod's containers on this machine, until Ctrl-C
  sudo outrider run -f pod.yaml

  # for 10 seconds, everything that happened as JSON lines
  sudo outrider run -f pod.yaml --duration 10s -o json

  # a container whose command is in its image
  sudo outrider run -f pod.yaml --entrypoint redis:8=redis-server`

func newRun() *cobra.Command {
	o := &runOptions{kube: 34}
	cmd := &cobra.Command{
		Use:   "run -f FILE",
		Short: "run a pod's containers as processes of this machine, by the kubelet's rules",
		Long: `Runs the containers of a pod as processes of this machine, with the kubelet's order,
hooks, probes, restarts, signals and grace period, in a network of their own. There are no
images: a container sees this machine's files, copy on write, and its command must be
in the pod spec. Nothing is left when it ends.

Ctrl-C deletes the pod, in order; a second one kills it. At the end the start is compared
with the pod's plan. The exit status is 1 if the plan was not kept or the pod failed, 2 if
the pod cannot be run here.`,
		Example: runExamples,
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return o.run(cmd) },
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.StringVarP(&o.file, "filename", "f", "", "file with the pod, or what has a pod template, and its ConfigMaps and Secrets; '-' is standard input")
	fs.StringVar(&o.pod, "pod", "", "name of the pod or workload, if the file has several")
	fs.Var(&o.kube, "kube", "Kubernetes version whose kubelet decides")
	cli.Choice(cmd, &o.output, "output", "o", "how to print, json a line for each entry", "text", "json")
	fs.DurationVar(&o.duration, "duration", 0, "delete the pod after this time")
	fs.StringVar(&o.network, "network", "10.244.0.0/24", "network of the pod")
	fs.StringArrayVar(&o.entrypoint, "entrypoint", nil, "IMAGE=COMMAND: command of an image, words separated by spaces; may be repeated")
	fs.StringVar(&o.token, "token", "", "file with the service account token")
	fs.BoolVar(&o.hostPath, "allow-host-path", false, "let hostPath volumes change this machine's files")
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
	network, err := netip.ParsePrefix(o.network)
	if err != nil {
		return &cli.UsageError{Err: fmt.Errorf("--network=%q: write it like 10.244.0.0/24", o.network)}
	}
	if a := network.Masked().Addr(); !a.Is4() || a.IsLoopback() || a.IsMulticast() || a.IsUnspecified() || a.IsLinkLocalUnicast() || network.Bits() > 30 {
		return &cli.UsageError{Err: fmt.Errorf("--network=%q: must be an unused IPv4 network with room for a pod, like 10.244.0.0/24", o.network)}
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
	// Before the pod runs: a Ctrl-C from here on deletes it.
	stop := make(chan os.Signal, 2)
	signal.Notify(stop, syscall.SIGINT, syscall.SIGTERM)
	defer signal.Stop(stop)
	pod, err := node.Start(options)
	if err != nil {
		return &cli.UsageError{Err: fmt.Errorf("%s: %w", o.file, err)}
	}
	result := o.await(pod, stop)
	if err := show.Summary(result); err != nil {
		return err
	}
	if !result.OK() {
		return errors.New(strings.Join(view.Problems(result), "; "))
	}
	return nil
}

// await waits for the end of the pod. The first signal deletes it, the second one kills it.
func (o *runOptions) await(pod *localpod.Pod, stop <-chan os.Signal) localpod.Result {
	var after <-chan time.Time
	if o.duration > 0 {
		after = time.After(o.duration)
	}
	deleted := false
	for {
		select {
		case <-pod.Done():
			return pod.Wait()
		case <-after:
			pod.Delete(0)
		case <-stop:
			if deleted {
				pod.Kill()
			}
			pod.Delete(0)
			deleted = true
		}
	}
}

// options reads the file.
func (o *runOptions) options(cmd *cobra.Command) (localpod.Options, error) {
	var none localpod.Options
	if o.file == "" {
		return none, errNothing
	}
	name, data, err := cli.Read(cmd, o.file)
	if err != nil {
		return none, err
	}
	objects, err := parse(cmd, name, data)
	if err != nil {
		return none, err
	}
	object, err := o.choose(name, objects)
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
	out := localpod.Options{Pod: object.Pod, Plan: reading.Plan(), Kube: kubelet.Minor(int(o.kube)), AllowHostPath: o.hostPath, Entrypoints: map[string][]string{}}
	if out.Pod.Name == "" {
		out.Pod.Name = object.Name
	}
	if out.ConfigMaps, out.Secrets, err = localpod.Objects(name, data); err != nil {
		return none, err
	}
	for _, e := range o.entrypoint {
		image, command, ok := strings.Cut(e, "=")
		if !ok || len(strings.Fields(command)) == 0 {
			return none, fmt.Errorf("--entrypoint=%q: write it like redis:8=redis-server", e)
		}
		out.Entrypoints[image] = strings.Fields(command)
	}
	if o.token != "" {
		out.Token = func(string) ([]byte, error) { return os.ReadFile(o.token) }
	}
	return out, nil
}

// choose is the one object that is to run.
func (o *runOptions) choose(file string, objects []podspec.Object) (podspec.Object, error) {
	var names []string
	var found []podspec.Object
	for _, object := range objects {
		names = append(names, object.Name)
		if o.pod == "" || object.Name == o.pod {
			found = append(found, object)
		}
	}
	switch {
	case len(found) == 0:
		return podspec.Object{}, fmt.Errorf("%s has no pod or workload %q; names are %s", file, o.pod, strings.Join(names, ", "))
	case len(found) > 1:
		return podspec.Object{}, fmt.Errorf("%s has %d pods: choose one with --pod; names are %s", file, len(found), strings.Join(names, ", "))
	}
	return found[0], nil
}
