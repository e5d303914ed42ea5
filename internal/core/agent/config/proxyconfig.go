package config

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"outrider.dev/internal/base/manifest/limits"
	"outrider.dev/internal/base/telemetry"
	"outrider.dev/startup"
)

// proxySettings are the fields of Istio's ProxyConfig that have an effect here.
var proxySettings = map[string]setter{
	"discoveryAddress":         text(func(c *Config) *string { return &c.ControlPlane.Address }),
	"concurrency":              concurrency,
	"drainDuration":            drainTime,
	"terminationDrainDuration": duration(func(c *Config) *time.Duration { return &c.Stop.Drain }),
	"statusPort":               port(func(c *Config) *uint16 { return &c.Ports.Status }),
	"proxyAdminPort":           port(func(c *Config) *uint16 { return &c.Ports.Admin }),
	"serviceCluster":           text(func(c *Config) *string { return &c.Envoy.Cluster }),
	"binaryPath":               text(func(c *Config) *string { return &c.Envoy.Path }),
	"configPath":               text(func(c *Config) *string { return &c.Work }),
	"controlPlaneAuthPolicy": choice(func(c *Config) *bool { return &c.ControlPlane.Plaintext },
		"MUTUAL_TLS or NONE", map[string]bool{"MUTUAL_TLS": false, "NONE": true}),
}

// Fields of a ProxyConfig that are objects:
const (
	proxyMetadata = "proxyMetadata"
	statsMatcher  = "proxyStatsMatcher"
	tracing       = "tracing"
)

// elsewhere lists the known fields that this package does not read. The value is "" if injection acts on the
// field; otherwise it is the reason why the field has no effect.
var elsewhere = map[string]string{
	"holdApplicationUntilProxyStarts": "", // injection acts on it
	"interceptionMode":                "",
	"image":                           "",
	"readinessProbe":                  "an application's own readiness is its container's probe",
	tracing:                           "",
	"envoyAccessLogService":           "meshConfig.accessLogFile sets the access log",
	"envoyMetricsService":             "metrics are scraped",
	"extraStatTags":                   "tags of statistics are Envoy's own",
	"caCertificatesPem":               "the trusted roots are in the mounted root certificate",
	"meshId":                          "",
	"statNameLength":                  "names of statistics are not cut",
	"availabilityZone":                "where a pod is, the control plane reads in the cluster",
	"connectionSettings":              "settings of the proxy's connections are built in",
	"customConfigFile":                "the agent writes Envoy's bootstrap; annotation sidecar.istio.io/bootstrapOverride adds to it",
	"proxyBootstrapTemplatePath":      "the agent writes Envoy's bootstrap; annotation sidecar.istio.io/bootstrapOverride adds to it",
	"discoveryRefreshDelay":           "the control plane pushes changes at once",
	"envoyMetricsServiceAddress":      "metrics are scraped",
	"statsdUdpAddress":                "metrics are scraped",
	"gatewayTopology":                 "there are no gateways here",
	"proxyHeaders":                    "headers that the proxy adds are built in",
	"runtimeValues":                   "Envoy's runtime has its defaults; annotation sidecar.istio.io/bootstrapOverride adds to its bootstrap",
	"sds":                             "the agent gives Envoy its certificates",
	"statsCompression":                "metrics are not compressed by Envoy",
	"tracingServiceName":              "a span has the name of the workload's app, and its namespace",
	"zipkinAddress":                   "spans go to the opentelemetry provider of meshConfig.defaultProviders.tracing",
	"privateKeyProvider":              "the key is made and kept by the agent",
	"fileFlushInterval":               "lines of the access log are written when 64 KiB or 10 s are full",
	"fileFlushMinSizeKb":              "lines of the access log are written when 64 KiB or 10 s are full",
}

// ProxyConfigFields returns the known fields of Istio's ProxyConfig. The value is the reason why a field has no
// effect; it is empty for a field with an effect.
func ProxyConfigFields() map[string]string {
	out := maps.Clone(elsewhere)
	for name := range proxySettings { // any order: the result is a map
		out[name] = ""
	}
	out[proxyMetadata], out[statsMatcher] = "", ""
	return out
}

// didYouMean returns " (did you mean X?)" for the name nearest to a misspelt word, or "".
func didYouMean(word string, names []string) string {
	best, least := "", 1+len(word)/3
	for _, name := range names {
		if d := startup.Distance(strings.ToLower(word), strings.ToLower(name)); d < least {
			best, least = name, d
		}
	}
	if best == "" {
		return ""
	}
	return " (did you mean " + best + "?)"
}

// only accepts the fields in names: it adds a note for each other field of the object.
func (r *reader) only(where string, object *yaml.Node, names ...string) {
	for i := 0; i+1 < len(object.Content); i += 2 {
		if name := object.Content[i].Value; !slices.Contains(names, name) {
			r.note("%s.%s: no such setting is known%s; it has no effect", where, name, didYouMean(name, names))
		}
	}
}

// meshConfig reads the mesh's file: its defaultConfig is a ProxyConfig.
func (r *reader) meshConfig(name string, data []byte) {
	var mesh struct {
		Default     yaml.Node `yaml:"defaultConfig"`
		TrustDomain string    `yaml:"trustDomain"`
	}
	document, err := limits.Document(data).Parse(data)
	if err == nil {
		err = document.Decode(&mesh)
	}
	if err != nil {
		r.refuse(name, err.Error(), "Istio's MeshConfig as YAML")
		return
	}
	if mesh.TrustDomain != "" {
		r.out.Pod.TrustDomain = mesh.TrustDomain
	}
	var all map[string]yaml.Node
	if document.Decode(&all) == nil {
		delete(all, "defaultConfig")
		delete(all, "trustDomain")
		if others := slices.Sorted(maps.Keys(all)); len(others) > 0 {
			r.note("%s: the agent reads defaultConfig and trustDomain alone; without effect here: %s", name, strings.Join(others, ", "))
		}
	}
	if mesh.Default.Kind != 0 {
		r.proxyNode(name+": defaultConfig", &mesh.Default)
	}
}

// proxyConfig reads one ProxyConfig, as YAML or JSON.
func (r *reader) proxyConfig(where string, data []byte) {
	node, err := limits.Annotation.Parse(data)
	if err != nil {
		r.refuse(where, err.Error(), "Istio's ProxyConfig as YAML or JSON")
		return
	}
	if len(node.Content) == 0 {
		return // empty
	}
	r.proxyNode(where, node.Content[0])
}

func (r *reader) proxyNode(where string, node *yaml.Node) {
	var fields map[string]yaml.Node
	if err := node.Decode(&fields); err != nil {
		r.refuse(where, err.Error(), "an object of settings")
		return
	}
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		value := fields[name]
		where := where + ": " + name
		if set, ok := proxySettings[name]; ok {
			if value.Kind != yaml.ScalarNode {
				r.refuse(where, "an object or a list", "one value")
				continue
			}
			r.apply(where, value.Value, set)
			continue
		}
		switch name {
		case proxyMetadata:
			r.setMetadata(where, &value)
			continue
		case statsMatcher:
			r.setStats(where, &value)
			continue
		case tracing:
			r.setTracing(where, &value)
			continue
		case "image":
			r.only(where, &value, "imageType")
		case "interceptionMode":
			if !slices.Contains(modes, value.Value) {
				r.refuse(where, value.Value, wantMode)
			}
		}
		switch why, known := elsewhere[name]; {
		case !known:
			r.note("%s: no such setting is known%s; it has no effect", where, didYouMean(name, slices.Sorted(maps.Keys(ProxyConfigFields()))))
		case why != "":
			r.note("%s has no effect: %s", where, why)
		}
	}
}

// written returns a setting as text; an object or a list as JSON, since a YAML encoder would add a
// tenth of a megabyte to the agent.
func written(value *yaml.Node) string {
	if value.Kind == yaml.ScalarNode {
		return value.Value
	}
	var v any
	if err := value.Decode(&v); err != nil {
		return value.Tag
	}
	text, err := json.Marshal(v)
	if err != nil { // a mapping in the value has a key that is not a string
		return fmt.Sprint(v)
	}
	return string(text)
}

// put adds to a map that may be nil.
func put[V any](m *map[string]V, key string, value V) {
	if *m == nil {
		*m = map[string]V{}
	}
	(*m)[key] = value
}

func (r *reader) setMetadata(where string, value *yaml.Node) {
	var pairs map[string]string
	if err := value.Decode(&pairs); err != nil {
		r.refuse(where, err.Error(), "variables and their values")
		return
	}
	for name, v := range pairs {
		put(&r.metadata, name, v)
	}
}

// metadataVariables adds proxyMetadata to the variables; the container's own variables overrule it.
func (r *reader) metadataVariables() {
	for name, v := range r.metadata {
		if _, set := r.env[name]; !set {
			r.env[name] = v
		}
	}
}

func (r *reader) setStats(where string, value *yaml.Node) {
	var m struct {
		Prefixes []string `yaml:"inclusionPrefixes"`
		Suffixes []string `yaml:"inclusionSuffixes"`
		Regexps  []string `yaml:"inclusionRegexps"`
	}
	if err := value.Decode(&m); err != nil {
		r.refuse(where, err.Error(), "inclusionPrefixes, inclusionSuffixes and inclusionRegexps, each a list")
		return
	}
	for _, list := range []struct {
		name    string
		entries []string
	}{{"inclusionPrefixes", m.Prefixes}, {"inclusionSuffixes", m.Suffixes}, {"inclusionRegexps", m.Regexps}} {
		if slices.Contains(list.entries, "") {
			r.refuse(where+": "+list.name, "", "entries that are not empty, since an empty one keeps everything")
		}
	}
	for _, e := range m.Regexps {
		if _, err := regexp.Compile(e); err != nil {
			r.refuse(where+": inclusionRegexps", e, "an expression of RE2: "+err.Error())
		}
	}
	r.only(where, value, "inclusionPrefixes", "inclusionSuffixes", "inclusionRegexps")
	r.out.Envoy.Stats = Stats{m.Prefixes, m.Suffixes, m.Regexps}
}

// setTracing reads the percentage of requests that are traced. The destination of spans is a setting of the
// whole mesh.
func (r *reader) setTracing(where string, value *yaml.Node) {
	var fields map[string]yaml.Node
	if err := value.Decode(&fields); err != nil {
		r.refuse(where, err.Error(), "an object with sampling")
		return
	}
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		field := fields[name]
		if name != "sampling" {
			r.note("%s.%s has no effect: spans go to the opentelemetry provider of meshConfig.defaultProviders.tracing", where, name)
			continue
		}
		percent, err := strconv.ParseFloat(field.Value, 64)
		if err == nil {
			err = telemetry.CheckSampling(percent)
		}
		if err != nil {
			r.refuse(where+".sampling", field.Value, "a percentage, from 0 to 100")
			continue
		}
		r.out.Envoy.Sampling = field.Value
	}
}

// jsonOf returns a YAML or JSON object as JSON.
func jsonOf(data []byte) (json.RawMessage, error) {
	var v any
	if err := limits.Annotation.Decode(data, &v); err != nil {
		return nil, err
	}
	object, ok := v.(map[string]any)
	if !ok {
		return nil, fmt.Errorf("it is not an object, but %s", strings.TrimPrefix(fmt.Sprintf("%T", v), "*"))
	}
	return json.Marshal(object)
}
