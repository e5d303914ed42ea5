package mesh

import (
	"fmt"
	"net/netip"
	"slices"
)

// The rules are those of Istio's AuthorizationPolicy
// (https://istio.io/latest/docs/reference/config/security/authorization-policy/):
//   - a policy is for the workloads of its namespace that its selector matches, one of the root
//     namespace for those of all namespaces;
//   - what a rule of a DENY policy matches is denied; else, if an ALLOW policy is for the
//     workload, what no rule of one matches;
//   - bytes have no properties of requests. There an ALLOW rule with one never matches, and a
//     DENY rule matches whatever that property would be
//     (https://istio.io/latest/docs/tasks/security/authorization/authz-tcp/).
//
// What is not supported is treated in the same way, wherever it is: an ALLOW rule that cannot be
// judged allows nothing, and a DENY rule denies more.

// An AuthorizationSpec is an AuthorizationPolicy.
type AuthorizationSpec struct {
	Name, Namespace string
	Selector        map[string]string // none: the namespace, or from the root namespace the mesh
	Deny            bool              // else it allows
	Rules           []AuthorizationRule

	// Closed: it stands for a policy that is invalid, and has had no valid version. It allows
	// nothing, or denies everything.
	Closed bool

	Unenforced *IgnoredSpec // what is reported about it; nil: it is enforced as it is written
}

// An AuthorizationRule matches if one of From does, one of To, and all of When. An empty From or To
// matches.
type AuthorizationRule struct {
	From, To [][]Condition // any of the lists; all of a list
	When     []Condition
}

// A Condition matches if an attribute has one of the values, and none of NotValues. Without
// values it may have any.
type Condition struct {
	Of                Attribute
	Values, NotValues []string // as in the policy
}

// An Attribute of a connection or request.
type Attribute string

const (
	Unsupported    Attribute = ""
	Principal      Attribute = "principal"      // trust domain/ns/namespace/sa/account, of a client with a certificate
	ClientNS       Attribute = "namespace"      // likewise
	ServiceAccount Attribute = "serviceAccount" // namespace/account; without a slash: of the policy's namespace
	SourceIP       Attribute = "ip"
	AppPortNumber  Attribute = "port"
	Method         Attribute = "method"
	Path           Attribute = "path"
	HostName       Attribute = "host"
)

// Conditions are the keys of when that are supported
// (https://istio.io/latest/docs/reference/config/security/conditions/).
var Conditions = map[string]Attribute{
	"source.principal": Principal, "source.namespace": ClientNS, "source.serviceAccount": ServiceAccount, "source.ip": SourceIP, "destination.port": AppPortNumber,
}

// Judged reports whether a condition can be judged: of bytes, or else of requests.
func (c Condition) Judged(bytes bool) bool {
	switch c.Of {
	case Method, Path, HostName:
		return !bytes
	}
	return c.Of != Unsupported
}

// An Authorization is what holds for a workload with policies.
type Authorization struct {
	Policies []*AuthorizationSpec // by namespace and name
	TooLarge bool                 // all of them: everything is denied
	Key      string               // the same for equal policies, and for no others
}

// MaxPolicySize bounds a policy, in bytes as [AuthorizationSpec.Size] counts: some 1,000
// principals.
const MaxPolicySize = 64 << 10

// Size is about what a policy occupies in a filter chain.
func (s *AuthorizationSpec) Size() int {
	n := 0
	for _, r := range s.Rules {
		n += 64 + conditionsSize(r.When)
		for _, list := range slices.Concat(r.From, r.To) {
			n += conditionsSize(list)
		}
	}
	return n
}

func conditionsSize(list []Condition) int {
	n := 8
	for _, c := range list {
		for _, v := range slices.Concat(c.Values, c.NotValues) {
			n += 16 + len(v)
		}
	}
	return n
}

// closed denies everything.
var closed = &Authorization{TooLarge: true, Key: "closed"}

// IsFor reports whether s selects a workload of its namespace.
func (s *AuthorizationSpec) IsFor(labels map[string]string) bool {
	return len(s.Selector) == 0 || Selects(s.Selector, labels)
}

// Authorization returns what holds for a workload of m; nil if no policy is for it. For a
// workload that is not known (nil) it denies everything, if its namespace has policies or the
// root namespace has: one of them may be for it.
func (m *Mesh) Authorization(w *Workload, namespace string) *Authorization {
	switch {
	case w != nil:
		return m.tables.Authorizations.Get(w.Key())
	case m.tables.Guarded.Get(namespace) || m.tables.Guarded.Get(m.Config.RootNamespace):
		return closed
	}
	return nil
}

// SameAuthorization reports whether the policies of all workloads are the same.
func (m *Mesh) SameAuthorization(other *Mesh) bool {
	return m.tables.Authorizations == other.tables.Authorizations && m.tables.Guarded == other.tables.Guarded
}

// Block parses an address or a range.
func Block(v string) (netip.Prefix, error) {
	if p, err := netip.ParsePrefix(v); err == nil {
		return p.Masked(), nil
	}
	a, err := netip.ParseAddr(v)
	if err != nil || a.Zone() != "" {
		return netip.Prefix{}, fmt.Errorf("%q is not an address", v)
	}
	return netip.PrefixFrom(a, a.BitLen()), nil
}
