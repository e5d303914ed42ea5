package objects

import "slices"

// A field is a field of a Service, an EndpointSlice or a Pod, and its effect on where the connections of clients with
// a proxy go. Exactly one of its texts (Means to Nothing) is set. TestFields compares the table with the types of
// Kubernetes: each field there has an entry, or one of its parents has.
type field struct {
	Kind     string
	Path     string // as in a manifest, without indexes: spec.ports.port
	Means    string // its effect
	Reported string // why it has none; objects with such a value are reported
	Nothing  string // why it decides nothing here
}

const (
	outsideAlone = "for connections from outside of the cluster, which kube-proxy directs to the pod and its proxy"
	ofKubeProxy  = "connections to it are passed on as they are, in plain text, by kube-proxy or (hostPort, hostIP) the CNI plugin"
	ofContainers = "how the pod runs"
	ofScheduler  = "for the scheduler, whose choice is in spec.nodeName"
	ofStatus     = "a report"
	ofCapture    = "the proxy shares the pod's network all the same"
)

var fields = slices.Concat(
	of("Service", []field{
		{Path: "spec.ports.name", Means: "the endpoints' port; [the protocol](#protocols-of-ports) if appProtocol is not set"},
		{Path: "spec.ports.protocol", Means: "UDP and SCTP are not captured, but a port of TCP with the same number is"},
		{Path: "spec.ports.appProtocol", Means: "the protocol"},
		{Path: "spec.ports.port", Means: "the port of the virtual addresses"},
		{Path: "spec.ports.targetPort", Means: "the endpoints' port, if there is no EndpointSlice"},
		{Path: "spec.ports.nodePort", Nothing: ofKubeProxy},
		{Path: "spec.selector", Means: "the endpoints, if there is no EndpointSlice"},
		{Path: "spec.clusterIP", Means: "a virtual address; None: headless, connections go to the pods' addresses"},
		{Path: "spec.clusterIPs", Means: "the virtual addresses, of one or both families"},
		{Path: "spec.type", Means: "ExternalName: an alias; all other types have the same endpoints"},
		{Path: "spec.externalIPs", Nothing: ofKubeProxy},
		{Path: "spec.sessionAffinity", Means: "ClientIP: a pod stays with an endpoint. Reported where it has no effect, or not for all clients"},
		{Path: "spec.sessionAffinityConfig", Nothing: "a pod stays for longer than any timeout. An invalid one is an error"},
		{Path: "spec.loadBalancerIP", Nothing: outsideAlone},
		{Path: "spec.loadBalancerSourceRanges", Nothing: outsideAlone},
		{Path: "spec.loadBalancerClass", Nothing: outsideAlone},
		{Path: "spec.allocateLoadBalancerNodePorts", Nothing: outsideAlone},
		{Path: "spec.externalTrafficPolicy", Nothing: outsideAlone},
		{Path: "spec.healthCheckNodePort", Nothing: outsideAlone},
		{Path: "spec.externalName", Means: "the name that an ExternalName stands for"},
		{Path: "spec.publishNotReadyAddresses", Means: "endpoints are used whatever their readiness, if there is no EndpointSlice"},
		{Path: "spec.ipFamilies", Means: "the families of the endpoints, if there is no EndpointSlice"},
		{Path: "spec.ipFamilyPolicy", Nothing: "the API server chooses clusterIPs and ipFamilies by it"},
		{Path: "spec.internalTrafficPolicy", Means: "Local: only endpoints on the client's node. Reported without an address"},
		{Path: "spec.trafficDistribution", Means: "endpoints in the client's zone or on its node are preferred. Reported beside Local or without an address"},
		{Path: "status.loadBalancer", Nothing: ofKubeProxy},
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
		{Path: "ports.name", Means: "the port of the Service, by name and protocol"},
		{Path: "ports.protocol", Means: "the port of the Service, by name and protocol"},
		{Path: "ports.port", Reported: "none means all ports, of which none can be called, as with kube-proxy"},
		{Path: "ports.appProtocol", Nothing: "the Service's port with that name decides"},
	}),
	of("Pod", []field{
		{Path: "spec.containers.name", Means: "outrider-proxy: clients call the pod by mutual TLS. The label security.istio.io/tlsMode decides first, and alone for Istio's proxies"},
		{Path: "spec.containers.ports.name", Means: "a targetPort by name, if there is no EndpointSlice"},
		{Path: "spec.containers.ports.containerPort", Means: "the number for a targetPort by name, if there is no EndpointSlice"},
		{Path: "spec.containers.ports.hostPort", Nothing: ofKubeProxy},
		{Path: "spec.containers.ports.hostIP", Nothing: ofKubeProxy},
		{Path: "spec.containers.ports.protocol", Means: "the protocol of a targetPort by name, if there is no EndpointSlice"},
		{Path: "spec.containers", Nothing: ofContainers},
		{Path: "spec.initContainers.name", Means: "as in spec.containers"},
		{Path: "spec.initContainers.ports.name", Means: "as in spec.containers, of a sidecar"},
		{Path: "spec.initContainers.ports.protocol", Means: "as in spec.containers, of a sidecar"},
		{Path: "spec.initContainers.ports.containerPort", Means: "as in spec.containers, of a sidecar"},
		{Path: "spec.initContainers.restartPolicy", Means: "Always: it is a sidecar"},
		{Path: "spec.initContainers", Nothing: ofContainers},
		{Path: "spec.serviceAccountName", Means: "the identity that clients require, and that policies name"},
		{Path: "spec.serviceAccount", Means: "as spec.serviceAccountName"},
		{Path: "spec.nodeName", Means: "the client's node, for internalTrafficPolicy and trafficDistribution"},
		{Path: "spec.hostNetwork", Means: "called in plain text, and found by EndpointSlices alone, as its address is the node's"},
		{Path: "spec.hostname", Means: "the pod's own name in a headless Service, if there is no EndpointSlice"},
		{Path: "spec.subdomain", Means: "the headless Service of that name"},
		{Path: "spec.setHostnameAsFQDN", Nothing: "the application's own name, which DNS does not follow"},
		{Path: "spec.hostnameOverride", Nothing: "the application's own name, which DNS does not follow"},
		{Path: "spec.hostAliases", Nothing: "a connection counts by its address"},
		{Path: "spec.dnsPolicy", Nothing: "the agent reads the same resolv.conf"},
		{Path: "spec.dnsConfig", Nothing: "the agent reads the same resolv.conf"},
		{Path: "spec.enableServiceLinks", Nothing: "variables with virtual addresses"},
		{Path: "spec.readinessGates", Nothing: "part of the condition Ready"},
		{Path: "spec.restartPolicy", Nothing: ofContainers},
		{Path: "spec.volumes", Nothing: ofContainers},
		{Path: "spec.ephemeralContainers", Nothing: "they share the pod's proxy"},
		{Path: "spec.terminationGracePeriodSeconds", Nothing: ofContainers},
		{Path: "spec.activeDeadlineSeconds", Nothing: ofContainers},
		{Path: "spec.automountServiceAccountToken", Nothing: ofContainers},
		{Path: "spec.hostPID", Nothing: ofCapture},
		{Path: "spec.hostIPC", Nothing: ofCapture},
		{Path: "spec.hostUsers", Nothing: ofCapture},
		{Path: "spec.shareProcessNamespace", Nothing: ofCapture},
		{Path: "spec.securityContext", Nothing: ofContainers},
		{Path: "spec.imagePullSecrets", Nothing: ofContainers},
		{Path: "spec.runtimeClassName", Nothing: ofContainers},
		{Path: "spec.os", Nothing: ofContainers},
		{Path: "spec.resources", Nothing: ofContainers},
		{Path: "spec.resourceClaims", Nothing: ofContainers},
		{Path: "spec.overhead", Nothing: ofContainers},
		{Path: "spec.nodeSelector", Nothing: ofScheduler},
		{Path: "spec.affinity", Nothing: ofScheduler},
		{Path: "spec.schedulerName", Nothing: ofScheduler},
		{Path: "spec.tolerations", Nothing: ofScheduler},
		{Path: "spec.priorityClassName", Nothing: ofScheduler},
		{Path: "spec.priority", Nothing: ofScheduler},
		{Path: "spec.preemptionPolicy", Nothing: ofScheduler},
		{Path: "spec.topologySpreadConstraints", Nothing: ofScheduler},
		{Path: "spec.schedulingGates", Nothing: ofScheduler},
		{Path: "status.phase", Means: "Succeeded and Failed: the pod has no traffic"},
		{Path: "status.conditions", Means: "Ready: the endpoint is used, if there is no EndpointSlice; one that [was ready a moment ago](rationale.md#when-has-an-endpoint-traffic-that-is-not-ready) only without another"},
		{Path: "status.podIP", Means: "the address by which the pod is found"},
		{Path: "status.podIPs", Means: "the addresses by which the pod is found"},
		{Path: "status.containerStatuses", Means: "whether a pod that is not ready was ready a moment ago"},
		{Path: "status.initContainerStatuses", Means: "as status.containerStatuses, of sidecars"},
		{Path: "status.hostIP", Nothing: "the node's address is none of the pod's"},
		{Path: "status.hostIPs", Nothing: "the node's address is none of the pod's"},
		{Path: "status.nominatedNodeName", Nothing: ofScheduler},
		{Path: "status.observedGeneration", Nothing: ofStatus},
		{Path: "status.message", Nothing: ofStatus},
		{Path: "status.reason", Nothing: ofStatus},
		{Path: "status.startTime", Nothing: ofStatus},
		{Path: "status.qosClass", Nothing: ofStatus},
		{Path: "status.ephemeralContainerStatuses", Nothing: ofStatus},
		{Path: "status.resize", Nothing: ofStatus},
		{Path: "status.resourceClaimStatuses", Nothing: ofStatus},
		{Path: "status.extendedResourceClaimStatus", Nothing: ofStatus},
	}),
)

func of(kind string, all []field) []field {
	for i := range all {
		all[i].Kind = kind
	}
	return all
}
