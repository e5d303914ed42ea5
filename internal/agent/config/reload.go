package config

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"outrider.dev/internal/contract"
)

// A Change is something that differs from what the agent runs with.
type Change struct {
	Setting  string // as the user knows it
	From, To string
	Refused  string // why a running proxy cannot take it; empty: it can
	Later    string // what of it waits for Envoy's next start, if anything does
}

// Why a running proxy cannot take something.
const (
	variable  = "a container gets its variables when it is made: make a new pod"
	injected  = "it is acted on when a pod is made: make a new pod"
	bootstrap = "it is in Envoy's bootstrap, which is read at its start: make a new pod"
	ports     = "the pod's rules and probes know the old ports: make a new pod"
	fixed     = "the kubelet's probes and what they ask are fixed when a pod is made: make a new pod"
	secret    = "the certificate is asked for with it from the start: make a new pod"
)

// Names of settings that Envoy takes by its admin interface.
const (
	envoyLevel      = "log level"
	envoyComponents = "component log levels"
)

// OfEnvoysLog says whether it is a log level of Envoy's.
func (c Change) OfEnvoysLog() bool { return c.Setting == envoyLevel || c.Setting == envoyComponents }

// A setting is what can differ when the configuration is read again.
type setting struct {
	name    string
	field   string // of Config, with all that is in it
	refused string
	later   string
}

// settings are all of a Config, those first that a running proxy takes. What Envoy can
// take while it runs was measured on 1.40: log levels (POST /logging); a drain of any length,
// by two calls (package envoy, TestADrainOfAnyLength); of its statistics fewer, by a filter.
var settings = []setting{
	{envoyLevel, "Envoy.Level", "", ""},
	{envoyComponents, "Envoy.Components", "", ""},
	{"the agent's log level", "LogLevel", "", ""},
	{"terminationDrainDuration", "Stop.Drain", "", ""},
	{"drainDuration", "Envoy.DrainTime", "", "listeners that the control plane replaces drain as before until Envoy starts again"},
	{"proxyStatsMatcher", "Envoy.Stats", "", "what is left out is not shown on the status port any more; what is new is counted when Envoy starts again"},

	{"concurrency", "Envoy.Concurrency", "Envoy makes its worker threads at its start: make a new pod", ""},
	{"ISTIO_CPU_LIMIT", "Envoy.CPUs", variable, ""},
	{"extra bootstrap", "Envoy.Extra", bootstrap, ""},
	{"serviceCluster", "Envoy.Cluster", bootstrap, ""},
	{"binaryPath", "Envoy.Path", "the program runs already: make a new pod", ""},
	{"configPath", "Work", "Envoy reads and the agent writes there from the start: make a new pod", ""},
	{"discoveryAddress", "ControlPlane.Address", bootstrap, ""},
	{"controlPlaneAuthPolicy", "ControlPlane.Plaintext", bootstrap, ""},
	{"address of the certificate authority", "ControlPlane.CA", secret, ""},
	{"ISTIOD_SAN", "ControlPlane.Names", bootstrap, ""},
	{"file of roots", "ControlPlane.Roots", secret, ""},
	{"file of the token", "ControlPlane.Token", secret, ""},
	{"certificate", "Certificate", secret, ""},
	{"ports", "Ports", ports, ""},
	{"MINIMUM_DRAIN_DURATION", "Stop.Minimum", variable, ""},
	{"EXIT_ON_ZERO_ACTIVE_CONNECTIONS", "Stop.OnZero", variable, ""},
	{"grace period", "Stop.Grace", "it is the pod's, which the kubelet has read already: make a new pod", ""},
	{"order of the stop", "Stop.Ordered", variable, ""},
	{"containers of the application", "Stop.Apps", variable, ""},
	{"trustDomain and who the pod is", "Pod", "certificate and bootstrap name it: make a new pod", ""},
	{"volume of states", "States", variable, ""},
	{"own directory of states", "Own", variable, ""},
	{"standby", "NoStandby", variable, ""},
	{"DNS", "DNS", variable, ""},
	{"push", "Full", bootstrap, ""},
	{"prewarm", "Prewarm", bootstrap, ""},
	{"probes of the application", "AppProbes", fixed, ""},
	{"metrics of the application", "AppMetrics", variable, ""},
	{"file of annotations", "Annotations", variable, ""},
}

// at is what a Config has in a field.
func at(c *Config, field string) reflect.Value {
	v := reflect.ValueOf(c).Elem()
	for name := range strings.SplitSeq(field, ".") {
		v = v.FieldByName(name)
	}
	return v
}

// Changes returns how to differs from what runs, in a fixed order.
func Changes(runs, to Config) []Change {
	var out []Change
	for _, s := range settings {
		was, is := at(&runs, s.field), at(&to, s.field)
		if derived(s, runs, to) || reflect.DeepEqual(was.Interface(), is.Interface()) {
			continue
		}
		out = append(out, Change{s.name, show(was), show(is), s.refused, s.later})
	}
	for _, c := range differences(runs.Variables, to.Variables, func(name string) (string, string) {
		return metadataPrefix + name, variable
	}) {
		out = append(out, c.discreet())
	}
	return append(out, differences(runs.Elsewhere, to.Elsewhere, func(name string) (string, string) {
		why, known := elsewhere[name]
		switch {
		case !known:
			return name, "no such setting is known; it has no effect"
		case why == "":
			return name, injected
		}
		return name, "it has no effect: " + why
	})...)
}

const metadataPrefix = "proxyMetadata: "

// discreet hides the value of a variable that is not ours: it may be a secret.
func (c Change) discreet() Change {
	name, ok := strings.CutPrefix(c.Setting, metadataPrefix)
	if !ok || strings.HasPrefix(name, "ISTIO_META") || slices.ContainsFunc(variables, func(v known) bool { return v.name == name }) {
		return c
	}
	for _, text := range []*string{&c.From, &c.To} {
		if *text != "" {
			*text = "a value that is not shown"
		}
	}
	return c
}

// derived says whether a setting follows from another, and so changes with it.
func derived(s setting, runs, to Config) bool {
	return s.field == "ControlPlane.CA" && runs.ControlPlane.CA == runs.ControlPlane.Address && to.ControlPlane.CA == to.ControlPlane.Address
}

// Taken returns runs with what of to a running proxy takes.
func Taken(runs, to Config) Config {
	for _, s := range settings {
		if s.refused == "" {
			at(&runs, s.field).Set(at(&to, s.field))
		}
	}
	return runs
}

// differences are those of two maps.
func differences(was, is map[string]string, of func(name string) (setting, refused string)) []Change {
	all := maps.Clone(was)
	if all == nil {
		all = map[string]string{}
	}
	maps.Copy(all, is)
	var out []Change
	for _, name := range slices.Sorted(maps.Keys(all)) {
		old, had := was[name]
		now, has := is[name]
		if had == has && old == now {
			continue
		}
		setting, refused := of(name)
		out = append(out, Change{Setting: setting, From: concise(old), To: concise(now), Refused: refused})
	}
	return out
}

func show(v reflect.Value) string {
	if raw, ok := v.Interface().(interface{ MarshalJSON() ([]byte, error) }); ok && v.Kind() == reflect.Slice {
		text, err := raw.MarshalJSON()
		if err == nil {
			return concise(string(text))
		}
	}
	return concise(fmt.Sprintf("%+v", v.Interface()))
}

// concise cuts what is too long to be read.
func concise(s string) string {
	const most = 200
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "..."
}

// followed are the annotations that Read reads, and where the injector put them too.
var followed = func() map[string]string {
	out := map[string]string{contract.ProxyConfig: "PROXY_CONFIG"}
	for flag, annotation := range annotationFlags {
		out[annotation] = "--" + flag
	}
	return out
}()

// others are annotations that a pod is given while it runs, by those who made it.
var others = []string{"ambient.istio.io/", "outrider.dev/status", "outrider.dev/overrides", "sidecar.istio.io/status"}

// Unread returns the changes of a pod's annotations that made no difference in what was
// read: of those that only count when a pod is made; of settings of which a flag or a
// variable says something else; and of those that were taken away, but are in a flag or in
// PROXY_CONFIG still, since the injector put them there.
func (in Inputs) Unread(read Config, before, now map[string]string) []Change {
	meshs := func(all map[string]string) map[string]string {
		out := map[string]string{}
		for name, value := range all {
			domain, _, _ := strings.Cut(name, "/")
			ours := domain == "istio.io" || strings.HasSuffix(domain, ".istio.io") || domain == "outrider.dev"
			if _, read := followed[name]; ours && !read && !slices.ContainsFunc(others, func(p string) bool { return strings.HasPrefix(name, p) }) {
				out[name] = value
			}
		}
		return out
	}
	out := differences(meshs(before), meshs(now), func(name string) (string, string) {
		why := injected
		if strings.Contains(name, "readiness.status.") || strings.HasSuffix(name, "/rewriteAppHTTPProbers") {
			why = fixed
		}
		return "annotation " + name, why
	})
	for _, flag := range slices.Sorted(maps.Keys(annotationFlags)) {
		name := annotationFlags[flag]
		if was := before[name]; was != "" && now[name] == "" && in.Flags[flag] == was {
			out = append(out, Change{Setting: "annotation " + name, From: concise(was),
				Refused: "the argument --" + flag + " has said the same since the pod was made: write the level that is wanted"})
		}
	}
	var variable string
	for _, pair := range in.Environ {
		if value, ok := strings.CutPrefix(pair, "PROXY_CONFIG="); ok {
			variable = value
		}
	}
	stays, was, is := fields(variable), fields(before[contract.ProxyConfig]), fields(now[contract.ProxyConfig])
	for name, value := range is {
		if was[name] != value && overruled(read, name, value) {
			out = append(out, Change{Setting: name, From: concise(was[name]), To: concise(value),
				Refused: "a flag or a variable says something else, and wins: make a new pod"})
		}
	}
	for name, was := range was {
		if _, still := is[name]; !still && stays[name] != "" {
			out = append(out, Change{Setting: name, From: concise(was),
				Refused: "the variable PROXY_CONFIG has said the same since the pod was made: write the value that is wanted"}.discreet())
		}
	}
	return bySetting(out)
}

// bySetting sorts by the names; changes of one setting keep their order.
func bySetting(all []Change) []Change {
	of := map[string][]Change{}
	for _, c := range all {
		of[c.Setting] = append(of[c.Setting], c)
	}
	out := all[:0:0]
	for _, name := range slices.Sorted(maps.Keys(of)) {
		out = append(out, of[name]...)
	}
	return out
}

// overruled says whether a setting has a value, and another was read.
func overruled(read Config, name, value string) bool {
	set, ok := proxySettings[name]
	if !ok || value == "" {
		return false
	}
	probe := read
	if set(&probe, value) != nil {
		return false
	}
	probe.Envoy.Concurrency = probe.Envoy.threads()
	return !reflect.DeepEqual(probe, read)
}

// fields are those of a ProxyConfig, as they were written, and each variable of proxyMetadata.
func fields(text string) map[string]string {
	var nodes map[string]yaml.Node
	if yaml.Unmarshal([]byte(text), &nodes) != nil {
		return nil
	}
	out := map[string]string{}
	for name, node := range nodes {
		var pairs map[string]string
		if name == "proxyMetadata" && node.Decode(&pairs) == nil {
			for name, value := range pairs {
				out[metadataPrefix+name] = value
			}
			continue
		}
		out[name] = written(&node)
	}
	return out
}
