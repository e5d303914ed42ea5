package config

import (
	"outrider.dev/internal/base/contract"
)

// A Flag is a command-line flag of "outrider-agent proxy".
type Flag struct {
	Name  string
	Usage string
	// Without is the reason why a flag of Istio has no effect here; it is empty for a flag with an effect.
	Without string
	set     setter
}

// Flags are the known flags, with the names that Istio's pilot-agent gives them.
var Flags = []Flag{
	{Name: "domain", Usage: "DNS domain of the pod's short names", set: text(func(c *Config) *string { return &c.Pod.Domain })},
	{Name: "meshConfig", Usage: "file with the mesh's configuration (default " + contract.MeshConfigFile + ")", set: func(*Config, string) error { return nil }},
	{Name: "serviceCluster", Usage: "name of the service that the proxy belongs to", set: text(func(c *Config) *string { return &c.Envoy.Cluster })},
	{Name: "proxyLogLevel", Usage: "Envoy's log level: trace, debug, info, warning, error, critical, off; also misc:error", set: level},
	{Name: "proxyComponentLogLevel", Usage: "log levels of Envoy's components, as misc:error,upstream:debug", set: components},
	{Name: "log-level", Usage: "the agent's own log: debug, info, warn or error (default info)", set: agentLogLevel},
	{Name: "concurrency", Usage: "Envoy's worker threads (default: the CPU limit, else 2)", set: concurrencyFlag},
	{Name: "envoy", Usage: "path of the Envoy binary (default envoy from PATH)", set: text(func(c *Config) *string { return &c.Envoy.Path })},
	{Name: "control-plane", Usage: "address of the control plane, host:port", set: text(func(c *Config) *string { return &c.ControlPlane.Address })},
	{Name: "token", Usage: "file with the token for certificates, read for each", set: text(func(c *Config) *string { return &c.ControlPlane.Token })},
	{Name: "roots", Usage: "file with the certificates to trust", set: text(func(c *Config) *string { return &c.ControlPlane.Roots })},
	{Name: "work-dir", Usage: "directory for Envoy's bootstrap and certificates", set: text(func(c *Config) *string { return &c.Work })},
	{Name: "grace", Usage: "the pod's termination grace period (default 30s)", set: grace},

	{Name: "stsPort", Usage: "of Istio", Without: "there is no token exchange"},
	{Name: "tokenManagerPlugin", Usage: "of Istio", Without: "there is no token exchange"},
	{Name: "templateFile", Usage: "of Istio", Without: "the bootstrap is built in; use ISTIO_BOOTSTRAP_OVERRIDE to add to it"},
	{Name: "outlierLogPath", Usage: "of Istio", Without: "outlier events are not logged to a file"},
	{Name: "profiling", Usage: "of Istio", Without: "/debug/goroutines is always on the loopback address, and there are no other profiles"},
}

// annotationFlags maps flags to the annotations from which injection writes them. The annotation overrules its
// flag: it has the same value, or a newer one that was set on the running pod.
var annotationFlags = map[string]string{
	"proxyLogLevel":          contract.IstioAnnotation + "logLevel",
	"proxyComponentLogLevel": contract.IstioAnnotation + "componentLogLevel",
	"log-level":              contract.IstioAnnotation + "agentLogLevel",
}

func (r *reader) flags() {
	for _, f := range Flags {
		value, given := r.in.Flags[f.Name]
		newer, annotation := "", annotationFlags[f.Name]
		if annotation != "" {
			newer = r.annotations[annotation]
		}
		switch {
		case newer != "" && newer != value:
			r.apply("annotation "+annotation, newer, f.set)
		case !given:
		case f.set != nil:
			r.apply("--"+f.Name, value, f.set)
		case value != "" && value != "0":
			r.note("--%s has no effect: %s", f.Name, f.Without)
		}
	}
}

// concurrencyFlag sets the number of threads. As in Istio, 0 leaves it to the other settings.
func concurrencyFlag(c *Config, s string) error {
	if s == "0" {
		return nil
	}
	return concurrency(c, s)
}
