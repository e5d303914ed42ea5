package foreign

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"outrider.dev/internal/core/mesh"
)

// insteadOfDestinationRule returns what to use in place of a DestinationRule of Istio: a BackendPolicy for
// limits and outlier detection, and other objects. The result also lists fields that have no equivalent.
func insteadOfDestinationRule(o fields) string {
	meta, spec := o.at("metadata"), o.at("spec")
	r := ruleTranslation{translation: translation{namespace: meta.text("namespace")}}
	target := r.reference(spec.text("host"))
	if r.fails { // the host is not a Service, or matches several
		return "use a BackendPolicy of each Service for its limits and outlier detection, a Service for each subset, and an HTTPRoute for their shares"
	}
	r.rest("", spec, "host", "trafficPolicy", "subsets", "exportTo")
	if to, _ := spec["exportTo"].([]any); len(to) > 0 && to[0] != "*" {
		r.without = append(r.without, "exportTo")
	}
	namespace, _ := target["namespace"].(string)
	delete(target, "namespace")
	var policies []any
	add := func(name string, target, traffic fields) {
		if traffic != nil {
			traffic["targetRefs"] = []any{some(target)}
			where := fields{"name": name, "namespace": r.namespace}
			if namespace != "" {
				where["namespace"] = namespace
			}
			policies = append(policies, fields{"apiVersion": "outrider.dev/v1alpha1", "kind": string(mesh.KindBackendPolicy), "metadata": some(where), "spec": traffic})
		}
	}
	traffic := spec.at("trafficPolicy")
	r.rest("trafficPolicy.", traffic, "connectionPool", "outlierDetection", "portLevelSettings", "loadBalancer", "tls", "retryBudget")
	add(meta.text("name"), maps.Clone(target), r.settings("trafficPolicy.", traffic))
	ports := traffic.list("portLevelSettings")
	for i, p := range ports {
		field := fmt.Sprintf("trafficPolicy.portLevelSettings[%d]", i)
		r.rest(field+".", p, "port", "connectionPool", "outlierDetection", "loadBalancer", "tls")
		number := fmt.Sprintf("port-%.0f", p.at("port").number("number"))
		settings := r.settings(field+".", p)
		if settings == nil {
			r.without = append(r.without, field)
		}
		add(meta.text("name")+"-"+number, fields{"name": target["name"], "sectionName": number}, settings)
	}
	return r.sentence(policies, namespace != "", len(ports) > 0, len(spec.list("subsets")) > 0, traffic["retryBudget"] != nil)
}

// A ruleTranslation translates a DestinationRule to BackendPolicies.
type ruleTranslation struct {
	translation
	without []string // fields without an equivalent
}

// sentence returns the advice which objects to use. The text of the policies comes last.
func (r *ruleTranslation) sentence(policies []any, elsewhere, named, subsets, budget bool) string {
	var use []string
	if policies != nil {
		policy := "a BackendPolicy"
		if elsewhere {
			policy += ", which is then for the clients of all namespaces"
		}
		if named {
			policy += ", with the names of the Service's ports in place of port-NUMBER"
		}
		use = append(use, policy)
	}
	if subsets {
		use = append(use, "a Service for each subset", "an HTTPRoute for their shares")
	}
	if budget {
		use = append(use, "an XBackendTrafficPolicy for its retryBudget")
	}
	var out string
	switch last := len(use) - 1; {
	case last > 0:
		out = "use " + strings.Join(use[:last], ", ") + ", and " + use[last]
	case last == 0:
		out = "use " + use[0]
	default:
		out = "remove it"
		if r.without == nil {
			out += ": all that it sets is so by itself"
		}
	}
	if r.without != nil {
		out += "; without an equivalent: " + mesh.ShortList(r.without, ", ")
	}
	object := any(fields{"apiVersion": "v1", "kind": "List", "items": policies})
	if len(policies) == 1 {
		object = policies[0]
	}
	if text, err := json.Marshal(object); policies != nil && err == nil && len(text) <= maxTranslation {
		out += ": " + string(text)
	}
	return out
}

// rest adds to r.without the fields of f that are not among the known ones.
func (r *ruleTranslation) rest(prefix string, f fields, known ...string) {
	for _, k := range slices.Sorted(maps.Keys(f)) {
		if !slices.Contains(known, k) {
			r.without = append(r.without, prefix+k)
		}
	}
}

// settings returns the spec of a BackendPolicy without its targets; nil if nothing is set.
func (r *ruleTranslation) settings(prefix string, traffic fields) fields {
	if b := traffic.at("loadBalancer"); b != nil && (len(b) != 1 || b.text("simple") != "LEAST_REQUEST") {
		r.without = append(r.without, prefix+"loadBalancer (the endpoint with the fewest requests is used, and trafficDistribution of the Service prefers near ones)")
	}
	if tls := traffic.at("tls"); tls != nil && (len(tls) != 1 || tls.text("mode") != "ISTIO_MUTUAL") {
		r.without = append(r.without, prefix+"tls (proxies use mutual TLS among themselves; other TLS is the application's)")
	}
	out := some(fields{
		"connections":      r.connections(prefix+"connectionPool.", traffic.at("connectionPool")),
		"outlierDetection": r.outliers(prefix+"outlierDetection.", traffic.at("outlierDetection")),
	})
	if len(out) == 0 {
		return nil
	}
	return out
}

// pool maps fields of a DestinationRule's connectionPool to fields of spec.connections in a BackendPolicy.
var pool = map[string]string{
	"http.http1MaxPendingRequests": "maxPendingRequests", "http.http2MaxRequests": "maxRequests", "http.idleTimeout": "idleTimeout",
	"http.maxRequestsPerConnection": "maxRequestsPerConnection", "http.maxRetries": "maxRetries",
	"tcp.connectTimeout": "connectTimeout", "tcp.idleTimeout": "idleTimeout", "tcp.maxConnections": "max",
}

func (r *ruleTranslation) connections(prefix string, from fields) fields {
	out := fields{}
	r.rest(prefix, from, "http", "tcp")
	for _, part := range []string{"http", "tcp"} { // the idle timeout for HTTP takes precedence over the one for TCP, as in Istio
		for _, k := range slices.Sorted(maps.Keys(from.at(part))) {
			to := pool[part+"."+k]
			switch {
			case to == "":
				r.without = append(r.without, prefix+part+"."+k)
			case out[to] != nil:
			case strings.HasSuffix(to, "Timeout"):
				most := time.Hour
				if to == "idleTimeout" {
					most = 24 * time.Hour
				}
				r.time(out, to, prefix+part+"."+k, from.at(part).text(k), time.Millisecond, most)
			case from.at(part).number(k) != 0: // in Istio 0 means no limit, and so does a missing field
				r.count(out, to, prefix+part+"."+k, from.at(part).number(k), math.MaxInt32)
			}
		}
	}
	return out
}

// outliers translates outlierDetection. For unset fields it writes Istio's defaults, because Outrider's are
// different.
func (r *ruleTranslation) outliers(prefix string, from fields) fields {
	if from == nil {
		return nil
	}
	out := fields{}
	r.rest(prefix, from, "consecutive5xxErrors", "consecutiveGatewayErrors", "consecutiveLocalOriginFailures", "splitExternalLocalOriginErrors", "interval", "baseEjectionTime", "maxEjectionPercent")
	count := func(field string, otherwise float64) float64 {
		if from[field] == nil {
			return otherwise
		}
		return from.number(field)
	}
	r.count(out, "consecutive5xxErrors", prefix+"consecutive5xxErrors", count("consecutive5xxErrors", 5), math.MaxInt32)
	r.count(out, "consecutiveGatewayErrors", prefix+"consecutiveGatewayErrors", count("consecutiveGatewayErrors", 0), math.MaxInt32)
	local := count("consecutiveLocalOriginFailures", 5)
	if split, _ := from["splitExternalLocalOriginErrors"].(bool); !split {
		// Unless the rule separates local from external errors, Istio counts a failed connection as a response with the status 503.
		local = count("consecutive5xxErrors", 5)
		if gateway := count("consecutiveGatewayErrors", 0); gateway > 0 && (local == 0 || gateway < local) {
			local = gateway
		}
	}
	r.count(out, "consecutiveLocalOriginFailures", prefix+"consecutiveLocalOriginFailures", local, math.MaxInt32)
	times := func(field, otherwise string) {
		if text := from.text(field); text != "" {
			otherwise = text
		}
		r.time(out, field, prefix+field, otherwise, time.Second, time.Hour)
	}
	times("interval", "10s")
	times("baseEjectionTime", "30s")
	percent := from.number("maxEjectionPercent")
	if percent == 0 {
		percent = 10
	}
	r.count(out, "maxEjectionPercent", prefix+"maxEjectionPercent", percent, 100)
	return out
}

func (r *ruleTranslation) count(out fields, to, field string, n float64, most float64) {
	if n < 0 || n > most || n != math.Trunc(n) {
		r.without = append(r.without, field)
		return
	}
	out[to] = n
}

func (r *ruleTranslation) time(out fields, to, field, text string, least, most time.Duration) {
	d, err := time.ParseDuration(text)
	if err != nil || d < least || d > most || d%time.Millisecond != 0 {
		r.without = append(r.without, fmt.Sprintf("%s of %q", field, text))
		return
	}
	out[to] = r.duration(text)
}
