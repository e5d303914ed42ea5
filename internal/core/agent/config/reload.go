package config

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/base/manifest/limits"
)

// A Change is one changed setting in the annotations of a running pod, with its effect on the proxy.
type Change struct {
	Setting  string // the name that the user knows
	From, To string
	Refused  string // why a running proxy cannot take the change; empty: it can
	Later    string // the part that waits for Envoy's next start; empty: none
}

// Reasons why a running proxy does not take a change:
const (
	created   = "it counts when a pod is made: make a new pod"
	overruled = "a flag or a variable sets something else, and wins: make a new pod"
	remains   = "a flag or a variable that injection wrote still sets it: write the value that you want"
)

// Names of settings that Envoy takes through its admin interface:
const (
	envoyLevel      = "log level"
	envoyComponents = "component log levels"
)

// OfEnvoysLog reports whether the setting is a log level of Envoy.
func (c Change) OfEnvoysLog() bool { return c.Setting == envoyLevel || c.Setting == envoyComponents }

// A live setting is one that a running agent takes from the pod's annotations: operators change it
// while they look for a problem, or before they stop a pod. Every other setting is part of Envoy's
// bootstrap, of a certificate, or of the pod itself.
type live struct {
	name       string
	annotation string // if empty, name is a field of proxy.istio.io/config
	set        setter
	show       func(Config) string
	take       func(to *Config, from Config)
	later      string
}

var lives = []live{
	{envoyLevel, annotationFlags["proxyLogLevel"], level,
		func(c Config) string { return c.Envoy.Level }, func(to *Config, from Config) { to.Envoy.Level = from.Envoy.Level }, ""},
	{envoyComponents, annotationFlags["proxyComponentLogLevel"], components,
		func(c Config) string { return fmt.Sprint(c.Envoy.Components) }, func(to *Config, from Config) { to.Envoy.Components = from.Envoy.Components }, ""},
	{"the agent's log level", annotationFlags["log-level"], agentLogLevel,
		func(c Config) string { return c.LogLevel.String() }, func(to *Config, from Config) { to.LogLevel = from.LogLevel }, ""},
	{"terminationDrainDuration", "", proxySettings["terminationDrainDuration"],
		func(c Config) string { return c.Stop.Drain.String() }, func(to *Config, from Config) { to.Stop.Drain = from.Stop.Drain }, ""},
	{"drainDuration", "", drainTime,
		func(c Config) string { return c.Envoy.DrainTime.String() }, func(to *Config, from Config) { to.Envoy.DrainTime = from.Envoy.DrainTime },
		"listeners that the control plane replaces drain as before until Envoy starts again"},
}

// written returns the setting's value in the annotations.
func (l live) written(annotations, fields map[string]string) string {
	if l.annotation != "" {
		return annotations[l.annotation]
	}
	return fields[l.name]
}

// Taken returns the running configuration (runs) with the live settings of the new one (to).
func Taken(runs, to Config) Config {
	for _, l := range lives {
		l.take(&runs, to)
	}
	return runs
}

// Changes compares the running configuration (runs) with the one that the annotations yield now (read). It
// returns the settings that differ, and the annotations that have changed since the agent's start (before) but
// have no effect. Live settings come first; the rest is sorted by name.
func Changes(runs, read Config, before, now map[string]string) []Change {
	was, is := fields(before[contract.ProxyConfig]), fields(now[contract.ProxyConfig])
	var out []Change
	for _, l := range lives {
		from, to, setting := l.written(before, was), l.written(now, is), l.name
		delete(was, l.name)
		delete(is, l.name)
		if l.annotation != "" {
			setting = "annotation " + l.annotation
		}
		if old, value := l.show(runs), l.show(read); old != value {
			out = append(out, Change{Setting: l.name, From: concise(old), To: concise(value), Later: l.later})
		} else if why := l.without(read, to); from != to && why != "" {
			out = append(out, Change{Setting: setting, From: from, To: to, Refused: why})
		}
	}
	return append(append(out, differences(is, was, "", fieldRefusal)...),
		differences(ofMesh(now), ofMesh(before), "annotation ", func(string) string { return created })...)
}

// without returns the reason why a new value in the annotations has no effect. It returns "" if the value has
// an effect or is the current value.
func (l live) without(to Config, value string) string {
	if value == "" {
		if l.show(to) == l.show(Default()) {
			return ""
		}
		return remains
	}
	probe := to
	probe.Envoy.Components = nil
	if l.set(&probe, value) != nil || l.show(probe) != l.show(to) {
		return overruled
	}
	return ""
}

// fieldRefusal returns the reason why a running agent does not take a field of proxy.istio.io/config.
func fieldRefusal(name string) string {
	why, known := elsewhere[name]
	_, setting := proxySettings[name]
	switch {
	case why != "":
		return "it has no effect: " + why
	case !known && !setting && name != proxyMetadata && name != statsMatcher:
		return "no such setting is known; it has no effect"
	}
	return created
}

// differences returns the keys whose values differ between two maps, sorted by name.
func differences(is, was map[string]string, prefix string, refusal func(name string) string) []Change {
	all := maps.Clone(was)
	maps.Copy(all, is)
	var out []Change
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if was[name] != is[name] {
			c := Change{Setting: prefix + name, From: concise(was[name]), To: concise(is[name]), Refused: refusal(name)}
			if name == proxyMetadata { // its values may be secrets
				c.From, c.To = "", ""
			}
			out = append(out, c)
		}
	}
	return out
}

// concise cuts a long value.
func concise(s string) string {
	const most = 200
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "..."
}

// writtenLater are annotations that controllers write on running pods.
var writtenLater = []string{"ambient.istio.io/", contract.Status, contract.Overrides, contract.IstioStatus}

// ofMesh returns the annotations of a mesh that have an effect only when a pod is created.
func ofMesh(all map[string]string) map[string]string {
	out := map[string]string{}
	for name, value := range all {
		domain, _, _ := strings.Cut(name, "/")
		mesh := domain == "istio.io" || strings.HasSuffix(domain, ".istio.io") || domain+"/" == contract.Prefix
		if mesh && name != contract.ProxyConfig && !slices.ContainsFunc(lives, func(l live) bool { return l.annotation == name }) &&
			!slices.ContainsFunc(writtenLater, func(p string) bool { return strings.HasPrefix(name, p) }) {
			out[name] = value
		}
	}
	return out
}

// fields returns the fields of a ProxyConfig, each as its text.
func fields(text string) map[string]string {
	out := map[string]string{}
	var nodes map[string]yaml.Node
	if limits.Annotation.Decode([]byte(text), &nodes) == nil {
		for name, node := range nodes {
			out[name] = written(&node)
		}
	}
	return out
}
