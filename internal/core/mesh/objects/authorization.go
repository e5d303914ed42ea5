package objects

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"outrider.dev/internal/core/mesh"
	"outrider.dev/internal/core/mesh/foreign"
)

// An authorizationObject contains the supported fields of Istio's AuthorizationPolicy
// (https://istio.io/latest/docs/reference/config/security/authorization-policy/). An object with any other
// field is refused, because without that field a rule would match more.
type authorizationObject struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              authorizationSpec `json:"spec"`
	Status            map[string]any    `json:"status,omitempty"`
}

type authorizationSpec struct {
	Selector *struct {
		MatchLabels map[string]string `json:"matchLabels,omitempty"`
	} `json:"selector,omitempty"`
	TargetRef  map[string]any       `json:"targetRef,omitempty"`
	TargetRefs []map[string]any     `json:"targetRefs,omitempty"`
	Action     string               `json:"action,omitempty"`
	Provider   map[string]any       `json:"provider,omitempty"`
	Rules      []*authorizationRule `json:"rules,omitempty"`
}

type authorizationRule struct {
	From []*struct {
		Source *authorizationSource `json:"source,omitempty"`
	} `json:"from,omitempty"`
	To []*struct {
		Operation *authorizationOperation `json:"operation,omitempty"`
	} `json:"to,omitempty"`
	When []*struct {
		Key       string   `json:"key,omitempty"`
		Values    []string `json:"values,omitempty"`
		NotValues []string `json:"notValues,omitempty"`
	} `json:"when,omitempty"`
}

type authorizationSource struct {
	Principals           []string `json:"principals,omitempty"`
	NotPrincipals        []string `json:"notPrincipals,omitempty"`
	RequestPrincipals    []string `json:"requestPrincipals,omitempty"`
	NotRequestPrincipals []string `json:"notRequestPrincipals,omitempty"`
	Namespaces           []string `json:"namespaces,omitempty"`
	NotNamespaces        []string `json:"notNamespaces,omitempty"`
	ServiceAccounts      []string `json:"serviceAccounts,omitempty"`
	NotServiceAccounts   []string `json:"notServiceAccounts,omitempty"`
	IPBlocks             []string `json:"ipBlocks,omitempty"`
	NotIPBlocks          []string `json:"notIpBlocks,omitempty"`
	RemoteIPBlocks       []string `json:"remoteIpBlocks,omitempty"`
	NotRemoteIPBlocks    []string `json:"notRemoteIpBlocks,omitempty"`
}

type authorizationOperation struct {
	Hosts      []string `json:"hosts,omitempty"`
	NotHosts   []string `json:"notHosts,omitempty"`
	Ports      []string `json:"ports,omitempty"`
	NotPorts   []string `json:"notPorts,omitempty"`
	Methods    []string `json:"methods,omitempty"`
	NotMethods []string `json:"notMethods,omitempty"`
	Paths      []string `json:"paths,omitempty"`
	NotPaths   []string `json:"notPaths,omitempty"`
}

func (s *authorizationSpec) hasTargets() bool { return len(s.TargetRefs) > 0 || len(s.TargetRef) > 0 }

// Limits of one policy, in addition to [mesh.MaxPolicySize].
const (
	maxRules = 500
	maxValue = 1024 // maximum length of a value in bytes
)

// AuthorizationPolicy returns the part for a policy in JSON. If there is an error, the part allows nothing or
// denies everything; a source uses it if the policy never had a valid version. For a policy of gateways, the
// part is nil. For a policy that is not enforced, the part is a [mesh.IgnoredSpec].
func AuthorizationPolicy(raw []byte) (mesh.Part, error) {
	var o authorizationObject
	decoded := decode(raw, &o)
	var object map[string]any
	if json.Unmarshal(raw, &object) == nil {
		ignored := foreign.Read(object)
		switch {
		case decoded != nil:
		case ignored != nil && !ignored.Partly:
			return ignored, nil
		case ignored == nil && o.Spec.hasTargets() && o.Spec.Selector == nil:
			return nil, nil // it applies to a gateway
		default:
			out, err := authorization(&o)
			out.Unenforced = ignored
			return out, err
		}
	}
	// The selector may be wrong too, so the part applies to all workloads in its namespace.
	return closedPolicy(&mesh.AuthorizationSpec{Namespace: cmp.Or(o.Namespace, metav1.NamespaceDefault), Name: o.Name, Deny: o.Spec.Action != "" && o.Spec.Action != "ALLOW"}), decoded
}

// closedPolicy changes a policy so that it allows nothing or denies everything.
func closedPolicy(p *mesh.AuthorizationSpec) *mesh.AuthorizationSpec {
	p.Closed, p.Rules = true, nil
	if p.Deny {
		p.Rules = []mesh.AuthorizationRule{{}}
	}
	return p
}

// actions contains for each action whether it denies. CUSTOM denies the requests that match, because the
// provider that would have to allow them is not called.
var actions = map[string]bool{"": false, "ALLOW": false, "DENY": true, "CUSTOM": true}

type authorizationReader struct{ check }

func authorization(o *authorizationObject) (*mesh.AuthorizationSpec, error) {
	var c authorizationReader
	out := &mesh.AuthorizationSpec{Deny: true}
	out.Namespace, out.Name = c.meta(&o.ObjectMeta)
	if o.Spec.Selector != nil {
		if o.Spec.hasTargets() {
			c.invalid("spec.selector", "conflicts with targetRefs: a policy has one of them")
		}
		out.Selector = o.Spec.Selector.MatchLabels
		for _, k := range sortedKeys(out.Selector) {
			if k == "" || strings.Contains(k, "*") || strings.Contains(out.Selector[k], "*") {
				c.invalid("spec.selector.matchLabels", "%q: %q is not a label: wildcards are not supported", k, out.Selector[k])
				out.Selector = nil // applies to all workloads, because the selected ones are unknown
				break
			}
		}
	}
	out.Deny = oneOf(&c.check, "spec.action", o.Spec.Action, actions) || c.errors.has("spec.action")
	if len(o.Spec.Rules) > maxRules {
		c.invalid("spec.rules", "has %d rules: at most %d are supported", len(o.Spec.Rules), maxRules)
		return closedPolicy(out), c.result()
	}
	if out.Deny && len(o.Spec.Rules) == 0 {
		c.invalid("spec.rules", "missing: a policy that denies must have one; {} matches everything")
	}
	for i, r := range o.Spec.Rules {
		out.Rules = append(out.Rules, c.rule(at("spec.rules", i), r))
	}
	if size := out.Size(); size > mesh.MaxPolicySize {
		c.invalid("spec.rules", "has %d bytes: at most %d are supported; split it into several policies", size, mesh.MaxPolicySize)
	}
	if c.errors != nil {
		closedPolicy(out)
	}
	return out, c.result()
}

func (w FieldErrors) has(field string) bool {
	for _, e := range w {
		if e.Field == field {
			return true
		}
	}
	return false
}

func (c *authorizationReader) rule(field string, r *authorizationRule) mesh.AuthorizationRule {
	var out mesh.AuthorizationRule
	if r == nil {
		c.invalid(field, "missing: {} matches everything")
		return out
	}
	if r.From != nil && len(r.From) == 0 {
		c.invalid(field+".from", "must not be empty: without it all clients match")
	}
	if r.To != nil && len(r.To) == 0 {
		c.invalid(field+".to", "must not be empty: without it all operations match")
	}
	for i, f := range r.From {
		at := at(field+".from", i) + ".source"
		if f == nil || f.Source == nil {
			c.invalid(at, "missing")
			continue
		}
		s := f.Source
		if (s.ServiceAccounts != nil || s.NotServiceAccounts != nil) && (s.Principals != nil || s.NotPrincipals != nil || s.Namespaces != nil || s.NotNamespaces != nil) {
			c.invalid(at+".serviceAccounts", "conflicts with principals and namespaces: use one of these")
		}
		out.From = append(out.From, c.conditions(at,
			condition{mesh.Principal, "principals", "notPrincipals", s.Principals, s.NotPrincipals},
			condition{mesh.ClientNS, "namespaces", "notNamespaces", s.Namespaces, s.NotNamespaces},
			condition{mesh.ServiceAccount, "serviceAccounts", "notServiceAccounts", s.ServiceAccounts, s.NotServiceAccounts},
			condition{mesh.SourceIP, "ipBlocks", "notIpBlocks", s.IPBlocks, s.NotIPBlocks},
			condition{mesh.Unsupported, "remoteIpBlocks", "notRemoteIpBlocks", s.RemoteIPBlocks, s.NotRemoteIPBlocks},
			condition{mesh.Unsupported, "requestPrincipals", "notRequestPrincipals", s.RequestPrincipals, s.NotRequestPrincipals}))
	}
	for i, t := range r.To {
		at := at(field+".to", i) + ".operation"
		if t == nil || t.Operation == nil {
			c.invalid(at, "missing")
			continue
		}
		o := t.Operation
		out.To = append(out.To, c.conditions(at,
			condition{mesh.HostName, "hosts", "notHosts", o.Hosts, o.NotHosts},
			condition{mesh.AppPortNumber, "ports", "notPorts", o.Ports, o.NotPorts},
			condition{mesh.Method, "methods", "notMethods", o.Methods, o.NotMethods},
			condition{mesh.Path, "paths", "notPaths", o.Paths, o.NotPaths}))
	}
	for i, w := range r.When {
		at := at(field+".when", i)
		if w == nil || w.Key == "" {
			c.invalid(at+".key", "missing")
			continue
		}
		out.When = append(out.When, c.conditions(at, condition{mesh.Conditions[w.Key], "values", "notValues", w.Values, w.NotValues})...)
	}
	return out
}

// A condition contains the values that a rule lists for one attribute, as written in the policy, before they
// are checked.
type condition struct {
	of                mesh.Attribute
	name, notName     string
	values, notValues []string
}

// conditions returns the conditions that have values or excluded values. It reports an error if there are
// none.
func (c *authorizationReader) conditions(field string, all ...condition) []mesh.Condition {
	var out []mesh.Condition
	for _, x := range all {
		if x.values == nil && x.notValues == nil {
			continue
		}
		for _, list := range []struct {
			name   string
			values []string
		}{{x.name, x.values}, {x.notName, x.notValues}} {
			if list.values != nil && len(list.values) == 0 {
				c.invalid(field+"."+list.name, "must not be empty: without it any value matches")
			}
			for i, v := range list.values {
				if message := wrongValue(x.of, v); message != "" {
					c.invalid(at(field+"."+list.name, i), "%.100q %s", v, message)
				}
			}
		}
		out = append(out, mesh.Condition{Of: x.of, Values: x.values, NotValues: x.notValues})
	}
	if out == nil {
		c.invalid(field, "must have at least one condition")
	}
	return out
}

// wrongValue returns a message about an invalid value; empty: the value is valid.
func wrongValue(of mesh.Attribute, v string) string {
	switch {
	case of == mesh.Unsupported:
		return ""
	case v == "":
		return "must not be empty"
	case len(v) > maxValue:
		return fmt.Sprintf("has %d bytes: at most %d are supported", len(v), maxValue)
	case strings.ContainsFunc(v, func(r rune) bool { return r < ' ' || r == 0x7f || r == 0xfffd }):
		return "must be printable text"
	}
	switch of {
	case mesh.SourceIP:
		if _, err := mesh.Block(v); err != nil {
			return "is not an address or range such as 10.0.0.1 or 10.0.0.0/8"
		}
		return ""
	case mesh.AppPortNumber:
		if n, err := strconv.ParseUint(v, 10, 16); err != nil || n == 0 || v != strconv.FormatUint(n, 10) {
			return "is not a port: must be 1 to 65535"
		}
		return ""
	case mesh.ClientNS:
		if !namespacePatterns.MatchString(v) {
			return "is not a namespace: must be lower-case letters, digits, - and *"
		}
		return ""
	case mesh.ServiceAccount:
		if !accounts.MatchString(v) {
			return "is not a service account: must be name or namespace/name"
		}
		return ""
	case mesh.Path:
		if strings.ContainsAny(v, "{}") {
			if err := template(v); err != nil {
				return err.Error()
			}
			return ""
		}
	}
	if strings.Contains(strings.TrimSuffix(strings.TrimPrefix(v, "*"), "*"), "*") || len(v) > 1 && strings.HasPrefix(v, "*") && strings.HasSuffix(v, "*") {
		return "may have one *, at the beginning or at the end"
	}
	return ""
}

var (
	namespacePatterns = regexp.MustCompile(`^[a-z0-9*]([-a-z0-9*]{0,62})$`)
	accounts          = regexp.MustCompile(`^([a-z0-9][-a-z0-9]{0,62}/)?[a-z0-9]([-a-z0-9.]{0,252})$`)
	templateLiterals  = regexp.MustCompile(`^[-A-Za-z0-9._~%!$&'()+,;:@=]+$`)
)

// template checks a path with {*}, which matches one segment, and {**}, which matches any number of segments.
// As in Envoy, {**} must be the last of them.
func template(v string) error {
	rest, ok := strings.CutPrefix(v, "/")
	if !ok {
		return errors.New("is not a template of paths: must begin with /")
	}
	last := false
	for _, s := range strings.Split(strings.TrimSuffix(rest, "/"), "/") {
		switch {
		case last && (s == "{*}" || s == "{**}"):
			return errors.New("is not a template of paths: {*} and {**} must not follow {**}")
		case s == "{**}":
			last = true
		case s == "{*}":
		case !templateLiterals.MatchString(s):
			return errors.New("is not a template of paths: between two / must be {*}, {**} or text without * { }")
		}
	}
	return nil
}
