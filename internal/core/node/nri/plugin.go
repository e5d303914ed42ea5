// Package nri is Outrider's plugin for the container runtime, by the Node Resource Interface. The
// runtime calls it before a container exists. The plugin puts the gate in front of the container's
// command, whatever image that comes from, and mounts the agent and the pod's states.
//
// A container that needs a gate and did not get one is refused by each of our connected plugins,
// including standbys and the guard, which adjust nothing themselves.
package nri

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"path"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/containerd/nri/pkg/api"

	"outrider.dev/internal/base/contract"
)

// States manages the directories in which a pod's containers publish their states.
type States interface {
	Container(sandbox, container string) (states, own string, err error)
	Remove(sandbox string) error
	Keep(sandboxes []string) error
}

// Captures captures connections in network namespaces, records which captures are proven, and keeps them in place.
// A pod is NAMESPACE/NAME.
type Captures interface {
	Ensure(ctx context.Context, sandbox, pod, namespace string, flags []string) error
	Restore(sandbox, pod, namespace string, flags []string) error
	Forget(sandbox string)
	Keep(sandboxes []string)
}

// Agents manages the copies of the agent on the node.
type Agents interface {
	Keep(dirs []string) error
}

// A Plugin handles the runtime's requests. Without Leads it adjusts nothing, and only refuses.
type Plugin struct {
	Leads    bool   // this process is the one that adjusts containers
	AgentDir string // directory on the node with this version's agent
	States   States
	Captures Captures
	Agents   Agents
	Handlers []string // handlers of the runtime that run containers on the node's kernel, in addition to the known ones
	Log      *slog.Logger

	AgentsRoot, StatesRoot string // sources of the mounts; default: those in the contract

	limit atomic.Int64 // the time for which the runtime waits for an answer, a time.Duration
}

// workOf returns what the node must do for a pod; false without the annotation.
func workOf(pod *api.PodSandbox) (contract.NodeWork, bool, error) {
	text, ok := pod.GetAnnotations()[contract.NodeAnnotation]
	if !ok {
		return contract.NodeWork{}, false, nil
	}
	w, err := contract.ParseNodeWork(text)
	return w, true, err
}

// CreateContainer returns the adjustment of a container. If it returns an error, the container is not
// created, and the kubelet retries.
func (p *Plugin) CreateContainer(ctx context.Context, pod *api.PodSandbox, c *api.Container) (*api.ContainerAdjustment, []*api.ContainerUpdate, error) {
	if !p.Leads {
		return nil, nil, nil
	}
	began := time.Now()
	adjust, err := p.adjust(ctx, pod, c)
	if err != nil {
		p.Log.Warn("container refused", "namespace", pod.GetNamespace(), "pod", pod.GetName(), "container", c.GetName(), "error", err)
		return nil, nil, fmt.Errorf("outrider-node: %w", err)
	}
	if adjust != nil {
		p.Log.Info("container adjusted", "namespace", pod.GetNamespace(), "pod", pod.GetName(), "container", c.GetName(), "gate", len(adjust.Args) > 0, "after", time.Since(began))
	}
	return adjust, nil, nil
}

func (p *Plugin) adjust(ctx context.Context, pod *api.PodSandbox, c *api.Container) (*api.ContainerAdjustment, error) {
	work, ok, err := workOf(pod)
	if !ok || err != nil {
		return nil, err
	}
	if len(work.Capture) > 0 {
		if err := p.onHostKernel(pod.GetRuntimeHandler()); err != nil {
			return nil, err
		}
		ctx, cancel := p.limited(ctx)
		defer cancel()
		namespace, err := networkNamespace(pod)
		if err == nil {
			err = p.Captures.Ensure(ctx, pod.GetId(), nameOf(pod), namespace, work.Capture)
		}
		if err != nil {
			return nil, fmt.Errorf("the connections of pod %s/%s: %w", pod.GetNamespace(), pod.GetName(), err)
		}
	}
	args, listed := work.Containers[c.GetName()]
	if !listed {
		return nil, nil
	}
	adjust := &api.ContainerAdjustment{}
	if len(args) > 0 {
		if err := gateable(c); err != nil {
			return nil, err
		}
		// SetArgs would lose arguments that another plugin has set earlier.
		adjust.UpdateArgs(slices.Concat([]string{contract.AgentPath}, args, c.GetArgs()))
	}
	states, own, err := p.States.Container(pod.GetId(), c.GetName())
	if err != nil {
		return nil, err
	}
	adjust.AddMount(bind(p.AgentDir, contract.BinDir, "ro", "nosuid", "nodev"))
	adjust.AddMount(bind(states, contract.StatesDir, "ro", "nosuid", "nodev", "noexec"))
	adjust.AddMount(bind(own, contract.OwnDir, "rw", "nosuid", "nodev", "noexec"))
	return adjust, nil
}

// hostKernel lists the handlers (of RuntimeClasses) of runtimes that run containers on the node's own
// kernel: the runtime's default, runc and similar ones, and NVIDIA's, which call runc.
var hostKernel = []string{"", "runc", "crun", "youki", "nvidia", "nvidia-cdi", "nvidia-legacy"}

// onHostKernel refuses a sandbox with its own network stack (gVisor) or its own kernel (Kata), because
// rules in the pod's network namespace would not affect its connections.
func (p *Plugin) onHostKernel(handler string) error {
	if slices.Contains(hostKernel, handler) || slices.Contains(p.Handlers, handler) {
		return nil
	}
	return fmt.Errorf("the runtime's handler %q may run the pod on another kernel, which the node's rules do not bind: if it does not, name it in the value node.runtimeHandlers; else let an init container capture (%s: %s)",
		handler, contract.Init, contract.InitContained)
}

// limited returns a context that ends before the runtime stops waiting. If the plugin answered later,
// the runtime would disconnect it and create containers without it.
func (p *Plugin) limited(ctx context.Context) (context.Context, context.CancelFunc) {
	limit := time.Duration(p.limit.Load())
	if limit == 0 {
		limit = api.DefaultPluginRequestTimeout
	}
	return context.WithTimeoutCause(ctx, limit*3/4, errors.New("it took too long; the kubelet tries again"))
}

func bind(source, destination string, options ...string) *api.Mount {
	return &api.Mount{Source: source, Destination: destination, Type: "bind", Options: append([]string{"bind", "private"}, options...)}
}

func nameOf(pod *api.PodSandbox) string { return pod.GetNamespace() + "/" + pod.GetName() }

// gateable returns an error if a container cannot run behind a gate.
func gateable(c *api.Container) error {
	argv := c.GetArgs()
	if len(argv) == 0 {
		return fmt.Errorf("container %s has no command, neither in the pod nor in its image", c.GetName())
	}
	if contract.RunsFirst(argv[0]) {
		return fmt.Errorf("container %s runs %s, which has to be process 1: a gate cannot run it; order this container by another way, or by none (annotation %sinit: %s, or no edge to it)",
			c.GetName(), argv[0], contract.Prefix, contract.InitContained)
	}
	return nil
}

// networkNamespace returns the path of a pod's own network namespace.
func networkNamespace(pod *api.PodSandbox) (string, error) {
	for _, n := range pod.GetLinux().GetNamespaces() {
		if n.GetType() == "network" && n.GetPath() != "" {
			return n.GetPath(), nil
		}
	}
	return "", errors.New("the pod has hostNetwork, and the node's own connections are never captured; take the pod out of the mesh")
}

// ValidateContainerAdjustment runs after all plugins have adjusted a container. It refuses one that is
// not as the pod's annotation requires.
func (p *Plugin) ValidateContainerAdjustment(_ context.Context, req *api.ValidateContainerAdjustmentRequest) error {
	argv := req.GetContainer().GetArgs()
	if adjusted := req.GetAdjust().GetArgs(); len(adjusted) > 0 {
		argv = adjusted
		if argv[0] == "" { // UpdateArgs marks its arguments by an empty first one
			argv = argv[1:]
		}
	}
	return p.inOrder(req.GetPod(), req.GetContainer().GetName(), argv, slices.Concat(req.GetContainer().GetMounts(), req.GetAdjust().GetMounts()))
}

// StartContainer refuses a container that was created while no plugin was connected.
func (p *Plugin) StartContainer(_ context.Context, pod *api.PodSandbox, c *api.Container) error {
	return p.inOrder(pod, c.GetName(), c.GetArgs(), c.GetMounts())
}

// inOrder returns an error if a container, as it would be created, is not as the pod's annotation
// requires.
func (p *Plugin) inOrder(pod *api.PodSandbox, container string, argv []string, mounts []*api.Mount) error {
	work, ok, err := workOf(pod)
	if !ok || err != nil {
		return err
	}
	args, listed := work.Containers[container]
	if !listed {
		return nil
	}
	if want := append([]string{contract.AgentPath}, args...); len(args) > 0 && (len(argv) <= len(want) || !slices.Equal(argv[:len(want)], want)) {
		return fmt.Errorf("container %s is to run behind a gate, and does not: outrider-node does not serve yet, or another plugin has set its command; the kubelet tries again", container)
	}
	states := cmp.Or(p.StatesRoot, contract.NodeStatesDir)
	ours := map[string]string{contract.BinDir: cmp.Or(p.AgentsRoot, contract.NodeAgentsDir), contract.StatesDir: states, contract.OwnDir: states}
	for _, m := range mounts {
		at := path.Clean("/" + m.GetDestination())
		if from := ours[at]; from != "" && strings.HasPrefix(path.Clean(m.GetSource()), from+"/") {
			delete(ours, at)
		} else if contract.Overlap(at, contract.Dir) {
			return fmt.Errorf("container %s has %q mounted at %s, and all of %s is outrider-node's; mount it somewhere else", container, m.GetSource(), m.GetDestination(), contract.Dir)
		}
	}
	if missing := slices.Sorted(maps.Keys(ours)); len(missing) > 0 {
		return fmt.Errorf("container %s has nothing of outrider-node's mounted at %s; the kubelet tries again", container, strings.Join(missing, ", "))
	}
	return nil
}

// StopPodSandbox removes the data of a sandbox, because none of its containers will start again. A new
// sandbox of the same pod starts from scratch.
func (p *Plugin) StopPodSandbox(_ context.Context, pod *api.PodSandbox) error { return p.ended(pod) }

// RemovePodSandbox does the same as StopPodSandbox, in case the plugin missed the stop.
func (p *Plugin) RemovePodSandbox(_ context.Context, pod *api.PodSandbox) error { return p.ended(pod) }

func (p *Plugin) ended(pod *api.PodSandbox) error {
	if !p.Leads {
		return nil
	}
	p.Captures.Forget(pod.GetId())
	if err := p.States.Remove(pod.GetId()); err != nil {
		p.Log.Warn("states not removed", "sandbox", pod.GetId(), "error", err) // the next start removes them
	}
	return nil
}

// restore has the capture of a sandbox checked and watched that started while this process did not lead. The runtime
// also lists sandboxes that have ended: their namespaces are gone.
func (p *Plugin) restore(pod *api.PodSandbox) error {
	work, ok, err := workOf(pod)
	if !ok || err != nil || len(work.Capture) == 0 {
		return err
	}
	if err := p.onHostKernel(pod.GetRuntimeHandler()); err != nil {
		return err
	}
	namespace, err := networkNamespace(pod)
	if err != nil {
		return err
	}
	return p.Captures.Restore(pod.GetId(), nameOf(pod), namespace, work.Capture)
}

// Synchronize gets all sandboxes and containers when the plugin connects, and removes data that belong
// to none of them.
func (p *Plugin) Synchronize(_ context.Context, pods []*api.PodSandbox, containers []*api.Container) ([]*api.ContainerUpdate, error) {
	if !p.Leads {
		return nil, nil
	}
	bySandbox := map[string]*api.PodSandbox{}
	var sandboxes []string
	for _, pod := range pods {
		bySandbox[pod.GetId()] = pod
		sandboxes = append(sandboxes, pod.GetId())
	}
	dirs := []string{p.AgentDir}
	for _, c := range containers {
		for _, m := range c.GetMounts() {
			if m.GetDestination() == contract.BinDir {
				dirs = append(dirs, m.GetSource())
			}
		}
		if c.GetState() != api.ContainerState_CONTAINER_RUNNING {
			continue
		}
		pod := bySandbox[c.GetPodSandboxId()]
		if err := p.inOrder(pod, c.GetName(), c.GetArgs(), c.GetMounts()); err != nil {
			p.Log.Error("container runs out of order", "namespace", pod.GetNamespace(), "pod", pod.GetName(), "container", c.GetName(), "error", err)
		}
	}
	p.Captures.Keep(sandboxes)
	for _, pod := range pods {
		if err := p.restore(pod); err != nil {
			p.Log.Debug("sandbox is not watched", "pod", nameOf(pod), "sandbox", pod.GetId(), "error", err) // most have ended
		}
	}
	if err := errors.Join(p.States.Keep(sandboxes), p.Agents.Keep(dirs)); err != nil {
		p.Log.Warn("not all is removed that ended before", "error", err)
	}
	return nil, nil
}
