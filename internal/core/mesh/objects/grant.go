package objects

import (
	"slices"

	"k8s.io/utils/ptr"
	gatewayv1beta1 "sigs.k8s.io/gateway-api/apis/v1beta1"

	"outrider.dev/internal/core/mesh"
)

// routeKinds are the kinds of routes to which a ReferenceGrant can give access here.
var routeKinds = []mesh.Kind{mesh.KindRoute, mesh.KindGRPC}

// ReferenceGrant returns the part for g; nil if g does not allow routes to use Services as backends.
func ReferenceGrant(g *gatewayv1beta1.ReferenceGrant) (*mesh.GrantSpec, error) {
	var c check
	out := &mesh.GrantSpec{}
	out.Namespace, out.Name = c.meta(&g.ObjectMeta)
	for i, from := range g.Spec.From {
		if from.Group != gatewayv1beta1.GroupName || !slices.Contains(routeKinds, mesh.Kind(from.Kind)) {
			continue
		}
		c.label(at("spec.from", i)+".namespace", string(from.Namespace))
		out.From = append(out.From, mesh.GrantFrom{Kind: mesh.Kind(from.Kind), Namespace: string(from.Namespace)})
	}
	for i, to := range g.Spec.To {
		if to.Group != "" || to.Kind != "Service" {
			continue
		}
		if to.Name != nil {
			c.label(at("spec.to", i)+".name", string(*to.Name))
		}
		out.To = append(out.To, string(ptr.Deref(to.Name, "")))
	}
	if len(out.From) == 0 || len(out.To) == 0 {
		return nil, c.result()
	}
	return out, c.result()
}
