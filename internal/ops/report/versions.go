// Package report describes a running mesh for Outrider's commands: the versions of its parts, and the
// decisions about a single pod.
package report

import (
	"cmp"
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"outrider.dev/internal/base/cli"
	"outrider.dev/internal/core/controlplane/debugapi"
	"outrider.dev/internal/ops/kubeclient"
	"outrider.dev/internal/ops/replicas"
)

// Versions are the versions of a command and of the parts in the cluster.
type Versions struct {
	Client       cli.Build          `json:"client"`
	ControlPlane []replicas.Replica `json:"controlPlane,omitempty"`
	Proxies      []ProxyVersions    `json:"proxies,omitempty"`
	Problem      string             `json:"problem,omitempty"` // error because of which versions of the cluster are missing
}

// ProxyVersions is the number of pods whose proxies have the same versions.
type ProxyVersions struct {
	Pods  int    `json:"pods"`
	Agent string `json:"agent,omitempty"` // empty: not connected, or not reported
	Envoy string `json:"envoy,omitempty"`
	Image string `json:"image"`
}

// Read adds the versions of the control plane and the proxies. If some cannot be read, it sets Problem.
func (v *Versions) Read(ctx context.Context, client *kubeclient.Client, set *replicas.Set) {
	all, err := set.All(ctx)
	if err == nil {
		v.ControlPlane = all
		var pods []corev1.Pod
		if pods, err = kubeclient.Meshed(ctx, client.Core, "", ""); err == nil {
			v.Proxies = proxyVersions(pods, replicas.Proxies(all))
		}
	}
	if err != nil {
		v.Problem = err.Error()
	}
}

// proxyVersions groups pods by version, the most frequent first.
func proxyVersions(pods []corev1.Pod, connected []debugapi.Proxy) []ProxyVersions {
	of := replicas.Newest(connected)
	count := map[ProxyVersions]int{}
	for _, p := range pods {
		proxy := cmp.Or(of[p.Name+"."+p.Namespace], &debugapi.Proxy{})
		count[ProxyVersions{Agent: proxy.Agent, Envoy: proxy.Envoy, Image: kubeclient.Proxy(&p).Image}]++
	}
	var out []ProxyVersions
	for v, n := range count { // any order: sorted below
		v.Pods = n
		out = append(out, v)
	}
	slices.SortFunc(out, func(a, b ProxyVersions) int {
		return cmp.Or(cmp.Compare(b.Pods, a.Pods), cmp.Compare(a.Image, b.Image), cmp.Compare(a.Agent, b.Agent), cmp.Compare(a.Envoy, b.Envoy))
	})
	return out
}
