package rbac

import (
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"

	rbac "github.com/envoyproxy/go-control-plane/envoy/config/rbac/v3"
	matcher "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"

	"outrider.dev/internal/core/mesh"
	"outrider.dev/internal/core/xds/message"
)

// Servers differ in how they read a path or a host. Each value of a rule therefore has two translations:
//   - wide, for a match that denies (values of DENY, notValues of ALLOW): it matches if any server may read the
//     request as one that the value names;
//   - narrow, for a match that allows (values of ALLOW, notValues of DENY): it matches only if all servers do.
//
// A request that is ambiguous is thus refused in each of the four cases.
//
// Istio's pathNormalization lists the readings of a path
// (https://istio.io/latest/docs/reference/config/security/normalization/): Envoy has applied BASE; a server may also
// merge slashes and decode %2F and %5C. It may remove the parameters of a segment (;x=1), and it decodes other
// characters, so that /a%3Ab is /a:b. It may do all of this in any order, so that /;x/%3By/admin is /admin, but decodes
// each character once. RFC 9110, 4.2.3, has the readings of a host: a port that is the default one may be missing, and
// a name may end with a dot.

// operation converts the values of a property of the operation; one of them must match.
func operation(of mesh.Attribute, values []string, wide bool) *rbac.Permission {
	var out []*rbac.Permission
	switch of {
	case mesh.HostName:
		return hosts(values, wide)
	case mesh.Path:
		return paths(values, wide)
	case mesh.Method:
		for _, v := range values {
			out = append(out, method(v, wide))
		}
	default:
		for _, v := range values {
			port, _ := strconv.ParseUint(v, 10, 16) // valid, except that 0 is no port
			out = append(out, &rbac.Permission{Rule: &rbac.Permission_DestinationPort{DestinationPort: uint32(port)}})
		}
	}
	return anyPermission(out...)
}

// method matches a method. Methods are case-sensitive. Envoy rejects post in HTTP/1.1, but not in HTTP/2, where some
// servers read it as POST.
func method(v string, wide bool) *rbac.Permission {
	m := pattern(v)
	m.IgnoreCase = wide && m.GetSafeRegex() == nil // Envoy rejects it for regular expressions
	return matchHeader(":method", m)
}

const (
	// slash matches all that a server may read as a slash. Envoy has replaced backslashes.
	slash = `(?:/|%2[fF]|%5[cC])`
	// semicolon matches all that a server may read as the beginning of parameters.
	semicolon = `(?:;|%3[bB])`
	// parameters may follow the name of a segment, which may be empty.
	parameters = `(?:` + semicolon + `[^/]*)?`
	// separator matches what a server may read as one slash: slashes, and segments of parameters alone.
	separator = `(?:` + parameters + slash + `)+`
	// unresolved is a path with a segment . or .. that Envoy does not resolve, because a slash beside it is encoded.
	unresolved = `.*` + slash + `\.\.?(?:(?:[;/]|%2[fF]|%3[bB]|%5[cC]).*)?`
	// oneSegment matches a segment without an encoded slash, which {*} matches for all servers if it has a name.
	oneSegment = `(?:[^/%]|%(?:[013-46-9A-Fa-f][0-9A-Fa-f]|2[0-9A-Ea-e]|5[0-9ABD-Fabd-f]))+`
	// nameless is a path with a segment of parameters alone.
	nameless = `.*/` + semicolon + `.*`
	// named matches segments of which one has a name.
	named = `(?:.*/)?(?:[^/%;]|%(?:[0146-9A-Fa-f][0-9A-Fa-f]|2[0-9A-Ea-e]|3[0-9AC-Fac-f]|5[0-9ABD-Fabd-f])).*`
)

// paths matches the path without its query. Templates do not use Envoy's uri_template: it matches no path that contains
// one of * = [ ], so that a DENY rule would not apply to such a path, and it rejects a template with a = or of more than
// 256 bytes, and with it the whole listener.
func paths(values []string, wide bool) *rbac.Permission {
	if slices.Contains(values, "*") {
		return present(wide, matchPath)
	}
	if wide {
		expressions := []string{unresolved}
		for _, v := range values {
			expressions = append(expressions, widePath(v))
		}
		return oneOf(expressions, "", matchPath)
	}
	var out []*rbac.Permission
	for _, v := range values {
		out = append(out, narrowPath(v))
	}
	return allPermissions([]*rbac.Permission{anyPermission(out...), not(matchPath(message.Regex(unresolved)))})
}

// present matches any value. With wide, it also matches if there is none.
func present(wide bool, match func(*matcher.StringMatcher) *rbac.Permission) *rbac.Permission {
	if wide {
		return anything()
	}
	return match(pattern("*"))
}

// narrowPath matches the paths that all servers read as v, if they have no unresolved segments.
func narrowPath(v string) *rbac.Permission {
	if strings.Contains(v, "{") {
		many := named // /a//b may be read as /a/b, which is not /a/{**}/b
		if strings.HasSuffix(v, "{**}") || strings.HasSuffix(v, "{**}/") {
			many = `.*`
		}
		out := matchPath(message.Regex(expand(v, regexp.QuoteMeta, oneSegment, many)))
		if strings.Contains(v, "{*}") {
			out = allPermissions([]*rbac.Permission{out, not(matchPath(message.Regex(nameless)))})
		}
		return out
	}
	out := matchPath(pattern(v))
	if end, ok := strings.CutPrefix(v, "*"); ok && !strings.HasPrefix(end, "/") {
		// /secret;.txt may be read as /secret, and /a%20 as no path that ends with 0.
		other := matchPath(message.Regex(`.*(?:` + semicolon + `[^/]*|%[0-9A-Fa-f]?)` + regexp.QuoteMeta(end)))
		out = allPermissions([]*rbac.Permission{out, not(other)})
	}
	return out
}

// widePath returns an expression for the paths that a server may read as v.
func widePath(v string) string {
	switch {
	case strings.HasSuffix(v, "{**}/"): // /foo/{**}/ matches /foo/bar/baz.txt, by an example of Istio's documentation
		return expand(v, spellings, `[^/]*`, `.*`) + ".*"
	case strings.Contains(v, "{"):
		return expand(v, spellings, `[^/]*`, `.*`) + parameters
	case strings.HasPrefix(v, "*"):
		return ".*" + spellings(v[1:]) + parameters
	case strings.HasSuffix(v, "*"):
		return spellings(v[:len(v)-1]) + ".*"
	}
	return spellings(v) + parameters
}

// expand replaces {*} and {**} in v, and converts the text between them.
func expand(v string, text func(string) string, one, many string) string {
	var out strings.Builder
	for {
		before, rest, found := strings.Cut(v, "{")
		out.WriteString(text(before))
		if !found {
			return out.String()
		}
		operator, after, _ := strings.Cut(rest, "}")
		if operator == "*" {
			out.WriteString(one)
		} else {
			out.WriteString(many)
		}
		v = after
	}
}

// spellings returns an expression for the ways to write a part of a path. Envoy has decoded letters, digits and -._~,
// and has encoded what may not be in a path, such as a space; it has left other characters as the client wrote them.
func spellings(s string) string {
	var out strings.Builder
	afterSlash := false
	for i := 0; i < len(s); i++ {
		c := s[i]
		if c == '%' && i+2 < len(s) {
			if n, err := strconv.ParseUint(s[i+1:i+3], 16, 8); err == nil {
				c, i = byte(n), i+2
			}
		}
		isSlash := c == '/' || c == '\\'
		switch {
		case isSlash && afterSlash: // merged
		case isSlash:
			out.WriteString(separator)
		case 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.IndexByte("-._~", c) >= 0:
			out.WriteString(regexp.QuoteMeta(string(c)))
		case ' ' < c && c < 0x7f:
			out.WriteString("(?:" + regexp.QuoteMeta(string(c)) + "|" + encoded(c) + ")")
		default:
			out.WriteString(encoded(c))
		}
		afterSlash = isSlash
	}
	return out.String()
}

// encoded returns an expression for the percent-encoding of a byte, whose hexadecimal digits have no case.
func encoded(c byte) string {
	out := "%"
	for _, digit := range fmt.Sprintf("%02x", c) {
		if digit >= 'a' {
			out += fmt.Sprintf("[%c%c]", digit, digit-'a'+'A')
		} else {
			out += string(digit)
		}
	}
	return out
}

// wellFormed is a host that all servers read alike: a name, an IPv4 address in its usual form, or an IPv6 address; then
// a port or none. Servers differ on a host with user information, with a port that is no number, or with a comma, with
// which Envoy joins several Host headers; and on a name whose last label is a number (WHATWG URL Standard, 3.5), which
// may be an address, as 10.96.1 is 10.96.0.1.
const (
	octet      = `(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])`
	lastLabel  = `(?:[A-Za-z_-]|[1-9][0-9]*[A-Za-z_-]|0[0-9]*[A-WYZa-wyz_-])[A-Za-z0-9_-]*`
	wellFormed = `(?:(?:[A-Za-z0-9_-]+\.)*` + lastLabel + `\.?|` + octet + `(?:\.` + octet + `){3}|\[[0-9A-Fa-f:.]+\])(?::[0-9]{0,5})?`
)

// hosts matches the host of a request, which has no case.
func hosts(values []string, wide bool) *rbac.Permission {
	match := func(m *matcher.StringMatcher) *rbac.Permission { return matchHeader(":authority", m) }
	if slices.Contains(values, "*") {
		return present(wide, match)
	}
	unambiguous := match(message.Regex(wellFormed))
	if wide {
		var expressions []string
		for _, v := range values {
			expressions = append(expressions, wideHost(v))
		}
		return anyPermission(oneOf(expressions, "(?i)", match), not(unambiguous))
	}
	var out []*rbac.Permission
	for _, v := range values {
		m := pattern(v)
		m.IgnoreCase = true
		out = append(out, match(m))
	}
	return allPermissions([]*rbac.Permission{anyPermission(out...), unambiguous})
}

var hostWithPort = regexp.MustCompile(`^([^:\[]*|\[.*\]):([0-9]*)(\*?)$`)

// wideHost returns an expression for the well-formed hosts that a server may read as v (RFC 9110, 4.2.3: a port that is
// the scheme's may be missing, and a name may end with a dot).
func wideHost(v string) string {
	port := `(?::.*)?`
	if m := hostWithPort.FindStringSubmatch(v); m != nil {
		v = m[1]
		if number := strings.TrimLeft(m[2], "0"); number != "" {
			port = ":0*" + number + strings.Repeat(".*", len(m[3]))
			if number == "80" || number == "443" || m[3] != "" && (strings.HasPrefix("80", number) || strings.HasPrefix("443", number)) {
				port = "(?::|" + port + ")?"
			}
		}
	} else if name, ok := strings.CutSuffix(v, "*"); ok {
		return regexp.QuoteMeta(name) + ".*"
	}
	if a, err := netip.ParseAddr(strings.Trim(v, "[]")); err == nil && a.Is6() {
		return address(a) + port
	}
	if name, ok := strings.CutPrefix(v, "*"); ok {
		return ".*" + regexp.QuoteMeta(strings.TrimSuffix(name, ".")) + `\.?` + port
	}
	return regexp.QuoteMeta(strings.TrimSuffix(v, ".")) + `\.?` + port
}

// address returns an expression for the ways to write an IPv6 address, which differ in zeros. It also matches some other
// addresses that differ from this one in zeros alone.
func address(a netip.Addr) string {
	expression := func(groups []byte, end ...string) string {
		var all []string
		for ; len(groups) > 0; groups = groups[2:] {
			if g := int64(groups[0])<<8 | int64(groups[1]); g != 0 {
				all = append(all, strconv.FormatInt(g, 16))
			}
		}
		return `[0:]*` + strings.Join(append(all, end...), `:[0:]*`) + `(?::[0:]*)?`
	}
	b := a.As16()
	dotted := netip.AddrFrom4([4]byte(b[12:])).String()
	return `\[(?:` + expression(b[:]) + `|` + expression(b[:12], regexp.QuoteMeta(dotted)) + `)\]`
}

// maxExpression is the maximum length of the expressions that are joined to one. An Envoy rejects a listener, and with
// it all policies of a workload, if the program of one expression has more than 32,768 instructions (its runtime value
// re2.max_program_size.error_level). A byte of ours takes one at most, and the longest value alone takes 9,500.
const maxExpression = 8 << 10

// oneOf matches the texts that one of the expressions, each with flags, matches completely.
func oneOf(expressions []string, flags string, match func(*matcher.StringMatcher) *rbac.Permission) *rbac.Permission {
	var out []*rbac.Permission
	for len(expressions) > 0 {
		n, size := 1, len(expressions[0])
		for n < len(expressions) && size+len(expressions[n]) <= maxExpression {
			size += len(expressions[n])
			n++
		}
		out = append(out, match(message.Regex(flags+"(?:"+strings.Join(expressions[:n], "|")+")")))
		expressions = expressions[n:]
	}
	if len(out) == 1 {
		return out[0]
	}
	return anyPermission(out...)
}

func matchHeader(name string, m *matcher.StringMatcher) *rbac.Permission {
	return &rbac.Permission{Rule: &rbac.Permission_Header{Header: message.HeaderMatch(name, m)}}
}

func matchPath(m *matcher.StringMatcher) *rbac.Permission {
	return &rbac.Permission{Rule: &rbac.Permission_UrlPath{UrlPath: &matcher.PathMatcher{Rule: &matcher.PathMatcher_Path{Path: m}}}}
}

func anything() *rbac.Permission { return &rbac.Permission{Rule: &rbac.Permission_Any{Any: true}} }

func not(p *rbac.Permission) *rbac.Permission {
	return &rbac.Permission{Rule: &rbac.Permission_NotRule{NotRule: p}}
}

func anyPermission(all ...*rbac.Permission) *rbac.Permission {
	return &rbac.Permission{Rule: &rbac.Permission_OrRules{OrRules: &rbac.Permission_Set{Rules: all}}}
}

func allPermissions(all []*rbac.Permission) *rbac.Permission {
	switch len(all) {
	case 0:
		return anything()
	case 1:
		return all[0]
	}
	return &rbac.Permission{Rule: &rbac.Permission_AndRules{AndRules: &rbac.Permission_Set{Rules: all}}}
}
