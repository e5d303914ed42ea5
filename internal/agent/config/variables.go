package config

import (
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A known variable.
type known struct {
	name string
	set  setter
}

// variables is what each variable sets. Ours begin with OUTRIDER_, the others are
// Istio's.
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

	{"SECRET_TTL", lifetime},
	{"SECRET_GRACE_PERIOD_RATIO", share(func(c *Config) *float64 { return &c.Certificate.RenewAt })},
	{"SECRET_GRACE_PERIOD_RATIO_JITTER", share(func(c *Config) *float64 { return &c.Certificate.Jitter })},
	{"WORKLOAD_RSA_KEY_SIZE", keySize},
	{"ECC_SIGNATURE_ALGORITHM", keyAlgorithm}, // wins, as in Istio
	{"ECC_CURVE", curve},
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

	{"ISTIO_KUBE_APP_PROBERS", object(func(c *Config) *json.RawMessage { return &c.AppProbes })},
	{"ISTIO_PROMETHEUS_ANNOTATIONS", object(func(c *Config) *json.RawMessage { return &c.AppMetrics })},
	{"OUTRIDER_STATES", text(func(c *Config) *string { return &c.States })},
	{"OUTRIDER_OWN", text(func(c *Config) *string { return &c.Own })},
	{"OUTRIDER_ORDERED_STOP", boolean(func(c *Config) *bool { return &c.Stop.Ordered })},
	{"ISTIO_META_APP_CONTAINERS", list(func(c *Config) *[]string { return &c.Stop.Apps })},
	{"OUTRIDER_PUSH", push},
	{"OUTRIDER_STANDBY", standby},
	{"OUTRIDER_PREWARM", list(func(c *Config) *[]string { return &c.Prewarm })},
	{"OUTRIDER_ENVOY", text(func(c *Config) *string { return &c.Envoy.Path })},
}

// without are variables of Istio's agent that have no effect here, and why.
var without = map[string]string{
	"CA_PROVIDER":                      "there is one way to ask for a certificate: Istio's own service, which others offer too",
	"PILOT_CERT_PROVIDER":              "whom to trust is in the mounted root certificate",
	"ENVOY_SECURE_METRICS_PORT":        "metrics over mutual TLS are not served yet",
	"ENVOY_SECURE_MERGED_METRICS_PORT": "metrics over mutual TLS are not served yet",
	"CREDENTIAL_FETCHER_TYPE":          "the token is read from a file",
	"XDS_AUTH_PROVIDER":                "Envoy's own stream is authenticated by its certificate",
	"PROXY_CONFIG_XDS_AGENT":           "configuration of the proxy comes with the pod",
	"DISABLE_ENVOY":                    "an agent without a proxy is not supported",
	"ISTIO_ENVOY_ENABLE_CORE_DUMP":     "core dumps are the container runtime's",
	"GRPC_XDS_BOOTSTRAP":               "proxyless gRPC asks the control plane itself",
	"DNS_FORWARD_PARALLEL":             "requests to servers are sent one after another",
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
}

// nodeMetadata puts ISTIO_META_X and ISTIO_METAJSON_X into the node, as Istio does.
func (r *reader) nodeMetadata(name, value string) {
	if key, ok := strings.CutPrefix(name, "ISTIO_METAJSON_"); ok && key != "" {
		var v any
		if err := json.Unmarshal([]byte(value), &v); err != nil {
			r.refuse("variable "+name, value, "JSON")
			return
		}
		put(&r.out.Pod.Metadata, key, v)
	} else if key, ok := strings.CutPrefix(name, "ISTIO_META_"); ok && key != "" {
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

func keyAlgorithm(c *Config, s string) error {
	switch s {
	case "ECDSA":
		c.Certificate.RSA = 0
	case "RSA":
		c.Certificate.RSA = 2048
	default:
		return errors.New("ECDSA or RSA")
	}
	return nil
}

// keySize has one: larger keys cost more than ECDSA gives for nothing.
func keySize(c *Config, s string) error {
	if s != "2048" {
		return errors.New("2048, the one size of an RSA key that is made here")
	}
	c.Certificate.RSA = 2048
	return nil
}

func lifetime(c *Config, s string) error {
	d, err := time.ParseDuration(s)
	if err != nil || d < time.Second {
		return errors.New("a time of 1s or more, for example 24h")
	}
	c.Certificate.Lifetime = d
	return nil
}

func curve(c *Config, s string) error {
	if s != "P256" && s != "P384" {
		return errors.New("P256 or P384")
	}
	c.Certificate.Curve = s
	return nil
}

func push(c *Config, s string) error {
	switch s {
	case "full":
		c.Full = true
	case "on-demand":
		c.Full = false
	default:
		return errors.New("on-demand or full")
	}
	return nil
}

func standby(c *Config, s string) error {
	if s != "on" && s != "off" {
		return errors.New("on or off")
	}
	c.NoStandby = s == "off"
	return nil
}

// dnsAddress takes the port of DNS_PROXY_ADDR; we answer on the loopback addresses.
func dnsAddress(c *Config, s string) error {
	host, digits, ok := strings.Cut(s, ":")
	n, err := strconv.ParseUint(digits, 10, 16)
	if !ok || err != nil || n == 0 || host != "localhost" && host != "127.0.0.1" {
		return errors.New("a port of the loopback address, for example localhost:15053")
	}
	c.Ports.DNS = uint16(n)
	return nil
}
