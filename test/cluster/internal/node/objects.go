package node

// An object is an API object and the path at which it is created.
type object struct{ path, yaml string }

// objects make DNS an ordinary Service, so that a pod's queries take the same path as in other clusters. The
// Service's only endpoint is a process on the node, so that DNS needs no image and works before the first pod.
var objects = []object{
	{"/apis/rbac.authorization.k8s.io/v1/clusterroles", `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: coredns}
rules:
- {apiGroups: [""], resources: [services, pods, namespaces], verbs: [list, watch]}
- {apiGroups: [discovery.k8s.io], resources: [endpointslices], verbs: [list, watch]}
`},
	{"/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: coredns}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: coredns}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: coredns}]
`},
	{"/api/v1/namespaces/kube-system/services", `
apiVersion: v1
kind: Service
metadata: {name: kube-dns, namespace: kube-system}
spec:
  clusterIP: ` + DNSService + `
  ports: [{name: dns, port: 53, protocol: UDP}, {name: dns-tcp, port: 53, protocol: TCP}]
`},
	{"/apis/discovery.k8s.io/v1/namespaces/kube-system/endpointslices", `
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: kube-dns, namespace: kube-system, labels: {kubernetes.io/service-name: kube-dns}}
addressType: IPv4
ports: [{name: dns, port: 53, protocol: UDP}, {name: dns-tcp, port: 53, protocol: TCP}]
endpoints: [{addresses: [` + Address + `], conditions: {ready: true}}]
`},
}
