package foreign

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"outrider.dev/internal/core/mesh"
)

// maxTranslation is the maximum length, in bytes, of a translation that is included in a message.
const maxTranslation = 2000

// insteadOfVirtualService returns what to use in place of a VirtualService of Istio. If an HTTPRoute can
// express the whole object, the result contains that HTTPRoute.
func insteadOfVirtualService(o fields) string {
	plain := "use an HTTPRoute"
	if slices.ContainsFunc(o.at("spec").list("http"), func(h fields) bool { return h["fault"] != nil }) {
		plain += ", and a BackendPolicy for its faults"
	}
	t := translation{namespace: o.at("metadata").text("namespace")}
	route := t.route(o)
	if t.fails {
		return plain
	}
	text, err := json.Marshal(route)
	if err != nil || len(text) > maxTranslation {
		return plain
	}
	var notes string
	if t.prefix {
		notes += ", where a prefix is of whole path elements"
	}
	if t.grant {
		notes += ", with a ReferenceGrant in the namespace of a backend"
	}
	if t.port {
		notes += ", with the Service's port in place of 80"
	}
	return plain + notes + ": " + string(text)
}

// A translation is the state of the translation of a VirtualService to an HTTPRoute.
type translation struct {
	namespace    string
	fails        bool // a part cannot be expressed by an HTTPRoute, or would have another meaning
	port, prefix bool // the translation contains a port that the object does not have, or a path prefix
	grant        bool // a backend is in another namespace, so a ReferenceGrant is needed
}

// only, called with the keys that are translated, makes the translation fail if f has any other key, which
// would be lost.
func (t *translation) only(f fields, keys ...string) {
	for k := range f { // any order: one suffices
		if !slices.Contains(keys, k) {
			t.fails = true
		}
	}
}

// number reads a number, which has a different type if it was decoded from YAML than from JSON.
func (f fields) number(key string) float64 {
	switch n := f[key].(type) {
	case int64:
		return float64(n)
	case int:
		return float64(n)
	case uint64:
		return float64(n)
	case float64:
		return n
	}
	return 0
}

func (t *translation) route(o fields) fields {
	spec := o.at("spec")
	t.only(spec, "hosts", "http", "gateways")
	hosts, _ := spec["hosts"].([]any)
	gateways, _ := spec["gateways"].([]any)
	if len(hosts) != 1 || len(gateways) > 1 || len(gateways) == 1 && gateways[0] != "mesh" {
		t.fails = true
		return nil
	}
	host, _ := hosts[0].(string)
	parent := t.reference(host)
	parent["group"], parent["kind"] = "", "Service"
	var rules []any
	var order []mesh.Match
	for _, h := range spec.list("http") {
		rule, matches := t.rule(h)
		rules, order = append(rules, rule), append(order, matches...)
	}
	if len(rules) == 0 { // an HTTPRoute without rules matches everything
		t.fails = true
	}
	// The rules of an HTTPRoute take effect in the order that the Gateway API defines, not in the order of
	// the list.
	if !slices.IsSortedFunc(order, func(a, b mesh.Match) int { return mesh.CompareMatches(a, b) }) {
		t.fails = true
	}
	meta := o.at("metadata")
	return fields{
		"apiVersion": "gateway.networking.k8s.io/v1", "kind": string(mesh.KindRoute),
		"metadata": some(fields{"name": meta.text("name"), "namespace": meta.text("namespace")}),
		"spec":     some(fields{"parentRefs": []any{parent}, "rules": rules}),
	}
}

// some removes empty fields from f and returns it.
func some(f fields) fields {
	maps.DeleteFunc(f, func(_ string, v any) bool {
		switch v := v.(type) {
		case string:
			return v == ""
		case []any:
			return len(v) == 0
		case fields:
			return len(v) == 0
		}
		return v == nil
	})
	return f
}

// reference returns the Service to which a host refers. Short names are completed as by Istio.
func (t *translation) reference(host string) fields {
	labels := strings.Split(strings.TrimSuffix(host, ".svc.cluster.local"), ".")
	if len(labels) == 3 && labels[2] == "svc" {
		labels = labels[:2]
	}
	if host == "" || len(labels) > 2 || strings.Contains(host, "*") {
		t.fails = true
	}
	out := fields{"name": labels[0]}
	if len(labels) == 2 && labels[1] != t.namespace {
		out["namespace"] = labels[1]
	}
	return out
}

func (t *translation) rule(h fields) (fields, []mesh.Match) {
	t.only(h, "name", "match", "route", "redirect", "rewrite", "timeout", "retries", "mirror", "mirrorPercentage", "headers")
	var matches []any
	var order []mesh.Match
	for _, m := range h.list("match") {
		match, is := t.match(m)
		matches, order = append(matches, match), append(order, is)
	}
	if order == nil {
		order = []mesh.Match{{}}
	}
	filters := t.headers(h.at("headers"))
	if r := h.at("redirect"); r != nil {
		filters = append(filters, t.redirect(r))
	}
	if r := h.at("rewrite"); r != nil {
		filters = append(filters, t.rewrite(r, order))
	}
	if m := h.at("mirror"); m != nil {
		filters = append(filters, t.mirror(m, h))
	}
	var backends []any
	for _, r := range h.list("route") {
		t.only(r, "destination", "weight", "headers")
		to := t.destination(r.at("destination"))
		if r["weight"] != nil {
			to["weight"] = r.number("weight")
		}
		if own := t.headers(r.at("headers")); own != nil {
			to["filters"] = own
		}
		backends = append(backends, to)
	}
	t.fails = t.fails || len(backends) == 0 && h.at("redirect") == nil
	timeouts := fields{"request": t.duration(h.text("timeout"))}
	retry := fields{}
	if r := h.at("retries"); r != nil {
		t.only(r, "attempts", "perTryTimeout", "retryOn")
		timeouts["backendRequest"] = t.duration(r.text("perTryTimeout"))
		retry["attempts"], retry["codes"] = r.number("attempts"), t.codes(r.text("retryOn"))
	}
	return some(fields{"name": h.text("name"), "matches": matches, "filters": filters, "backendRefs": backends, "timeouts": some(timeouts), "retry": some(retry)}), order
}

func (t *translation) destination(d fields) fields {
	t.only(d, "host", "port")
	out := t.reference(d.text("host"))
	t.grant = t.grant || out["namespace"] != nil
	out["port"] = d.at("port").number("number")
	if out["port"] == 0.0 {
		out["port"], t.port = 80.0, true
	}
	return out
}

func (t *translation) match(m fields) (fields, mesh.Match) {
	t.only(m, "name", "uri", "method", "headers", "queryParams")
	var is mesh.Match
	out := fields{}
	if uri := m.at("uri"); uri != nil {
		kind, value := t.text(uri, true)
		is.Path = &mesh.Text{Kind: map[string]mesh.TextKind{"Exact": mesh.Exact, "PathPrefix": mesh.Prefix, "RegularExpression": mesh.RegExp}[kind], Value: value}
		out["path"] = fields{"type": kind, "value": value}
	}
	if method := m.at("method"); method != nil {
		kind, value := t.text(method, false)
		t.fails = t.fails || kind != "Exact"
		is.Method, out["method"] = value, value
	}
	pairs := func(key string) (list []any) {
		for _, name := range slices.Sorted(maps.Keys(m.at(key))) {
			kind, value := t.text(m.at(key).at(name), false)
			list = append(list, fields{"name": name, "type": kind, "value": value})
		}
		return list
	}
	out["headers"], out["queryParams"] = pairs("headers"), pairs("queryParams")
	is.Headers, is.Query = make([]mesh.Pair, len(m.at("headers"))), make([]mesh.Pair, len(m.at("queryParams")))
	return some(out), is
}

// text translates Istio's StringMatch to a type of match and its value. Prefixes are supported only for a
// path; in other fields they become regular expressions.
func (t *translation) text(f fields, path bool) (kind, value string) {
	t.only(f, "exact", "prefix", "regex")
	switch {
	case len(f) != 1:
		t.fails = true // an empty match matches if the field is present, whatever its value
	case f["exact"] != nil:
		return "Exact", f.text("exact")
	case f["regex"] != nil:
		return "RegularExpression", f.text("regex")
	case path:
		t.prefix = true
		return "PathPrefix", f.text("prefix")
	}
	return "RegularExpression", regexp.QuoteMeta(f.text("prefix")) + ".*"
}

func (t *translation) headers(h fields) (out []any) {
	t.only(h, "request", "response")
	for _, side := range []struct{ from, filter, field string }{{"request", "RequestHeaderModifier", "requestHeaderModifier"}, {"response", "ResponseHeaderModifier", "responseHeaderModifier"}} {
		f := h.at(side.from)
		if f == nil {
			continue
		}
		t.only(f, "set", "add", "remove")
		pairs := func(key string) (list []any) {
			for _, name := range slices.Sorted(maps.Keys(f.at(key))) {
				list = append(list, fields{"name": name, "value": f.at(key).text(name)})
			}
			return list
		}
		out = append(out, fields{"type": side.filter, side.field: some(fields{"set": pairs("set"), "add": pairs("add"), "remove": f["remove"]})})
	}
	return out
}

func (t *translation) redirect(r fields) fields {
	t.only(r, "uri", "authority", "port", "scheme", "redirectCode")
	out := fields{"statusCode": 301.0, "hostname": r.text("authority"), "scheme": r.text("scheme")}
	if code := r.number("redirectCode"); code != 0 {
		out["statusCode"] = code
	}
	if port := r.number("port"); port != 0 {
		out["port"] = port
	}
	if uri := r.text("uri"); uri != "" {
		t.fails = t.fails || strings.Contains(uri, "%")
		out["path"] = fields{"type": "ReplaceFullPath", "replaceFullPath": uri}
	}
	return fields{"type": "RequestRedirect", "requestRedirect": some(out)}
}

func (t *translation) rewrite(r fields, matches []mesh.Match) fields {
	t.only(r, "uri", "authority")
	out := fields{"hostname": r.text("authority")}
	if uri := r.text("uri"); uri != "" {
		prefix := func(m mesh.Match) bool { return m.Path != nil && m.Path.Kind == mesh.Prefix }
		switch {
		case !slices.ContainsFunc(matches, func(m mesh.Match) bool { return !prefix(m) }):
			out["path"] = fields{"type": "ReplacePrefixMatch", "replacePrefixMatch": uri}
		case !slices.ContainsFunc(matches, prefix):
			out["path"] = fields{"type": "ReplaceFullPath", "replaceFullPath": uri}
		default:
			t.fails = true
		}
	}
	return fields{"type": "URLRewrite", "urlRewrite": some(out)}
}

func (t *translation) mirror(m, rule fields) fields {
	out := fields{"backendRef": t.destination(m)}
	if p := rule.at("mirrorPercentage"); p != nil {
		// A fraction of a million can express each percentage that Istio allows.
		out["fraction"] = fields{"numerator": math.Round(p.number("value") * 10_000), "denominator": 1_000_000}
	}
	return fields{"type": "RequestMirror", "requestMirror": out}
}

// duration converts a duration to the Gateway API's format, which has no decimal fractions.
func (t *translation) duration(text string) string {
	if text == "" {
		return ""
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < time.Millisecond || d >= 100_000*time.Second || d%time.Millisecond != 0 {
		t.fails = true
	}
	if d%time.Second == 0 {
		return fmt.Sprintf("%ds", d/time.Second)
	}
	return strings.TrimPrefix(fmt.Sprintf("%ds%dms", d/time.Second, d%time.Second/time.Millisecond), "0s")
}

// codes returns the statuses in Istio's retryOn. It ignores connection failures, because those are always
// retried.
func (t *translation) codes(on string) (out []any) {
	add := func(codes ...int) {
		for _, c := range codes {
			if !slices.Contains(out, any(c)) {
				out = append(out, c)
			}
		}
	}
	for _, one := range strings.Split(on, ",") {
		code, err := strconv.Atoi(strings.TrimSpace(one))
		switch one = strings.TrimSpace(one); {
		case err == nil && code >= 400 && code <= 599:
			add(code)
		case one == "gateway-error":
			add(502, 503, 504)
		case one == "5xx":
			add(500, 501, 502, 503, 504)
		case !slices.Contains([]string{"", "connect-failure", "refused-stream", "reset", "reset-before-request"}, one):
			t.fails = true
		}
	}
	return out
}
