package config

import (
	"fmt"
	"maps"
	"reflect"
)

// annotationFlags are annotations that the injector turned into flags. Changed in a running
// pod they say more than the flag, which is as old as the pod.
var annotationFlags = map[string]string{
	"sidecar.istio.io/logLevel":          "proxyLogLevel",
	"sidecar.istio.io/componentLogLevel": "proxyComponentLogLevel",
}

// Follow returns the inputs of a pod whose annotations were changed while it ran. One that
// was taken away counts as unchanged: what it said is in the flag still.
func (in Inputs) Follow(before, now map[string]string) Inputs {
	in.Flags = maps.Clone(in.Flags)
	if in.Flags == nil {
		in.Flags = map[string]string{}
	}
	for annotation, flag := range annotationFlags {
		if value, ok := now[annotation]; ok && value != before[annotation] {
			in.Flags[flag] = value
		}
	}
	return in
}

// A Change is a setting that differs from what the agent runs with.
type Change struct {
	Setting  string
	From, To string
	Refused  string // why a running proxy cannot take it; empty: it can
}

// settings are what can change in a running pod. What is missing comes from variables and
// flags alone, which cannot.
var settings = []struct {
	name    string
	get     func(Config) any
	refused string
}{
	{"log level", func(c Config) any { return c.Envoy.Level }, ""},
	{"component log levels", func(c Config) any { return c.Envoy.Components }, ""},
	{"terminationDrainDuration", func(c Config) any { return c.Stop.Drain }, ""},
	{"drainDuration", func(c Config) any { return c.Envoy.DrainTime }, "Envoy takes it at its start only; terminationDrainDuration can be changed"},
	{"concurrency", func(c Config) any { return c.Envoy.Concurrency }, "Envoy makes its worker threads at its start: restart the pod"},
	{"proxyStatsMatcher", func(c Config) any { return c.Envoy.Stats }, "Envoy decides at its start which statistics it keeps: restart the pod"},
	{"extra bootstrap", func(c Config) any { return string(c.Envoy.Extra) }, "a bootstrap is read at Envoy's start: restart the pod"},
	{"discoveryAddress", func(c Config) any { return c.ControlPlane.Address }, "the control plane's address is in the bootstrap: restart the pod"},
	{"ports", func(c Config) any { return c.Ports }, "the pod's rules and probes know the old ports: restart the pod"},
}

// Changes returns how to differs from what runs, in a fixed order.
func Changes(runs, to Config) []Change {
	var out []Change
	for _, s := range settings {
		was, is := s.get(runs), s.get(to)
		if !reflect.DeepEqual(was, is) {
			out = append(out, Change{s.name, fmt.Sprint(was), fmt.Sprint(is), s.refused})
		}
	}
	return out
}
