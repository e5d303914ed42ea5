package objects

import (
	"encoding/json"
	"net/netip"
	"net/url"
	"regexp"
	"strings"
)

// WhileRefused returns a sentence about the effect of an object of this kind while it is not valid.
func WhileRefused(kind string) string {
	if kind == "AuthorizationPolicy" {
		return "until it is correct, outriderd lets it allow nothing, or deny everything, for what it selects"
	}
	return "outriderd goes on with the version that it had before, or without the object"
}

// SelectsAll reports whether a policy of Istio's security API has a selector without labels. Such a policy
// applies to all pods in its namespace, as one without a selector does (type/v1beta1/selector.proto of
// istio/api).
func SelectsAll(raw []byte) bool {
	var policy struct {
		APIVersion string `json:"apiVersion"`
		Spec       struct {
			Selector *struct {
				MatchLabels map[string]json.RawMessage `json:"matchLabels"`
			} `json:"selector"`
		} `json:"spec"`
	}
	return json.Unmarshal(raw, &policy) == nil && strings.HasPrefix(policy.APIVersion, "security.istio.io/") &&
		policy.Spec.Selector != nil && len(policy.Spec.Selector.MatchLabels) == 0
}

// NeverMatches returns those values in an AuthorizationPolicy that are accepted, but that no request can
// have. A rule with such a value allows less than it seems to, or denies less.
func NeverMatches(raw []byte) FieldErrors {
	var o authorizationObject
	if decode(raw, &o) != nil || o.Kind != "AuthorizationPolicy" {
		return nil
	}
	var c check
	doubt := func(field string, values []string, why func(string) string) {
		for i, v := range values {
			if message := why(v); message != "" {
				c.invalid(at(field, i), "%.100q %s", v, message)
			}
		}
	}
	for i, r := range o.Spec.Rules {
		if r == nil {
			continue
		}
		rule := at("spec.rules", i)
		for i, f := range r.From {
			if f != nil && f.Source != nil {
				source := at(rule+".from", i) + ".source"
				doubt(source+".principals", f.Source.Principals, foreignPrincipal)
				doubt(source+".notPrincipals", f.Source.NotPrincipals, foreignPrincipal)
			}
		}
		for i, t := range r.To {
			if t != nil && t.Operation != nil {
				operation := at(rule+".to", i) + ".operation"
				if o.Spec.Action == "" || o.Spec.Action == "ALLOW" { // where a match denies, methods have no case, and paths any encoding
					doubt(operation+".methods", t.Operation.Methods, foreignMethod)
					doubt(operation+".paths", t.Operation.Paths, otherwiseWritten)
				} else {
					doubt(operation+".notMethods", t.Operation.NotMethods, foreignMethod)
					doubt(operation+".notPaths", t.Operation.NotPaths, otherwiseWritten)
				}
				doubt(operation+".paths", t.Operation.Paths, foreignPath)
				doubt(operation+".notPaths", t.Operation.NotPaths, foreignPath)
				doubt(operation+".hosts", t.Operation.Hosts, foreignHost)
				doubt(operation+".notHosts", t.Operation.NotHosts, foreignHost)
			}
		}
	}
	return c.errors
}

// foreignPrincipal returns a message if v cannot be a principal. Istio's principals have no scheme
// (security/v1beta1/authorization_policy.proto of istio/api).
func foreignPrincipal(v string) string {
	if strings.Contains(v, "://") {
		return "is no principal: write it without the scheme, as cluster.local/ns/shop/sa/web"
	}
	if !strings.Contains(v, "/") && !strings.Contains(v, "*") {
		return "is no principal: must be TRUST-DOMAIN/ns/NAMESPACE/sa/ACCOUNT; for an account alone use serviceAccounts"
	}
	return ""
}

// foreignMethod returns a message if v has lower-case letters: methods are case-sensitive, and HTTP defines
// them in capitals (RFC 9110, 9.1). Where a match denies, package rbac compares them without case.
func foreignMethod(v string) string {
	if upper := strings.ToUpper(v); v != upper {
		return "is the method of no request: write " + upper
	}
	return ""
}

// foreignPath returns a message if no request can have the path v: a path begins with a slash, or is * (RFC
// 9112, 3.2), and a proxy has resolved its segments . and .. before it compares the path (Istio's normalisation BASE).
func foreignPath(v string) string {
	if !strings.HasPrefix(v, "/") && !strings.HasPrefix(v, "*") {
		return "is the path of no request: must begin with /, or with * for what it ends with"
	}
	if strings.Contains(v, "?") {
		return "is the path of no request: a path ends before its ?"
	}
	for s := range strings.SplitSeq(slashesAndDots.Replace(v), "/") {
		if s == "." || s == ".." {
			return "is the path of no request: the proxy resolves . and .. in requests; write the path without them"
		}
	}
	return ""
}

// slashesAndDots decodes what may be the end or the name of a segment . or ..
var slashesAndDots = strings.NewReplacer(`\`, "/", "%2f", "/", "%2F", "/", "%5c", "/", "%5C", "/", "%2e", ".", "%2E", ".")

var notAsWritten = regexp.MustCompile("%(?:2[DdEe]|3[0-9]|4[1-9A-Fa-f]|5[0-9AaFf]|6[1-9A-Fa-f]|7[0-9AaEe])|[^!-~]|[\"<>^|]")

// otherwiseWritten returns a message if a proxy writes the path v in another way before it compares it: with letters,
// digits and -._~ decoded, and with what may not be in a path encoded (Istio's normalisation BASE).
func otherwiseWritten(v string) string {
	written := notAsWritten.ReplaceAllStringFunc(strings.ReplaceAll(v, `\`, "/"), func(s string) string {
		if c, err := url.PathUnescape(s); err == nil && c != s {
			return c
		}
		return url.PathEscape(s)
	})
	if written != v {
		return "is the path of no request: write " + written
	}
	return ""
}

// foreignHost returns a message if v has a scheme or a path, which the host of a request does not contain, or is an
// IPv6 address without its brackets.
func foreignHost(v string) string {
	if strings.Contains(v, "/") {
		return "is the host of no request: write it without scheme and path, as shop.example"
	}
	if a, err := netip.ParseAddr(v); err == nil && a.Is6() {
		return "is the host of no request: write [" + v + "]"
	}
	return ""
}
