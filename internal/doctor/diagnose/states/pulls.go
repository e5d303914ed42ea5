package states

// Pulls has why an image cannot be pulled, by the messages of registries, of container runtimes and of Go's libraries, of
// any reason; the first whose text the message has counts. A registry that hides what exists answers alike for an image
// that does not exist and for credentials that are wrong, so that such answers come before both. Source: distribution's
// specification (codes of errors), containerd, CRI-O, crypto/x509, net.
var Pulls = []Meaning{
	{Reason: "*", Says: []string{"toomanyrequests", "too many requests", "pull rate limit", "rate exceeded"}, Sentence: "the registry limits how often images are pulled", Remedy: "pull with credentials (an imagePullSecret of the pod or of its service account), or from a mirror or a cache; the kubelet tries again by itself, and succeeds when the limit allows it"},
	{Reason: "*", Says: []string{"x509: certificate has expired", "certificate is not yet valid"}, Sentence: "the certificate of the registry is not valid now", Remedy: "renew the certificate of the registry, and see the clock of the node"},
	{Reason: "*", Says: []string{"x509:", "tls: failed to verify", "certificate signed by unknown authority"}, Sentence: "the node does not trust the certificate of the registry", Remedy: "give the container runtime of the nodes the authority that signed it, or the registry a certificate for its name"},
	{Reason: "*", Says: []string{"server gave http response to https client"}, Sentence: "the registry answers by HTTP, and the node asks by HTTPS", Remedy: "give the registry a certificate, or set it as insecure in the container runtime of the nodes"},
	{Reason: "*", Says: []string{"no match for platform", "no matching manifest", "does not match the specified platform", "no image found in image index for architecture"}, Sentence: "the image is not there for the node's CPU or operating system", Remedy: "build the image for it, or keep the pod on nodes of the image's (nodeSelector kubernetes.io/arch)"},
	{Reason: "*", Says: []string{"no space left on device"}, Sentence: "the node has no space left for it", Remedy: "free the node's disk, or give it a larger one"},
	{Reason: "*", Says: []string{"may require authorization", "may require 'docker login'", "insufficient_scope"}, Sentence: "the registry refuses access, or has no such image: it does not say which", Remedy: "see whether the image's name is right, and whether the pull secret may read it"},
	{Reason: "*", Says: []string{"manifest unknown", "manifest_unknown", "name unknown", "name_unknown", "repository not found", "repository does not exist"}, Sentence: "the registry has no such image", Remedy: "correct the image's name or tag, or push the image"},
	{Reason: "*", Says: []string{"unauthorized", "authentication required", "no basic auth credentials", "403 forbidden", "access denied", "access forbidden", "denied:", "invalid username", "incorrect username"}, Sentence: "the registry refuses access", Remedy: "see the pull secret of the pod, or of its service account (imagePullSecrets): whether it is in this namespace, for this registry, and its token still valid"},
	{Reason: "*", Says: []string{"no such host", "dial tcp: lookup ", "server misbehaving", "name resolution"}, Sentence: "the node does not resolve the registry's name", Remedy: "correct the registry's name, or see the DNS of the node (kubectl describe node)"},
	{Reason: "*", Says: []string{"i/o timeout", "deadline exceeded", "connection refused", "no route to host", "network is unreachable", "tls handshake timeout", "connection reset"}, Sentence: "the node does not reach the registry", Remedy: "see whether the registry runs, and what lies between it and the node (a firewall, a proxy, routes)"},
	{Reason: "*", Says: []string{"500 internal", "502 bad", "503 service", "504 gateway"}, Sentence: "the registry fails", Remedy: "see the registry; the kubelet tries again by itself"},
	{Reason: "*", Says: []string{": not found", "code = notfound", "404 not found"}, Sentence: "the registry has no such image", Remedy: "correct the image's name or tag, or push the image"},
}

// Gates has what to do about a readiness gate that is not open, by the type of its condition and the message. Source: the
// documentation of AWS Load Balancer Controller and of Google Kubernetes Engine.
var Gates = []Meaning{
	{Reason: "target-health.*", Says: []string{"codes"}, Remedy: "let the health check of the target group ask for a path that the pod answers with a status it expects (alb.ingress.kubernetes.io/healthcheck-path, success-codes), or let the pod answer there"},
	{Reason: "target-health.*", Says: []string{"timed out", "timeout", "unreachable", "connection"}, Remedy: "see whether the load balancer's health check may reach the pod on that port: security groups, a NetworkPolicy, the port and protocol of the health check"},
	{Reason: "target-health.*", Remedy: "see the health of the pod in its target group (kubectl get targetgroupbindings), and the log of the load balancer's controller"},
	{Reason: "cloud.google.com/*", Remedy: "see the health check of the load balancer's backend service: its path and port (BackendConfig), and the firewall rule for it"},
	{Reason: "*", Remedy: "see the controller that sets this condition of the pod: whether it runs, and what its log says of the pod"},
}
