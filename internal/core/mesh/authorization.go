package mesh

import (
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
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
// principals. maxAuthorization bounds all policies of a workload, times its ports: each port has
// them in its filter chains.
const (
	MaxPolicySize    = 64 << 10
	maxAuthorization = 1 << 20
)

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

// authorizationIndex are the policies of a builder.
type authorizationIndex struct {
	bySelector multimap[label, *AuthorizationSpec] // by one label of their selector; without: by a label without key
	in         map[string]int                      // how many, by namespace
	digests    map[*AuthorizationSpec]string
	tooLarge   multimap[string, workloadID] // workloads whose policies are too large, by namespace
	stale      set[string]                  // namespaces of which in has changed
}

func newAuthorizationIndex() authorizationIndex {
	return authorizationIndex{
		bySelector: multimap[label, *AuthorizationSpec]{}, in: map[string]int{}, digests: map[*AuthorizationSpec]string{},
		tooLarge: multimap[string, workloadID]{}, stale: set[string]{},
	}
}

func (s *AuthorizationSpec) label() label {
	if len(s.Selector) == 0 {
		return label{namespace: s.Namespace}
	}
	return selectorKey(s.Namespace, s.Selector)
}

func (s *AuthorizationSpec) isFor(labels map[string]string) bool {
	return len(s.Selector) == 0 || selects(s.Selector, labels)
}

// indexAuthorization adds a policy, or removes it, and marks the workloads that it selects.
func (b *Builder) indexAuthorization(s *AuthorizationSpec, present bool) {
	x := &b.authorization
	x.bySelector.set(s.label(), s, present)
	x.stale.add(s.Namespace)
	if present {
		x.in[s.Namespace]++
		x.digests[s] = s.digest()
	} else {
		if x.in[s.Namespace]--; x.in[s.Namespace] == 0 {
			delete(x.in, s.Namespace)
		}
		delete(x.digests, s)
	}
	if s.Unenforced != nil && !(s.Unenforced.OtherRoot && b.config.RootNamespace == IstioRoot) {
		b.indexIgnored(s.Unenforced, present)
	}
	switch {
	case s.Namespace == b.config.RootNamespace:
		for id, w := range b.workloads {
			if w.spec != nil && s.isFor(w.spec.Labels) {
				b.staleWorkloads.add(id)
			}
		}
	case len(s.Selector) == 0:
		for id := range b.byNamespace[s.Namespace] {
			b.staleWorkloads.add(id)
		}
	default:
		for id := range b.byLabel[s.label()] {
			if s.isFor(b.workloads[id].spec.Labels) {
				b.staleWorkloads.add(id)
			}
		}
	}
}

// digest is the same for policies that are enforced in the same way, under the same name.
func (s *AuthorizationSpec) digest() string {
	raw, err := json.Marshal([]any{s.Namespace, s.Name, s.Deny, s.Rules})
	if err != nil {
		panic(err) // strings and lists alone
	}
	sum := sha256.Sum256(raw)
	return string(sum[:])
}

// policiesOf returns those that are for a workload. The cost goes with its labels, and with the
// policies that have one of these in their selector.
func (b *Builder) policiesOf(w *Workload) []*AuthorizationSpec {
	var out []*AuthorizationSpec
	namespaces := []string{b.config.RootNamespace, w.Namespace}
	slices.Sort(namespaces)
	for _, namespace := range slices.Compact(namespaces) {
		if b.authorization.in[namespace] == 0 {
			continue
		}
		add := func(l label) {
			for s := range b.authorization.bySelector[l] { // any order: sorted
				if s.isFor(w.Labels) {
					out = append(out, s)
				}
			}
		}
		add(label{namespace: namespace})
		for k, v := range w.Labels { // any order: sorted
			add(label{namespace, k, v})
		}
	}
	slices.SortFunc(out, func(a, b *AuthorizationSpec) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return out
}

// authorize returns what holds for a workload with its ports; nil if no policy is for it. The
// last one, if it is the same.
func (b *Builder) authorize(id workloadID, w *Workload, e *edit[workloadID, *Authorization]) *Authorization {
	policies := b.policiesOf(w)
	last := e.old.get(id)
	b.authorization.tooLarge.set(id.namespace, id, false)
	if len(policies) == 0 {
		if last != nil {
			e.delete(id)
		}
		return nil
	}
	next := &Authorization{Policies: policies}
	size, hash := 0, sha256.New()
	for _, s := range policies {
		size += s.Size()
		hash.Write([]byte(b.authorization.digests[s]))
	}
	if size*(len(w.Ports)+1) > maxAuthorization {
		next.TooLarge = true
		b.authorization.tooLarge.set(id.namespace, id, true)
	}
	next.Key = fmt.Sprintf("%x %t", hash.Sum(nil), next.TooLarge)
	if last != nil && last.Key == next.Key && slices.Equal(last.Policies, next.Policies) {
		return last
	}
	e.set(id, next)
	return next
}

func (b *Builder) forgetAuthorization(id workloadID, e *edit[workloadID, *Authorization]) {
	b.authorization.tooLarge.set(id.namespace, id, false)
	if e.old.get(id) != nil {
		e.delete(id)
	}
}

// updateGuarded notes whether a namespace has policies.
func (b *Builder) updateGuarded(namespace string, e *edit[string, bool]) {
	switch has := b.authorization.in[namespace] > 0; {
	case has == e.old.get(namespace):
	case has:
		e.set(namespace, true)
	default:
		e.delete(namespace)
	}
}

// Authorization returns what holds for a workload of m; nil if no policy is for it. For a
// workload that is not known (nil) it denies everything, if its namespace has policies or the
// root namespace has: one of them may be for it.
func (m *Mesh) Authorization(w *Workload, namespace string) *Authorization {
	switch {
	case w != nil:
		return m.authorization.get(w.id())
	case m.guarded.get(namespace) || m.guarded.get(m.Config.RootNamespace):
		return closed
	}
	return nil
}

// SameAuthorization reports whether the policies of all workloads are the same.
func (m *Mesh) SameAuthorization(other *Mesh) bool {
	return m.authorization == other.authorization && m.guarded == other.guarded
}

// conflictsOfAuthorization returns the workloads whose policies are too large: one for each
// namespace.
func (b *Builder) conflictsOfAuthorization() []Conflict {
	var out []Conflict
	for namespace, all := range b.authorization.tooLarge { // any order: sorted
		first := smallest(all, workloadID.compare)
		more := ""
		if len(all) > 1 {
			more = fmt.Sprintf("; so are those of %d other workloads of %s", len(all)-1, namespace)
		}
		out = append(out, Conflict{Object: first.key(), Message: fmt.Sprintf(
			"all connections to it are denied: the AuthorizationPolicies that select it, times its ports, have more than %d bytes; make them smaller, or split the workload%s", maxAuthorization, more)})
	}
	slices.SortFunc(out, func(a, b Conflict) int { return cmp.Compare(a.Object.String(), b.Object.String()) })
	return out
}

// requireIdentity makes mutual TLS the rule at the ports of bytes where no client is let in without it:
// so its clients have identities also where the server speaks first, and a client in plain text does
// not see what the server says. A port of requests answers 403 instead, as in Istio.
func (a *Authorization) requireIdentity(w *Workload) {
	if a == nil {
		return
	}
	for i, p := range w.Ports {
		if p.TLS == Permissive && !p.Protocol.IsHTTP() && a.deniesPlainText(p.Number) {
			w.Ports[i].TLS = Strict
		}
	}
}

// deniesPlainText reports whether each connection in plain text to a port is denied if it has
// bytes, whatever its address.
func (a *Authorization) deniesPlainText(port uint16) bool {
	if a.TooLarge {
		return true
	}
	allows, allowed := false, no
	for _, s := range a.Policies {
		allows = allows || !s.Deny
		for _, r := range s.Rules {
			t := r.inPlainText(s.Deny, port)
			switch {
			case s.Deny && t == yes:
				return true
			case !s.Deny:
				allowed = max(allowed, t)
			}
		}
	}
	return allows && allowed == no
}

// truth is what is known before a connection is there.
type truth int

const (
	no truth = iota
	maybe
	yes
)

func (r *AuthorizationRule) inPlainText(deny bool, port uint16) truth {
	all := func(list []Condition) truth {
		out := yes
		for _, c := range list {
			out = min(out, c.inPlainText(deny, port))
		}
		return out
	}
	anyOf := func(lists [][]Condition) truth {
		if len(lists) == 0 {
			return yes
		}
		out := no
		for _, list := range lists {
			out = max(out, all(list))
		}
		return out
	}
	if !deny && !r.judged() {
		return no
	}
	return min(anyOf(r.From), anyOf(r.To), all(r.When))
}

// judged reports whether all conditions can be judged of bytes.
func (r *AuthorizationRule) judged() bool {
	return !slices.ContainsFunc(slices.Concat(slices.Concat(r.From...), slices.Concat(r.To...), r.When), func(c Condition) bool { return !c.Judged(true) })
}

func (c Condition) inPlainText(deny bool, port uint16) truth {
	switch c.Of {
	case Principal, ClientNS, ServiceAccount:
		if len(c.Values) > 0 {
			return no
		}
		return yes
	case SourceIP:
		return maybe
	case AppPortNumber:
		number := strconv.Itoa(int(port))
		if len(c.Values) > 0 && !slices.Contains(c.Values, number) || slices.Contains(c.NotValues, number) {
			return no
		}
		return yes
	}
	return yes // a DENY rule's, which cannot be judged
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
