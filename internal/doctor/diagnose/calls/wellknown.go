package calls

import (
	"net/netip"
	"regexp"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"outrider.dev/internal/doctor"
)

// APIServer is the answer of [WellKnown] for the API server.
const APIServer = "the API server"

// wellKnown has hosts that are the same in all clusters, with what answers there. Sources: the documentation of AWS,
// Google Cloud, Azure and Alibaba Cloud; Service kubernetes of namespace default.
var wellKnown = map[string]string{
	"169.254.169.254": metadata, "fd00:ec2::254": metadata, "100.100.100.200": metadata, "metadata.google.internal": metadata, "metadata": metadata,
	"169.254.170.2": "the credentials server of ECS", "169.254.170.23": "EKS's Pod Identity Agent on the node", "fd00:ec2::23": "EKS's Pod Identity Agent on the node",
	"kubernetes": APIServer, "kubernetes.default": APIServer, "kubernetes.default.svc": APIServer, "kubernetes.default.svc.cluster.local": APIServer,
}

const metadata = "the node's metadata server"

// ofAPI matches the URLs of the API server, without their host.
var ofAPI = regexp.MustCompile(`/(?:api/v1|apis/[a-z0-9.-]+/v\d\w*)(?:[/?"'\s]|$)`)

// WellKnown returns what answers at a destination that clusters have in common, and an empty string for any other. spec
// is of the container that called, or nil, and text the line about the call. The API server has the first address of
// the range of Services, which ends so in most clusters; it is sure only by the environment, or by the URL.
func WellKnown(to doctor.Destination, spec *corev1.Container, text string) string {
	for _, host := range []string{to.Host, to.Name} {
		if what := wellKnown[strings.ToLower(strings.TrimSuffix(host, "."))]; what != "" && to.Network == "" {
			return what
		}
	}
	if to.Port != 443 && to.Port != 6443 || to.Network != "" {
		return ""
	}
	if spec != nil {
		for _, v := range spec.Env {
			if v.Name == "KUBERNETES_SERVICE_HOST" && v.Value == to.Host {
				return APIServer
			}
		}
	}
	if i := strings.Index(text, "https://"+to.Host); i >= 0 && ofAPI.MatchString(text[i:]) {
		return APIServer
	}
	if a, err := netip.ParseAddr(to.Host); err == nil && a.Is4() && a.IsPrivate() && a.As4()[0] != 192 && a.As4()[2] == 0 && a.As4()[3] == 1 && to.Port == 443 {
		return "most likely " + APIServer
	}
	return ""
}

// silent matches errors of lookups that got no answer from a DNS server.
var silent = regexp.MustCompile(`(?i)\bEAI_AGAIN\b|temporary failure in name resolution|temporarily unable to resolve|try again|i/o timeout|server misbehaving|connection refused|timed out|servfail`)

// NoAnswer reports whether a name was not resolved since no DNS server answered: that says nothing about the name.
func NoAnswer(text string) bool { return silent.MatchString(text) }
