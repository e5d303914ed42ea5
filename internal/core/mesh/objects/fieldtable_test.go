package objects

import (
	"slices"
	"strings"
)

// A field is a field of a Service, an EndpointSlice or a Pod, and its effect on where the connections of clients with
// a proxy go. Exactly one of its texts (Means to Nothing) is set. TestFields compares the table with the types of
// Kubernetes: each field there has an entry, or one of its parents has.
type field struct {
	Kind     string
	Path     string // as in a manifest, without indexes: spec.ports.port; a row of the table may have several
	Means    string // its effect
	Reported string // why it has none; objects with such a value are reported
	Nothing  string // why it decides nothing here
}

const (
	ofKubeProxy = "connections to it are passed on as they are, in plain text, by kube-proxy or (hostPort, hostIP) the CNI plugin"
	ofStatus    = "a report"
)

var fields = slices.Concat(
	of("Service", []field{
		{Path: "spec.ports.name", Means: "the endpoints' port; [the protocol](#protocols-of-ports) if appProtocol is not set"},
		{Path: "spec.ports.protocol", Means: "UDP and SCTP are not captured, but a port of TCP with the same number is"},
		{Path: "spec.ports.appProtocol", Means: "the protocol"},
		{Path: "spec.ports.port", Means: "the port of the virtual addresses"},
		{Path: "spec.ports.targetPort", Means: "the endpoints' port, if there is no EndpointSlice"},
		{Path: "spec.ports.nodePort spec.externalIPs status.loadBalancer", Nothing: ofKubeProxy},
		{Path: "spec.selector", Means: "the endpoints, if there is no EndpointSlice"},
		{Path: "spec.clusterIP", Means: "a virtual address; None: headless, connections go to the pods' addresses"},
		{Path: "spec.clusterIPs", Means: "the virtual addresses, of one or both families"},
		{Path: "spec.type", Means: "ExternalName: an alias; all other types have the same endpoints"},
		{Path: "spec.sessionAffinity", Means: "ClientIP: a pod stays with an endpoint. Reported where it has no effect, or not for all clients"},
		{Path: "spec.sessionAffinityConfig", Nothing: "a pod stays for longer than any timeout. An invalid one is an error"},
		{Path: `spec.loadBalancerIP spec.loadBalancerSourceRanges spec.loadBalancerClass spec.allocateLoadBalancerNodePorts
			spec.externalTrafficPolicy spec.healthCheckNodePort`, Nothing: "for connections from outside of the cluster, which kube-proxy directs to the pod and its proxy"},
		{Path: "spec.externalName", Means: "the name that an ExternalName stands for"},
		{Path: "spec.publishNotReadyAddresses", Means: "endpoints are used whatever their readiness, if there is no EndpointSlice"},
		{Path: "spec.ipFamilies", Means: "the families of the endpoints, if there is no EndpointSlice"},
		{Path: "spec.ipFamilyPolicy", Nothing: "the API server chooses clusterIPs and ipFamilies by it"},
		{Path: "spec.internalTrafficPolicy", Means: "Local: only endpoints on the client's node. Reported without an address"},
		{Path: "spec.trafficDistribution", Means: "endpoints in the client's zone or on its node are preferred. Reported beside Local or without an address"},
		{Path: "status.conditions", Nothing: ofStatus},
	}),
	of("EndpointSlice", []field{
		{Path: "addressType", Reported: "FQDN: names are no endpoints, as with kube-proxy; use externalName. Else it must be the family of the addresses"},
		{Path: "endpoints.addresses", Means: "each is an endpoint, or reported"},
		{Path: "endpoints.conditions.ready", Means: "the endpoint is used"},
		{Path: "endpoints.conditions.serving", Means: "with terminating, the endpoint is used if none is ready"},
		{Path: "endpoints.conditions.terminating", Means: "with serving, the endpoint is used if none is ready. One that is ready too is used"},
		{Path: "endpoints.hostname", Means: "the pod's own name in a headless Service"},
		{Path: "endpoints.targetRef.kind", Means: "Pod: the identity of the endpoint is the pod's"},
		{Path: "endpoints.targetRef.name", Means: "the pod, if it has the address"},
		{Path: "endpoints.targetRef", Nothing: "a pod is found in the slice's namespace, and checked by its address"},
		{Path: "endpoints.deprecatedTopology", Nothing: "of v1beta1: nodeName and zone have the same"},
		{Path: "endpoints.nodeName", Means: "the node, for internalTrafficPolicy and trafficDistribution"},
		{Path: "endpoints.zone", Means: "the zone, for trafficDistribution, and that of the node's clients"},
		{Path: "endpoints.hints", Means: "the zones and nodes whose clients use the endpoint"},
		{Path: "ports.name ports.protocol", Means: "the port of the Service, by name and protocol"},
		{Path: "ports.port", Reported: "none means all ports, of which none can be called, as with kube-proxy"},
		{Path: "ports.appProtocol", Nothing: "the Service's port with that name decides"},
	}),
	of("Pod", []field{
		{Path: "spec.containers.name", Means: "outrider-proxy: clients call the pod by mutual TLS. The label security.istio.io/tlsMode decides first, and alone for Istio's proxies"},
		{Path: "spec.containers.ports.name", Means: "a targetPort by name, if there is no EndpointSlice"},
		{Path: "spec.containers.ports.containerPort", Means: "the number for a targetPort by name, if there is no EndpointSlice"},
		{Path: "spec.containers.ports.hostPort spec.containers.ports.hostIP", Nothing: ofKubeProxy},
		{Path: "spec.containers.ports.protocol", Means: "the protocol of a targetPort by name, if there is no EndpointSlice"},
		{Path: `spec.containers spec.initContainers spec.restartPolicy spec.volumes spec.terminationGracePeriodSeconds
			spec.activeDeadlineSeconds spec.automountServiceAccountToken spec.securityContext spec.imagePullSecrets
			spec.runtimeClassName spec.os spec.resources spec.resourceClaims spec.overhead`, Nothing: "how the pod runs"},
		{Path: "spec.initContainers.name", Means: "as in spec.containers"},
		{Path: "spec.initContainers.ports.name spec.initContainers.ports.protocol spec.initContainers.ports.containerPort", Means: "as in spec.containers, of a sidecar"},
		{Path: "spec.initContainers.restartPolicy", Means: "Always: it is a sidecar"},
		{Path: "spec.serviceAccountName", Means: "the identity that clients require, and that policies name"},
		{Path: "spec.serviceAccount", Means: "as spec.serviceAccountName"},
		{Path: "spec.nodeName", Means: "the client's node, for internalTrafficPolicy and trafficDistribution"},
		{Path: "spec.hostNetwork", Means: "called in plain text, and found by EndpointSlices alone, as its address is the node's"},
		{Path: "spec.hostname", Means: "the pod's own name in a headless Service, if there is no EndpointSlice"},
		{Path: "spec.subdomain", Means: "the headless Service of that name"},
		{Path: "spec.setHostnameAsFQDN spec.hostnameOverride", Nothing: "the application's own name, which DNS does not follow"},
		{Path: "spec.hostAliases", Nothing: "a connection counts by its address"},
		{Path: "spec.dnsPolicy spec.dnsConfig", Nothing: "the agent reads the same resolv.conf"},
		{Path: "spec.enableServiceLinks", Nothing: "variables with virtual addresses"},
		{Path: "spec.readinessGates", Nothing: "part of the condition Ready"},
		{Path: "spec.ephemeralContainers", Nothing: "they share the pod's proxy"},
		{Path: "spec.hostPID spec.hostIPC spec.hostUsers spec.shareProcessNamespace", Nothing: "the proxy shares the pod's network all the same"},
		{Path: `spec.nodeSelector spec.affinity spec.schedulerName spec.tolerations spec.priorityClassName spec.priority
			spec.preemptionPolicy spec.topologySpreadConstraints spec.schedulingGates status.nominatedNodeName`, Nothing: "for the scheduler, whose choice is in spec.nodeName"},
		{Path: "status.phase", Means: "Succeeded and Failed: the pod has no traffic"},
		{Path: "status.conditions", Means: "Ready: the endpoint is used, if there is no EndpointSlice; one that [was ready a moment ago](rationale.md#when-has-an-endpoint-traffic-that-is-not-ready) only without another"},
		{Path: "status.podIP", Means: "the address by which the pod is found"},
		{Path: "status.podIPs", Means: "the addresses by which the pod is found"},
		{Path: "status.containerStatuses", Means: "whether a pod that is not ready was ready a moment ago"},
		{Path: "status.initContainerStatuses", Means: "as status.containerStatuses, of sidecars"},
		{Path: "status.hostIP status.hostIPs", Nothing: "the node's address is none of the pod's"},
		{Path: `status.observedGeneration status.message status.reason status.startTime status.qosClass
			status.ephemeralContainerStatuses status.resize status.resourceClaimStatuses
			status.extendedResourceClaimStatus`, Nothing: ofStatus},
	}),
)

// of returns the fields of a kind. A row with several paths is an entry for each.
func of(kind string, rows []field) (out []field) {
	for _, f := range rows {
		for path := range strings.FieldsSeq(f.Path) {
			f.Kind, f.Path = kind, path
			out = append(out, f)
		}
	}
	return out
}
