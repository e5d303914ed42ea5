package mesh

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// The rules follow Istio's AuthorizationPolicy
// (https://istio.io/latest/docs/reference/config/security/authorization-policy/):
//   - A policy applies to the workloads in its namespace that its selector matches. In the root namespace, it
//     applies to those in all namespaces.
//   - A connection or request is denied if a rule of a DENY policy matches it. It is also denied if ALLOW
//     policies apply to the workload and none of their rules matches it.
//   - On ports for bytes (TCP), conditions on requests cannot be evaluated. There an ALLOW rule with such a
//     condition never matches, and in a DENY rule such a condition always matches
//     (https://istio.io/latest/docs/tasks/security/authorization/authz-tcp/).
//
// Unsupported fields are treated in the same way on all ports: an ALLOW rule that cannot be evaluated allows
// nothing, and a DENY rule denies more.

// An AuthorizationSpec is the [Part] of a mesh that an AuthorizationPolicy defines.
type AuthorizationSpec struct {
	Name, Namespace string
	Selector        map[string]string // none: applies to the namespace or, in the root namespace, to the mesh
	Deny            bool              // it is a DENY policy; otherwise an ALLOW policy
	Rules           []AuthorizationRule

	// Closed marks an invalid policy that never had a valid version. It allows nothing, or denies everything.
	Closed bool

	Unenforced *IgnoredSpec // report about the parts that are not enforced; nil: it is enforced as written
}

// An AuthorizationRule matches a request if any list in From matches, any list in To, and all of When. An
// empty From or To always matches.
type AuthorizationRule struct {
	From, To [][]Condition // one of the lists must match; a list matches if all its conditions do
	When     []Condition
}

// A Condition matches if its attribute has one of Values and none of NotValues. If Values is empty, it
// matches all values that are not in NotValues.
type Condition struct {
	Of                Attribute
	Values, NotValues []string // as written in the policy
}

// An Attribute is a property of a connection or request.
type Attribute string

const (
	Unsupported    Attribute = ""
	Principal      Attribute = "principal"      // trust domain/ns/namespace/sa/account, of a client with a certificate
	ClientNS       Attribute = "namespace"      // namespace of a client with a certificate
	ServiceAccount Attribute = "serviceAccount" // namespace/account; without a slash: account in the policy's namespace
	SourceIP       Attribute = "ip"
	AppPortNumber  Attribute = "port"
	Method         Attribute = "method"
	Path           Attribute = "path"
	HostName       Attribute = "host"
)

// Conditions maps the supported keys of "when" to attributes
// (https://istio.io/latest/docs/reference/config/security/conditions/).
var Conditions = map[string]Attribute{
	"source.principal": Principal, "source.namespace": ClientNS, "source.serviceAccount": ServiceAccount, "source.ip": SourceIP, "destination.port": AppPortNumber,
}

// Judged reports whether a condition can be evaluated on a port for bytes (TCP) or, if the argument is false,
// on a port for requests (HTTP).
func (c Condition) Judged(bytes bool) bool {
	switch c.Of {
	case Method, Path, HostName:
		return !bytes
	}
	return c.Of != Unsupported
}

// An Authorization contains the policies that apply to one workload.
type Authorization struct {
	Policies []*AuthorizationSpec // sorted by namespace and name
	TooLarge bool                 // the policies exceed the size limit together, so everything is denied
	Key      string               // a digest, which differs for different policies
}

// MaxPolicySize is the maximum size of a policy, in the bytes that [AuthorizationSpec.Size] returns. It
// suffices for some 1,500 principals.
const MaxPolicySize = 128 << 10

// Size estimates the number of bytes that a policy takes in a filter chain.
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
			n += 16 + len(v) + expressionSize(c.Of, v)
		}
		for _, values := range [][]string{c.Values, c.NotValues} {
			if len(values) > 0 {
				n += ambiguousSize[c.Of]
			}
		}
	}
	return n
}

// ambiguousSize contains the bytes of the expressions for what servers read differently, whatever the values.
var ambiguousSize = map[Attribute]int{HostName: 350, Path: 100}

// expressionSize returns the bytes that the expression for a value has in addition to the value (package rbac).
func expressionSize(of Attribute, v string) (n int) {
	switch of {
	case HostName:
		return 16 * strings.Count(v, ":") // the groups of an IPv6 address
	case Path:
		if strings.HasPrefix(v, "*") {
			n = 64 + 2*len(v) // a second one, for parameters
		}
		for i := range len(v) {
			switch c := v[i]; {
			case c == '/':
				n += 32
			case 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9':
			default:
				n += 12
			}
		}
	}
	return n
}

// closed is an Authorization that denies everything.
var closed = &Authorization{TooLarge: true, Key: "closed"}

// IsFor reports whether the selector of s, if it has one, matches a workload's labels.
func (s *AuthorizationSpec) IsFor(labels map[string]string) bool {
	return len(s.Selector) == 0 || Selects(s.Selector, labels)
}

// Authorization returns the policies for a workload of m; nil if none applies. If the workload is unknown
// (nil) and there are policies in its namespace or in the root namespace, one of them may apply; then the
// result denies everything.
func (m *Mesh) Authorization(w *Workload, namespace string) *Authorization {
	switch {
	case w != nil:
		return m.tables.Authorizations.Get(w.Key())
	case m.tables.Guarded.Get(namespace) || m.tables.Guarded.Get(m.Config.RootNamespace):
		return closed
	}
	return nil
}

// SameAuthorization reports whether all workloads have the same policies in m and in another snapshot.
func (m *Mesh) SameAuthorization(other *Mesh) bool {
	return m.tables.Authorizations == other.tables.Authorizations && m.tables.Guarded == other.tables.Guarded
}

// Block parses an address or an address range. One of IPv4 that is written as IPv6 (::ffff:10.0.0.1) is one of IPv4,
// as which connections have it. Block fails for an address with a zone.
func Block(v string) (netip.Prefix, error) {
	if p, err := netip.ParsePrefix(v); err == nil {
		if p.Addr().Is4In6() && p.Bits() >= 96 {
			p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
		}
		return p.Masked(), nil
	}
	a, err := netip.ParseAddr(v)
	if err != nil || a.Zone() != "" {
		return netip.Prefix{}, fmt.Errorf("%q is not an address", v)
	}
	a = a.Unmap()
	return netip.PrefixFrom(a, a.BitLen()), nil
}
