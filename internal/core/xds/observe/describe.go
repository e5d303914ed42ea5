package observe

import (
	"cmp"
	"slices"
	"strings"

	cluster "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpoint "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"outrider.dev/internal/base/telemetry"
	"outrider.dev/internal/core/mesh"
	"outrider.dev/internal/core/xds/message"
)

// DescribeService adds to a cluster the service for which its requests are counted.
func DescribeService(c *cluster.Cluster, s *mesh.Service) {
	c.Metadata = described(telemetry.MetadataService, serviceOf(s).String())
}

func serviceOf(s *mesh.Service) telemetry.Service {
	return telemetry.Service{Name: s.Name, Namespace: s.Namespace, Host: s.Host}
}

// DescribeWorkload adds to an endpoint the workload for which its requests are counted.
func DescribeWorkload(e *endpoint.LbEndpoint, w *mesh.Workload) {
	m := described(telemetry.MetadataWorkload, workloadOf(w).String())
	if e.Metadata == nil {
		e.Metadata = m
	} else {
		proto.Merge(e.Metadata, m)
	}
}

func described(key, value string) *core.Metadata {
	return &core.Metadata{FilterMetadata: map[string]*structpb.Struct{telemetry.MetadataNamespace: message.Fields(map[string]string{key: value})}}
}

// workloadOf returns the names that injection gives a workload: see writeMetadata in
// internal/core/pod/inject.
func workloadOf(w *mesh.Workload) telemetry.Workload {
	l := w.Labels
	name := ownerOf(w)
	return telemetry.Workload{
		Name: name, Namespace: w.Namespace,
		CanonicalName:     cmp.Or(l["service.istio.io/canonical-name"], l["app.kubernetes.io/name"], l["app"], name),
		CanonicalRevision: cmp.Or(l["service.istio.io/canonical-revision"], l["app.kubernetes.io/version"], l["version"], "latest"),
	}
}

// ownerOf returns the name of a pod's owner: its Deployment, without the hashes that Kubernetes
// appends, or its StatefulSet or DaemonSet; or else the pod's own name.
func ownerOf(w *mesh.Workload) string {
	name := w.Name
	if w.Host {
		return name
	}
	i := strings.LastIndexByte(name, '-')
	if hash := w.Labels["pod-template-hash"]; hash != "" && i > 0 {
		if owner, ok := strings.CutSuffix(name[:i], "-"+hash); ok {
			return owner
		}
	}
	_, indexed := w.Labels["apps.kubernetes.io/pod-index"]
	_, revised := w.Labels["controller-revision-hash"]
	if (indexed || revised) && i > 0 {
		return name[:i]
	}
	return name
}

// ServicesByPort returns the service for which requests to each port of a workload are counted: the
// first by name.
func ServicesByPort(m *mesh.Mesh, w *mesh.Workload) map[uint16]telemetry.Service {
	if w == nil || len(w.Addresses) == 0 {
		return nil
	}
	services := slices.Clone(m.ServicesOf(w))
	slices.SortFunc(services, func(a, b *mesh.Service) int { return cmp.Compare(a.Host, b.Host) })
	out := map[uint16]telemetry.Service{}
	for _, s := range services {
		for _, p := range mesh.Captured(s.Ports) {
			for _, a := range w.Addresses {
				at := mesh.Endpoint{PortName: p.Name, Addr: a.Unmap()}
				i, found := slices.BinarySearchFunc(s.Endpoints, at, func(a, b mesh.Endpoint) int {
					return cmp.Or(cmp.Compare(a.PortName, b.PortName), a.Addr.Compare(b.Addr))
				})
				if !found || s.Endpoints[i].Workload != w {
					continue
				}
				if _, there := out[s.Endpoints[i].Port]; !there {
					out[s.Endpoints[i].Port] = serviceOf(s)
				}
			}
		}
	}
	return out
}
