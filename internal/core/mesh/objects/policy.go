package objects

import (
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"outrider.dev/internal/core/mesh"
)

// A PeerAuthenticationObject contains the supported fields of Istio's PeerAuthentication
// (https://istio.io/latest/docs/reference/config/security/peer_authentication/).
type PeerAuthenticationObject struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		Selector *struct {
			MatchLabels map[string]string `json:"matchLabels,omitempty"`
		} `json:"selector,omitempty"`
		MTLS          *mutualTLS           `json:"mtls,omitempty"`
		PortLevelMTLS map[string]mutualTLS `json:"portLevelMtls,omitempty"`
	} `json:"spec"`
	Status map[string]any `json:"status,omitempty"`
}

type mutualTLS struct {
	Mode string `json:"mode,omitempty"`
}

var modes = map[string]mesh.Mode{
	"": mesh.Unset, "UNSET": mesh.Unset,
	"PERMISSIVE": mesh.ModePermissive, "STRICT": mesh.ModeStrict, "DISABLE": mesh.ModeDisable,
}

// PeerAuthentication returns the part for p. If there is an error, the part contains everything else in the
// object.
func PeerAuthentication(p *PeerAuthenticationObject) (*mesh.PolicySpec, error) {
	var c check
	out := &mesh.PolicySpec{Created: p.CreationTimestamp.Time}
	out.Namespace, out.Name = c.meta(&p.ObjectMeta)
	if p.Spec.Selector != nil {
		out.Selector = p.Spec.Selector.MatchLabels
	}
	if p.Spec.MTLS != nil {
		out.Mode = oneOf(&c, "spec.mtls.mode", p.Spec.MTLS.Mode, modes)
	}
	for _, port := range sortedKeys(p.Spec.PortLevelMTLS) {
		field := "spec.portLevelMtls." + port
		n, err := strconv.ParseInt(port, 10, 64)
		if err != nil {
			c.invalid(field, "%q is not a port number", port)
			continue
		}
		if out.Ports == nil {
			out.Ports = map[uint16]mesh.Mode{}
		}
		out.Ports[c.port(field, n)] = oneOf(&c, field+".mode", p.Spec.PortLevelMTLS[port].Mode, modes)
	}
	if len(out.Ports) > 0 && len(out.Selector) == 0 {
		c.invalid("spec.portLevelMtls", "requires spec.selector.matchLabels: ports belong to selected workloads")
	}
	return out, c.result()
}
