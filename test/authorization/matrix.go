package authorization

import (
	"fmt"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"outrider.dev/internal/core/mesh"
)

// The matrix crosses paths and hosts with kinds of values and the four places in which a policy can have them. What a
// value names is judged here by a model of Istio's documentation, which knows nothing of the filters that are made of
// policies: it lists the texts as which a server may read a path or host, and compares each with the value.

// A Verdict says whether a value names a path or host.
type Verdict string

const (
	Yes     Verdict = "yes" // for each server
	No      Verdict = "no"  // for no server
	Unclear Verdict = "?"   // servers differ, so the request must be refused
)

// A Kind is a form of values with examples.
type Kind struct {
	Name         string
	Paths, Hosts []string
}

// Kinds are the forms of values. There are no templates of hosts; the last kind has hosts with a port and addresses.
var Kinds = []Kind{
	{"exact", []string{"/admin", "/files/a:b"}, []string{"admin.shop"}},
	{"prefix", []string{"/admin/*", "/public*"}, []string{"admin.*"}},
	{"suffix", []string{"*/admin", "*.txt"}, []string{"*.shop"}},
	{"template", []string{"/admin/{**}", "/a/{*}/b", "/x/{**}/y", "/foo/{**}/"}, []string{"admin.shop:8080", "shop:80", "[fd96::1]", "10.96.0.1"}},
}

// A Place is where a policy has values.
type Place struct{ Name, Action, Paths, Hosts string }

// Places are the places in which a value can be. In the first and the last a match refuses a request.
var Places = []Place{
	{"DENY", "DENY", "paths", "hosts"}, {"ALLOW", "ALLOW", "paths", "hosts"},
	{"not… of DENY", "DENY", "notPaths", "notHosts"}, {"not… of ALLOW", "ALLOW", "notPaths", "notHosts"},
}

// refused reports whether a policy with values in a place refuses a request, if the values name its path and its host
// like this. A rule matches if all its conditions do.
func (p Place) refused(path, host Verdict) bool {
	switch p {
	case Places[0]:
		return path != No && host != No
	case Places[1]:
		return path != Yes || host != Yes
	case Places[2]:
		return path != Yes && host != Yes
	}
	return path != No || host != No
}

// A Cell is a port of the server, where one policy applies: with the values of a kind in a place.
type Cell struct {
	Place Place
	Kind  Kind
	Port  uint16
	paths map[PathRow]Verdict
	hosts map[string]Verdict // by what the application gets
}

// Cells are all combinations of kinds and places: those of a kind follow one another, in the order of [Places].
var Cells = func() (out []Cell) {
	for _, k := range Kinds {
		c := Cell{Kind: k, paths: map[PathRow]Verdict{}, hosts: map[string]Verdict{}}
		for _, p := range Paths {
			c.paths[p] = PathVerdict(k.Paths, p.Base)
		}
		for _, h := range Hosts {
			c.hosts[h.Sent] = hostVerdict(k.Hosts, h.Sent)
		}
		for _, p := range Places {
			c.Place, c.Port = p, uint16(8100+len(out))
			out = append(out, c)
		}
	}
	return out
}()

// Path says whether the values of the cell name a path.
func (c Cell) Path(p PathRow) Verdict { return c.paths[p] }

// Host says whether the values of the cell name a host.
func (c Cell) Host(h HostRow) Verdict { return c.hosts[h.Sent] }

// Refused reports whether the policy of the cell refuses a request.
func (c Cell) Refused(p PathRow, h HostRow) bool { return c.Place.refused(c.Path(p), c.Host(h)) }

// MatrixPolicies returns two policies with a rule for each port of the matrix, and all that the DENY policy does not
// refuse is allowed.
func MatrixPolicies(t testing.TB) []mesh.Part {
	t.Helper()
	rules := map[string][]any{}
	var ofDeny []string
	rule := func(operation map[string]any) any {
		return map[string]any{"to": []any{map[string]any{"operation": operation}}}
	}
	for _, c := range Cells {
		port := strconv.Itoa(int(c.Port))
		rules[c.Place.Action] = append(rules[c.Place.Action], rule(map[string]any{"ports": []string{port}, c.Place.Paths: c.Kind.Paths, c.Place.Hosts: c.Kind.Hosts}))
		if c.Place.Action == "DENY" {
			ofDeny = append(ofDeny, port)
		}
	}
	rules["ALLOW"] = append(rules["ALLOW"], rule(map[string]any{"ports": ofDeny}))
	return []mesh.Part{
		policy(t, "matrix-deny", map[string]any{"action": "DENY", "rules": rules["DENY"]}),
		policy(t, "matrix-allow", map[string]any{"action": "ALLOW", "rules": rules["ALLOW"]}),
	}
}

// A PathRow is a path as a client writes it, and as Istio's normalisation BASE writes it, which the application gets
// (https://istio.io/latest/docs/reference/config/security/normalization/).
type PathRow struct{ Written, Base string }

// Paths are the paths of the matrix.
var Paths = func() (out []PathRow) {
	for line := range strings.Lines(`
/
/admin
/admin/
/Admin
/admin. 
/admin%20
/admin%2520
/administrator
/xadmin
/x/admin
/x/y/admin
/x/admin/
/admin?x                       /admin
/admin?x=/../y                 /admin
/x?/admin                      /x
/admin%3fx
/admin%23x
/admin;
/admin;x=1
/admin;x=1/users
/x/admin;x=1
/x;/admin
/admin/users
/admin/users?[                 /admin/users
/admin//users
/admin/a[b
/admin/a]b
/admin/a*b
/admin/a=b
/admin/a"b                     /admin/a%22b
/admin/a|b                     /admin/a%7Cb
/admin/a^b                     /admin/a%5Eb
/admin/a{b}                    /admin/a%7Bb%7D
/admin/<a>                     /admin/%3Ca%3E
/admin/a;b=c
/admin/a%20b
/admin/a,b@c:d!$&'()+~
/admin/%c3%bc%ff
/admin/%zz
/%61dmin                       /admin
/adm%69n/users                 /admin/users
/%2561dmin
//admin
///admin
//admin/users
/x//admin
/./admin                       /admin
/x/../admin                    /admin
/x/%2e%2E/admin                /admin
/admin/../x                    /x
/admin/.                       /admin/
/../../admin                   /admin
/x\..\admin                    /admin
/admin\users                   /admin/users
/x%2fadmin
/x%5Cadmin
/%2Fadmin
/admin%2fusers
/admin%2F
/public/a
/publican
/public/../admin               /admin
/public/..%2fadmin
/public/%2e%2e%5cadmin         /public/..%5cadmin
/public/.%2f..%2fadmin
/public%2f../admin
/public/%252e%252e%252fadmin
/public/..;/admin              /admin
/a/1/b
/a//b
/a/b
/a/1/2/b
/a/1%2f2/b
/a/1%2/b
/a/[1]/b
/a/1;v=2/b
/a/1/b;v=2
/x/y
/x//y
/x/1/2/y
/x/1/2/y/
/foo/
/foo/bar
/foo/bar/
/foo/bar/baz.txt
/foo//
/report.txt
/report.TXT
/report%2etxt                  /report.txt
/report.txt;v=1
/report.txt/
/secret;.txt
/secret;/x.txt
/;/admin
/;x=1/admin
//;x//;y/admin
/;../admin
/;x\admin                       /;x/admin
/;x%2fadmin
/%3Badmin
/admin%3bx
/%3bx/admin
/x%3B%2fadmin
/public/..%3b/admin
/admin/;/users
/files/;x/a:b
/files;x//;y/a:b
/a/;x/b
/a/%3Bx/b
/a/;/1/b
/x/;/y
/;/x/1/y
/;/report.txt
/;.txt
/secret%3B.txt
/files/a:b
/files/a%3ab
/files/a%3Ab
`) {
		if f := strings.Fields(line); len(f) > 0 {
			out = append(out, PathRow{f[0], f[len(f)-1]})
		}
	}
	return out
}()

// A HostRow is a host as a client writes it, the host that the application gets, and what Istio's documentation and the
// RFCs say of it.
type HostRow struct {
	Headers  []string // values of the header Host
	Absolute string   // authority of a request target in absolute form; empty: the target is a path
	Sent     string
	Says     string
}

// Hosts are the hosts of the matrix.
var Hosts = func() (out []HostRow) {
	const badPort, userInfo, number = "not a host: a port is a number", "not a host: user information", "a name that ends in a number may be read as an address"
	for _, row := range [][2]string{
		{"admin.shop", "the host itself"},
		{"ADMIN.shop", "hosts have no case"},
		{"aDmin.Shop:8080", "hosts have no case"},
		{"admin.shop:80", "the same host with the default port"},
		{"admin.shop:443", "the same host with the default port of https"},
		{"admin.shop:8080", "the same host, which routes know as example.com:*"},
		{"admin.shop:08080", "the same port"},
		{"admin.shop:080", "the default port"},
		{"admin.shop:99999", "the same host"},
		{"admin.shop:", "a port may be empty"},
		{"admin.shop.", "the same name, absolute"},
		{"ADMIN.shop.:8080", "the same name, absolute"},
		{"admin.shop..", "not a host: an empty label"},
		{"admin..shop", "not a host: an empty label"},
		{".shop", "not a host: an empty label"},
		{"admin.shop:x", badPort},
		{"admin.shop:8080x", badPort},
		{"admin.shop:80:80", badPort},
		{"admin.shop:123456", badPort},
		{"other.example:x", badPort},
		{"u@admin.shop", userInfo},
		{"admin.shop@other.example", userInfo},
		{"other.example:80@admin.shop", userInfo},
		{"admin%2eshop", "servers decode it, or do not"},
		{"admin~.shop", "not a name of a host"},
		{"xadmin.shop", "another name"},
		{"admin.shop.example", "another name"},
		{"admin-shop", "another name"},
		{"admin_1.shop", "another name"},
		{"shop", "a host without a port, which has the default one"},
		{"shop:", "a port may be empty"},
		{"shop:80", "a host with the default port"},
		{"other.shop", "another name"},
		{"other.example", "another name"},
		{"other.example:8080", "another name"},
		{"admin.example", "another name"},
		{"7-eleven.shop", "another name"},
		{"", "a request without a host"},
		{"[fd96::1]", "the address itself"},
		{"[FD96:0::01]:8080", "the same address"},
		{"[fd96:0:0:0:0:0:0:1]", "the same address"},
		{"[fd96::0.0.0.1]", "the same address"},
		{"[fd96::1]:x", badPort},
		{"[fd96::1%25eth0]", "not a host: a zone"},
		{"[fd96::12]", "another address"},
		{"[::1]:80", "another address"},
		{"10.96.0.1", "the address itself"},
		{"10.96.0.1:8080", "the same address"},
		{"10.96.0.11", "another address"},
		{"10.96.1", number},
		{"012.96.0.1", number},
		{"0x0a.96.0.1", number},
		{"admin.shop.1", number},
	} {
		out = append(out, HostRow{Headers: row[:1], Sent: row[0], Says: row[1]})
	}
	return append(out,
		HostRow{Headers: []string{"other.example", "admin.shop"}, Sent: "other.example,admin.shop", Says: "two hosts"},
		HostRow{Headers: []string{"admin.shop", "other.example"}, Sent: "admin.shop,other.example", Says: "two hosts"},
		HostRow{Headers: []string{"other.example"}, Absolute: "admin.shop", Sent: "admin.shop", Says: "the request target decides (RFC 9112, 3.2.2)"},
		HostRow{Headers: []string{"admin.shop"}, Absolute: "other.example", Sent: "other.example", Says: "the request target decides (RFC 9112, 3.2.2)"},
		HostRow{Headers: []string{"other.example"}, Absolute: "u:p@admin.shop", Sent: "admin.shop", Says: "user information is not of the host"},
	)
}()

func (r HostRow) String() string {
	if r.Absolute != "" {
		return "http://" + r.Absolute + ", Host: " + r.Headers[0]
	}
	return strings.Join(r.Headers, " and ")
}

// PathVerdict says whether one of the values names a path that BASE has normalised.
func PathVerdict(values []string, base string) Verdict {
	steps := []func(string) string{withoutParameters, slashesDecoded, othersDecoded}
	if !slices.ContainsFunc(values, func(v string) bool { return strings.HasSuffix(v, "{**}/") && pathCompare(v, base) == Yes }) {
		steps = append(steps, merged) // an example of Istio's documentation: /foo/{**}/ matches /foo//
	}
	readings := []string{base}
	for i := 0; i < len(readings); i++ { // a server may take the steps in any order
		for _, step := range steps {
			if r := step(readings[i]); !slices.Contains(readings, r) {
				readings = append(readings, r)
			}
		}
	}
	for _, r := range readings {
		if segments := strings.Split(r, "/"); slices.Contains(segments, ".") || slices.Contains(segments, "..") {
			return Unclear // a server may resolve it
		}
	}
	return verdict(values, readings, pathCompare)
}

func pathCompare(value, reading string) Verdict {
	if strings.Contains(value, "{") {
		return template(strings.Split(value, "/"), strings.Split(reading, "/"))
	}
	return compare(value, withPercents(reading))
}

func withoutParameters(path string) string {
	segments := strings.Split(path, "/")
	for i := range segments {
		segments[i], _, _ = strings.Cut(segments[i], ";")
	}
	return strings.Join(segments, "/")
}

var slashes = strings.NewReplacer("%2f", "/", "%2F", "/", "%5c", "/", "%5C", "/")

func slashesDecoded(path string) string { return slashes.Replace(path) }

// decodedPercent stands for a percent sign that was %25, because a server decodes each character once.
const decodedPercent = "\U0010FFFF"

func withPercents(path string) string { return strings.ReplaceAll(path, decodedPercent, "%") }

var escapes = regexp.MustCompile("%[0-9A-Fa-f]{2}")

func othersDecoded(path string) string {
	return escapes.ReplaceAllStringFunc(path, func(escape string) string {
		n, _ := strconv.ParseUint(escape[1:], 16, 8)
		switch n {
		case '/', '\\':
			return escape
		case '%':
			return decodedPercent
		}
		return string([]byte{byte(n)})
	})
}

func merged(path string) string {
	for strings.Contains(path, "//") {
		path = strings.ReplaceAll(path, "//", "/")
	}
	return path
}

// template compares the segments of a template with those of a path. {*} is one segment; it is unclear whether an empty
// one counts. {**} is one or more, which may be empty. That /foo/{**}/ also matches /foo/bar/baz.txt is an example of
// Istio's documentation, but not what its Envoy does.
func template(values, segments []string) Verdict {
	switch {
	case len(values) == 0 || len(segments) == 0:
		if len(values) == len(segments) {
			return Yes
		}
		return No
	case values[0] == "{**}":
		best := No
		for i := 1; i <= len(segments); i++ {
			v := template(values[1:], segments[i:])
			if len(values) == 2 && values[1] == "" && i < len(segments) && v == No {
				v = Unclear
			}
			if v == Yes || v == Unclear && best == No {
				best = v
			}
		}
		return best
	case values[0] == "{*}":
		rest := template(values[1:], segments[1:])
		if _, err := url.PathUnescape(segments[0]); rest == Yes && (segments[0] == "" || err != nil) {
			return Unclear
		}
		return rest
	case values[0] == withPercents(segments[0]):
		return template(values[1:], segments[1:])
	}
	return No
}

// compare compares a text with one that may have a * at one end.
func compare(value, text string) Verdict {
	start, prefix := strings.CutSuffix(value, "*")
	end, suffix := strings.CutPrefix(value, "*")
	if prefix && strings.HasPrefix(text, start) || suffix && strings.HasSuffix(text, end) || value == text {
		return Yes
	}
	return No
}

// verdict combines the verdicts on all readings, each on the value that suits it best.
func verdict(values, readings []string, compare func(value, reading string) Verdict) Verdict {
	var all []Verdict
	for _, r := range readings {
		best := No
		for _, v := range values {
			if got := compare(v, r); got == Yes || got == Unclear && best == No {
				best = got
			}
		}
		all = append(all, best)
	}
	if all = slices.Compact(all); len(all) > 1 {
		return Unclear
	}
	return all[0]
}

// hostVerdict says whether one of the values names a host.
func hostVerdict(values []string, host string) Verdict {
	host = strings.ToLower(host)
	name, port, hasPort := host, "", false
	if strings.HasPrefix(host, "[") {
		end := strings.Index(host, "]")
		if end < 0 {
			return Unclear
		}
		a, err := netip.ParseAddr(host[1:end])
		if err != nil || a.Zone() != "" || strings.Contains(host, "%") {
			return Unclear
		}
		name, port = "["+a.String()+"]", host[end+1:]
		if hasPort = port != ""; hasPort && port[0] != ':' {
			return Unclear
		}
		port = strings.TrimPrefix(port, ":")
	} else {
		name, port, hasPort = strings.Cut(host, ":")
		if strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789-_.") != "" {
			return Unclear
		}
		labels := strings.Split(strings.TrimSuffix(name, "."), ".")
		_, notNumber := strconv.ParseUint(labels[len(labels)-1], 0, 64)
		_, notAddress := netip.ParseAddr(name)
		if slices.Contains(labels, "") || notNumber == nil && notAddress != nil {
			return Unclear
		}
	}
	if n, err := strconv.ParseUint(port, 10, 64); hasPort && (err != nil && port != "" || n > 99999) {
		return Unclear
	}
	names := []string{name, strings.TrimSuffix(name, ".")}
	return verdict(values, []string{host}, func(value, _ string) Verdict {
		readings := []string{host}
		switch i := strings.LastIndex(value, ":"); {
		case i < 0 || strings.HasSuffix(value, "]"):
			readings = append(readings, names...)
		case port != "":
			for _, n := range names {
				readings = append(readings, fmt.Sprintf("%s:%s", n, strings.TrimLeft(port, "0")))
			}
		default:
			for _, n := range names {
				readings = append(readings, n+":80", n+":443")
			}
		}
		return verdict([]string{value}, readings, compare)
	})
}
