package inject

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/base/manifest"
	"outrider.dev/internal/core/capture"
	"outrider.dev/internal/core/pod/inject/changes"
	"outrider.dev/internal/core/pod/inject/containers"
	"outrider.dev/internal/core/pod/inject/settings"
	"outrider.dev/internal/core/pod/inject/verdict"
	"outrider.dev/internal/core/pod/podspec"
)

// imageVolumes is the first minor version of Kubernetes in which image volumes, with sub-paths, are beta.
// Source: KEP-4639; pkg/features/kube_features.go of kubernetes v1.34.4.
const imageVolumes = 33

// initOf returns which component captures connections and how the gates get the agent, as a value of
// [effective].init. The pod's annotation takes precedence over the namespace's annotation, and the latter over
// the mesh's value.
func initOf(in input, r *verdict.Report) (string, error) {
	mode, at := contract.InitAuto, "the default"
	for _, s := range []struct {
		text, at string
	}{
		{in.o.Values.Injector.Init, "value sidecarInjectorWebhook.init"},
		{in.ns.Annotations[contract.Init], "annotation " + contract.Init + " of namespace " + in.ns.Name},
		{in.pod.Annotations[contract.Init], "annotation " + contract.Init},
	} {
		if s.text == "" {
			continue
		}
		if err := settings.InitModes(s.text); err != nil {
			return "", verdict.Refuse(verdict.InvalidAnnotation, "", "%s: %q: want %v", s.at, s.text, err)
		}
		mode, at = s.text, s.at
	}
	switch {
	case mode == contract.InitAuto && in.o.NodeServes:
		r.Note("%s: auto: the nodes capture and add the gates, since all of them run outrider-node", contract.Init)
		return contract.InitByNode, nil
	case mode == contract.InitAuto:
		return contract.InitContained, nil
	case mode == contract.InitVolume && in.o.kubernetes() < imageVolumes:
		r.Ignored(contract.Init, fmt.Sprintf("volumes of images need Kubernetes 1.%d, and this is 1.%d", imageVolumes, in.o.kubernetes()))
		r.Warn("%s: image-volume has no effect, and an init container brings the gates: volumes of images need Kubernetes 1.%d, and this is 1.%d", at, imageVolumes, in.o.kubernetes())
		return contract.InitContained, nil
	case mode == contract.InitVolume:
		r.Note("%s: image-volume (%s): a volume of %s brings the gates; it needs a kubelet with the feature ImageVolume (by default from Kubernetes 1.35 on) and containerd 2.1 or CRI-O 1.33", contract.Init, at, contract.ProxyContainer+"'s image")
	case mode == contract.InitByNode:
		r.Note("%s: node (%s): the nodes capture and add the gates; the pod runs only on nodes with the label %s=%s", contract.Init, at, contract.NodeLabel, contract.NodeInstalled)
	}
	return mode, nil
}

func (s effective) byNode() bool { return s.init == contract.InitByNode }

// writeNode writes into the pod the work that outrider-node does for it. The pod then runs only on nodes with
// outrider-node.
func writeNode(pod *corev1.Pod, in input, s effective, before *changes.Overrides, r *verdict.Report) error {
	work, _ := podspec.NodeWork(pod)
	if s.capture {
		work.Capture = slices.Concat(in.captureFlags(s), captureEnvironment(s))
	}
	if _, own := in.own.find(contract.InitContainer); own {
		r.Warn("the pod's own container %s is left out: the node does its work", contract.InitContainer)
	}
	if len(work.Capture)+len(work.Containers) == 0 {
		return nil
	}
	podspec.SetNodeWork(pod, work)
	before.Select(pod, contract.NodeLabel, contract.NodeInstalled)
	plugins, err := requiring(pod.Annotations[contract.RequiredPlugins])
	if err != nil {
		return err
	}
	before.Annotate(pod, contract.RequiredPlugins, &plugins)
	if list := pod.Spec.InitContainers; s.proxy && s.capture && len(list) > 0 && !slices.ContainsFunc(list, containers.Named(contract.ProxyContainer)) {
		r.Warn("the init containers from %s on run with their connections captured and no proxy: what they call waits until they give up", list[0].Name)
	}
	return nil
}

// requiring adds our plugin to text, the list of the NRI plugins that a pod requires.
func requiring(text string) (string, error) {
	var list []string
	if err := manifest.DecodeAnnotation(text, &list); err != nil {
		return "", verdict.Refuse(verdict.InvalidAnnotation, "", "annotation %s: %q: want a list of plugins, as [%s]: %v", contract.RequiredPlugins, text, contract.NodePlugin, err)
	}
	if !slices.Contains(list, contract.NodePlugin) {
		list = append(list, contract.NodePlugin)
	}
	return "[" + strings.Join(list, ", ") + "]", nil
}

// captureEnvironment returns flags for those capture settings that an init container reads from environment
// variables, which the mesh sets as proxyMetadata.
func captureEnvironment(s effective) (flags []string) {
	for _, f := range capture.Flags(&capture.Intent{}, nil, nil) {
		for _, name := range f.Env {
			if value := s.config.ProxyMetadata[name]; value != "" && f.Name != "proxy-uid" {
				flags = append(flags, fmt.Sprintf("--%s=%s", f.Name, value))
				break
			}
		}
	}
	return flags
}
