package report

import (
	"fmt"
	"slices"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/core/capture"
	"outrider.dev/internal/core/pod/podspec"
	"outrider.dev/internal/ops/kubeclient"
)

// A Capture describes the connections of the pod that are captured, by the flags in the pod. Ports and ranges have
// the form of the flags; "*" means all.
type Capture struct {
	By                    string `json:"by"`   // name of the container, or "the node"
	Mode                  string `json:"mode"` // REDIRECT, TPROXY, NONE, or "park only" if the proxy of another mesh captures
	InboundPorts          string `json:"inboundPorts"`
	ExcludeInboundPorts   string `json:"excludeInboundPorts"`
	OutboundRanges        string `json:"outboundRanges"`
	ExcludeOutboundRanges string `json:"excludeOutboundRanges"`
	OutboundPorts         string `json:"outboundPorts"` // ports that are captured for all addresses
	ExcludeOutboundPorts  string `json:"excludeOutboundPorts"`
	Park                  string `json:"park"`
	DNS                   bool   `json:"dns"`
}

// captureOf parses the capture flags in the pod. It returns nil if there are none, because nothing is captured.
func captureOf(pod *corev1.Pod) (*Capture, error) {
	c, args := captureArgs(pod)
	if c == nil {
		return nil, nil
	}
	intent := capture.Defaults()
	fs := pflag.NewFlagSet(c.Name, pflag.ContinueOnError)
	fs.ParseErrorsAllowlist.UnknownFlags = true // such as --copy and --groups
	fs.Usage = func() {}
	number := func(string) (uint32, error) { return 0, nil } // users and groups are not shown
	env := map[string]string{}
	for _, e := range c.Env {
		env[e.Name] = e.Value
	}
	flags := capture.Flags(&intent, number, number)
	for _, f := range flags {
		fs.VarP(f, f.Name, f.Short, "")
		if f.IsBoolFlag() {
			fs.Lookup(f.Name).NoOptDefVal = "true"
		}
	}
	if err := fs.Parse(args); err != nil {
		return nil, fmt.Errorf("the flags of %s cannot be read: %w", c.Name, err)
	}
	for _, f := range flags {
		for _, name := range f.Env {
			if value, ok := env[name]; ok && value != "" && !fs.Changed(f.Name) {
				if err := f.Set(value); err != nil {
					return nil, fmt.Errorf("variable %s of %s: %w", name, c.Name, err)
				}
				break
			}
		}
	}
	is := func(name string) string { return fs.Lookup(name).Value.String() }
	out := &Capture{
		By: c.Name, Mode: is("istio-inbound-interception-mode"), Park: is("park"), DNS: intent.DNS != capture.DNSOff,
		InboundPorts: is("istio-inbound-ports"), ExcludeInboundPorts: is("istio-local-exclude-ports"),
		OutboundRanges: is("istio-service-cidr"), ExcludeOutboundRanges: is("istio-service-exclude-cidr"),
		OutboundPorts: is("istio-outbound-ports"), ExcludeOutboundPorts: is("istio-local-outbound-ports-exclude"),
	}
	if intent.ParkOnly {
		out.Mode = "park only"
	}
	return out, nil
}

// captureArgs returns the capture flags, and the container that has them: outrider-init, or the proxy if it sets up
// the capture itself. If the node captures, the container is a placeholder with the name "the node". It is nil if
// nothing is captured.
func captureArgs(pod *corev1.Pod) (*corev1.Container, []string) {
	if work, ok := podspec.NodeWork(pod); ok && len(work.Capture) > 0 {
		return &corev1.Container{Name: "the node"}, work.Capture
	}
	if c := kubeclient.Container(pod, contract.InitContainer); c != nil && len(c.Args) > 0 && c.Args[0] == "init" {
		return c, c.Args[1:]
	}
	c := kubeclient.Proxy(pod)
	if c == nil || !podspec.Staged(c) {
		return nil, nil
	}
	args := c.Args[1:]
	if end := slices.Index(args, "--"); end >= 0 {
		args = args[:end]
	}
	return c, args
}
