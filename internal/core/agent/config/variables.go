package config

import (
	"encoding/json"
	"errors"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"outrider.dev/internal/base/contract"
)

// known is a variable that has an effect.
type known struct {
	name string
	set  setter
}

func rsa(c *Config) *int { return &c.Certificate.RSA }

// variables lists the known variables and what each one sets. Ours begin with OUTRIDER_; the others
// are Istio's.
var variables = []known{
	{"POD_NAME", text(func(c *Config) *string { return &c.Pod.Name })},
	{"POD_NAMESPACE", text(func(c *Config) *string { return &c.Pod.Namespace })},
	{"SERVICE_ACCOUNT", text(func(c *Config) *string { return &c.Pod.ServiceAccount })},
	{"INSTANCE_IP", addresses},
	{"INSTANCE_IPS", addresses}, // both families
	{"TRUST_DOMAIN", text(func(c *Config) *string { return &c.Pod.TrustDomain })},

	{"CA_ADDR", text(func(c *Config) *string { return &c.ControlPlane.CA })},
	{"XDS_ROOT_CA", text(func(c *Config) *string { return &c.ControlPlane.Roots })},
	{"CA_ROOT_CA", text(func(c *Config) *string { return &c.ControlPlane.Roots })},
	{"ISTIOD_SAN", list(func(c *Config) *[]string { return &c.ControlPlane.Names })},
	{"OUTRIDER_TOKEN", text(func(c *Config) *string { return &c.ControlPlane.Token })},

	{"SECRET_TTL", parsed(func(c *Config) *time.Duration { return &c.Certificate.Lifetime }, time.ParseDuration,
		func(d time.Duration) bool { return d >= time.Second }, "a time of 1s or more, for example 24h")},
	{"SECRET_GRACE_PERIOD_RATIO", share(func(c *Config) *float64 { return &c.Certificate.RenewAt })},
	{"SECRET_GRACE_PERIOD_RATIO_JITTER", share(func(c *Config) *float64 { return &c.Certificate.Jitter })},
	// Larger RSA keys cost more than ECDSA keys, which are as strong.
	{"WORKLOAD_RSA_KEY_SIZE", choice(rsa, "2048, the one size of an RSA key that is made here", map[string]int{"2048": 2048})},
	{"ECC_SIGNATURE_ALGORITHM", choice(rsa, "ECDSA or RSA", map[string]int{"ECDSA": 0, "RSA": 2048})}, // overrules WORKLOAD_RSA_KEY_SIZE, as in Istio
	{"ECC_CURVE", choice(func(c *Config) *string { return &c.Certificate.Curve }, "P256 or P384", map[string]string{"P256": "P256", "P384": "P384"})},
	{"OUTPUT_CERTS", text(func(c *Config) *string { return &c.Certificate.Output })},
	{"FILE_MOUNTED_CERTS", boolean(func(c *Config) *bool { return &c.Certificate.FileMounted })},

	{"ENVOY_STATUS_PORT", port(func(c *Config) *uint16 { return &c.Ports.Readiness })},
	{"ENVOY_PROMETHEUS_PORT", port(func(c *Config) *uint16 { return &c.Ports.Prometheus })},
	{"ENVOY_PORT", port(func(c *Config) *uint16 { return &c.Ports.Outbound })},
	{"INBOUND_CAPTURE_PORT", port(func(c *Config) *uint16 { return &c.Ports.Inbound })},
	{"DNS_PROXY_ADDR", dnsAddress},
	{"ISTIO_META_DNS_CAPTURE", boolean(func(c *Config) *bool { return &c.DNS })},
	{"ISTIO_CPU_LIMIT", cpus},

	{"MINIMUM_DRAIN_DURATION", duration(func(c *Config) *time.Duration { return &c.Stop.Minimum })},
	{"EXIT_ON_ZERO_ACTIVE_CONNECTIONS", boolean(func(c *Config) *bool { return &c.Stop.OnZero })},
	{"OUTRIDER_GRACE", grace},

	{"HOST_IP", parsed(func(c *Config) *[]netip.Addr { return &c.Callers.Node }, parseAddresses, valid, "IP addresses, separated by commas")},
	{contract.ProbeKey, parsed(func(c *Config) *string { return &c.Callers.Key }, verbatim, contract.ValidProbeKey, "16 to 128 letters, digits, '-' and '_'")},
	{"OUTRIDER_PROBE_FROM", parsed(func(c *Config) *[]netip.Prefix { return &c.Callers.Probe }, parseNetworks, valid, networksForm)},
	{"OUTRIDER_METRICS_FROM", metricsFrom},

	{"ISTIO_KUBE_APP_PROBERS", object(func(c *Config) *json.RawMessage { return &c.AppProbes })},
	{"ISTIO_PROMETHEUS_ANNOTATIONS", object(func(c *Config) *json.RawMessage { return &c.AppMetrics })},
	{"OUTRIDER_STATES", text(func(c *Config) *string { return &c.States })},
	{"OUTRIDER_OWN", text(func(c *Config) *string { return &c.Own })},
	{"OUTRIDER_ORDERED_STOP", boolean(func(c *Config) *bool { return &c.Stop.Ordered })},
	{"ISTIO_META_APP_CONTAINERS", list(func(c *Config) *[]string { return &c.Stop.Apps })},
	{"OUTRIDER_STANDBY", choice(func(c *Config) *bool { return &c.NoStandby }, "on or off", map[string]bool{"on": false, "off": true})},
	{"OUTRIDER_CAPTURE_PROOF", parsed(func(c *Config) *time.Duration { return &c.CaptureProof }, time.ParseDuration,
		func(d time.Duration) bool { return d >= 100*time.Millisecond && d <= 10*time.Minute }, "a time from 100ms to 10m, for example 30s")},
	{"OUTRIDER_FAMILIES", parsed(func(c *Config) *string { return &c.CaptureFamilies }, verbatim,
		func(f string) bool { return slices.Contains([]string{"auto", "ipv4", "ipv6", "dual"}, f) }, "auto, ipv4, ipv6 or dual")},
	{"OUTRIDER_PREWARM", list(func(c *Config) *[]string { return &c.Prewarm })},
	{"OUTRIDER_RENEW_AFTER", duration(func(c *Config) *time.Duration { return &c.Envoy.RenewAfter })},
	{"OTEL_RESOURCE_ATTRIBUTES", text(func(c *Config) *string { return &c.Envoy.Resource })},
	{"OUTRIDER_ENVOY", text(func(c *Config) *string { return &c.Envoy.Path })},
}

// without lists the variables of Istio's agent that have no effect here. The value is the reason.
var without = map[string]string{
	"CA_PROVIDER":                      "certificates are requested by Istio's own service, which others offer too",
	"PILOT_CERT_PROVIDER":              "the trusted roots are in the mounted root certificate",
	"ENVOY_SECURE_METRICS_PORT":        "metrics over mutual TLS are not served yet",
	"ENVOY_SECURE_MERGED_METRICS_PORT": "metrics over mutual TLS are not served yet",
	"CREDENTIAL_FETCHER_TYPE":          "the token is read from a file",
	"XDS_AUTH_PROVIDER":                "Envoy's own stream is authenticated by its certificate",
	"PROXY_CONFIG_XDS_AGENT":           "configuration of the proxy comes with the pod",
	"DISABLE_ENVOY":                    "an agent without a proxy is not supported",
	"ISTIO_ENVOY_ENABLE_CORE_DUMP":     "core dumps are the container runtime's",
	"GRPC_XDS_BOOTSTRAP":               "proxyless gRPC subscribes at the control plane itself",
	"DNS_FORWARD_PARALLEL":             "requests to servers are sent one after another",

	"BOOTSTRAP_XDS_AGENT":                "the agent writes Envoy's bootstrap",
	"CREDENTIAL_IDENTITY_PROVIDER":       "the token is read from a file",
	"ISTIO_DELTA_XDS":                    "Envoy subscribes by delta xDS",
	"JWT_POLICY":                         "the token is read from a file",
	"TERMINATION_DRAIN_DURATION_SECONDS": "it is terminationDrainDuration of a ProxyConfig",
}

// metadataRead are the fields of the node's metadata that control planes (outriderd) read, and the
// fields that injection writes.
var metadataRead = []string{contract.MetadataNamespace, contract.MetadataServiceAccount, contract.MetadataWorkload, contract.MetadataAddresses,
	contract.MetadataInterception, contract.MetadataPrewarm, contract.MetadataDNSCapture, contract.MetadataIstioVersion,
	"APP_CONTAINERS", "CLUSTER_ID", "MESH_ID", "NETWORK", "NODE_NAME", "OWNER", "POD_PORTS"}

const (
	metadataPrefix     = "ISTIO_META_"
	metadataJSONPrefix = "ISTIO_METAJSON_"
)

// Variables returns the known variables. The value is the reason why a variable has no effect; it is empty for
// a variable with an effect.
func Variables() map[string]string {
	out := maps.Clone(without)
	for _, v := range variables {
		out[v.name] = ""
	}
	for _, field := range metadataRead {
		out[metadataPrefix+field] = ""
	}
	for _, name := range []string{"ISTIO_BOOTSTRAP_OVERRIDE", "OUTRIDER_ANNOTATIONS", "OUTRIDER_STATE_DIR", "OUTRIDER_STATUS_PORT", "OUTRIDER_TERMINATION_LOG"} {
		out[name] = ""
	}
	return out
}

func (r *reader) variables() {
	for _, v := range variables {
		r.apply("variable "+v.name, r.env[v.name], v.set)
	}
	r.bootstrapOverride()
	for _, name := range slices.Sorted(maps.Keys(r.env)) {
		value := r.env[name]
		if why, ok := without[name]; ok && value != "" {
			r.note("variable %s has no effect: %s", name, why)
		}
		r.nodeMetadata(name, value)
	}
	r.unknownVariables()
}

// mostUnknown is the maximum number of variables for which notes are computed. Comparing a misspelt name with
// all known names takes 50 µs, and a proxyMetadata can contain 30,000 names.
const mostUnknown = 50

// unknownVariables adds notes for variables of proxyMetadata that nothing here reads.
func (r *reader) unknownVariables() {
	known := Variables()
	names := slices.Sorted(maps.Keys(known))
	found := 0
	for _, name := range slices.Sorted(maps.Keys(r.metadata)) {
		field := strings.TrimPrefix(strings.TrimPrefix(name, metadataJSONPrefix), metadataPrefix)
		if _, ok := known[name]; ok || slices.Contains(metadataRead, field) {
			continue
		}
		if found++; found > mostUnknown {
			r.note("more than %d variables of %s are not known", mostUnknown, proxyMetadata)
			return
		}
		meant := didYouMean(name, names)
		if field != name {
			r.note("variable %s is in the node's metadata alone: outriderd does not read it%s", name, meant)
		} else {
			r.note("variable %s is not known%s; it is set in the container, and has no other effect here", name, meant)
		}
	}
}

// nodeMetadata puts ISTIO_META_X and ISTIO_METAJSON_X into the node, as Istio does.
func (r *reader) nodeMetadata(name, value string) {
	if key, ok := strings.CutPrefix(name, metadataJSONPrefix); ok && key != "" {
		var v any
		if err := json.Unmarshal([]byte(value), &v); err != nil {
			r.refuse("variable "+name, value, "JSON")
			return
		}
		put(&r.out.Pod.Metadata, key, v)
	} else if key, ok := strings.CutPrefix(name, metadataPrefix); ok && key != "" {
		put(&r.out.Pod.Metadata, key, any(value))
	}
}

func (r *reader) bootstrapOverride() {
	name := r.env["ISTIO_BOOTSTRAP_OVERRIDE"]
	if name == "" {
		return
	}
	data, ok := r.file(name)
	if !ok {
		r.refuse("variable ISTIO_BOOTSTRAP_OVERRIDE", name, "a file that can be read")
		return
	}
	extra, err := jsonOf(data)
	if err != nil {
		r.refuse("variable ISTIO_BOOTSTRAP_OVERRIDE: "+name, err.Error(), "an object of Envoy's bootstrap, as JSON or YAML")
		return
	}
	r.out.Envoy.Extra = extra
}

// dnsAddress takes the port of DNS_PROXY_ADDR. The addresses are always loopback.
func dnsAddress(c *Config, s string) error {
	host, digits, ok := strings.Cut(s, ":")
	n, err := strconv.ParseUint(digits, 10, 16)
	if !ok || err != nil || n == 0 || host != "localhost" && host != "127.0.0.1" {
		return errors.New("a port of the loopback address, for example localhost:15053")
	}
	c.Ports.DNS = uint16(n)
	return nil
}
