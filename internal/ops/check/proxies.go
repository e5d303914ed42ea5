package check

import (
	"context"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"outrider.dev/internal/base/cli"
	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/core/controlplane/debugapi"
	"outrider.dev/internal/ops/kubeclient"
)

// dry returns a separate client, so that the warnings for its requests are not mixed with the warnings for other
// requests. If the present client is a fake, dry returns this client, because a fake has no warnings.
func (s *survey) dry(config *rest.Config) (kubernetes.Interface, error) {
	if _, real := s.Core.(*kubernetes.Clientset); !real {
		return s.Core, nil
	}
	return kubernetes.NewForConfig(config)
}

// proxies compares the proxies that the replicas report with the pods that have a proxy.
func (s *survey) proxies(ctx context.Context) answer {
	pods, err := s.allReplicas(ctx)
	if err != nil {
		return unknown(err)
	}
	if len(pods) == 0 {
		return skipped("no replica runs")
	}
	var all []debugapi.Proxy
	for _, p := range pods {
		connected, err := s.replicaSet.Proxies(ctx, p.Name)
		if err != nil {
			return unknown(marked(err))
		}
		all = append(all, connected...)
	}
	meshed, err := s.meshedPods(ctx)
	if err != nil {
		return unknown(err)
	}
	return synced(all, meshed)
}

// synced returns the answer for the connected proxies, and for the pods whose proxies should be connected.
func synced(connected []debugapi.Proxy, meshed []corev1.Pod) answer {
	const hint = "outrider proxy-status shows each proxy"
	is := map[string]bool{}
	var rejected, behind, away, failing []string
	for _, p := range connected {
		is[p.Name()] = true
		switch {
		case p.Failed():
			rejected = append(rejected, p.Name())
		case slices.ContainsFunc(p.Types, func(s debugapi.Subscription) bool { return s.Pending > 0 }):
			behind = append(behind, p.Name())
		case slices.ContainsFunc(p.Notes, func(note string) bool { return strings.HasPrefix(note, contract.WarningPrefix) }):
			failing = append(failing, p.Name())
		}
	}
	for _, p := range meshed {
		name := p.Name + "." + p.Namespace
		if proxyRuns(&p) && !is[name] {
			away = append(away, name)
		}
	}
	slices.Sort(rejected)
	slices.Sort(behind)
	slices.Sort(away)
	slices.Sort(failing)
	switch {
	case len(rejected) > 0:
		return failed(hint, "these rejected their configuration, or lack what an object requires: %s", cli.Few(rejected))
	case len(away) > 0:
		return warning("a proxy without connection goes on with what it has; its log says why: kubectl logs POD -c outrider-proxy", "connected to no replica: %s", cli.Few(away))
	case len(behind) > 0:
		return warning(hint, "a message was not answered yet by %s", cli.Few(behind))
	case len(failing) > 0:
		return warning(hint+", and the service", "calls to a service fail, since its endpoints are for other clients: %s", cli.Few(failing))
	}
	return fine("%s accepted what was sent", plural(len(is), "proxy", "proxies"))
}

// proxyRuns reports whether a pod's proxy is ready and the pod is not terminating.
func proxyRuns(p *corev1.Pod) bool {
	c := kubeclient.Status(p, contract.ProxyContainer)
	return p.DeletionTimestamp == nil && c != nil && c.Ready && c.State.Running != nil
}

// versions compares the versions of this command and the replicas, and the images of the proxies with the image that
// a new pod gets.
func (s *survey) versions(ctx context.Context) answer {
	pods, err := s.allReplicas(ctx)
	if err != nil {
		return unknown(err)
	}
	if len(pods) == 0 {
		return skipped("no replica runs")
	}
	versions := map[string]bool{}
	for _, p := range pods {
		v, err := s.replicaSet.Version(ctx, p.Name)
		if err != nil {
			return unknown(marked(err))
		}
		versions[v.Version] = true
	}
	sorted := slices.Sorted(maps.Keys(versions))
	if len(sorted) > 1 || sorted[0] != s.Version {
		return warning("outrider install of this version upgrades the control plane", "this command is %s, the control plane %s", s.Version, strings.Join(sorted, " and "))
	}
	sample, _, _, err := s.injected(ctx)
	if err != nil || kubeclient.Proxy(sample) == nil {
		return skipped("client and control plane are %s; the image of new proxies is not known: see the check webhook", s.Version)
	}
	meshed, err := s.meshedPods(ctx)
	if err != nil {
		return unknown(err)
	}
	return imagesOf(meshed, kubeclient.Proxy(sample).Image, s.Version)
}

// imagesOf compares the images of proxies with the image that new pods get.
func imagesOf(meshed []corev1.Pod, want, version string) answer {
	var older []string
	images := map[string]bool{}
	for _, p := range meshed {
		if image := kubeclient.Proxy(&p).Image; image != want {
			older = append(older, p.Namespace+"/"+p.Name)
			images[image] = true
		}
	}
	if len(older) > 0 {
		slices.Sort(older)
		return warning("outrider upgrade pods gives it to them", "%s not have the image %s of new pods, but %s: %s",
			plural(len(older), "proxy does", "proxies do"), want, cli.Few(slices.Sorted(maps.Keys(images))), cli.Few(older))
	}
	return fine("all are %s; %s the image %s", version, plural(len(meshed), "proxy has", "proxies have"), want)
}
