package inject

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"reflect"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"outrider.dev/internal/agent/config"
)

// A Mesh is what injection reads of Istio's MeshConfig. The rest is the control plane's.
type Mesh struct {
	DefaultConfig         map[string]any `json:"defaultConfig"` // a ProxyConfig
	TrustDomain           string         `json:"trustDomain"`
	EnablePrometheusMerge *bool          `json:"enablePrometheusMerge"`
	InboundTrafficPolicy  struct {
		Mode string `json:"mode"`
	} `json:"inboundTrafficPolicy"`

	Notes []string `json:"-"` // what has no effect, one sentence each
}

// controlPlanes are the other fields of MeshConfig (istio.io/api mesh/v1alpha1), which
// injection has no business with.
var controlPlanes = strings.Fields(`accessLogEncoding accessLogFile accessLogFormat ca caCertificates certificates
	configSources connectTimeout defaultDestinationRuleExportTo defaultHttpRetryPolicy defaultProviders defaultServiceExportTo
	defaultVirtualServiceExportTo disableEnvoyListenerLog discoverySelectors dnsRefreshRate enableAutoMtls
	enableEnvoyAccessLogService enableTracing extensionProviders h2UpgradePolicy hboneIdleTimeout inboundClusterStatName
	ingressClass ingressControllerMode ingressSelector ingressService localityLbSetting meshMTLS outboundClusterStatName
	outboundTrafficPolicy pathNormalization protocolDetectionTimeout proxyHttpPort proxyInboundListenPort proxyListenPort
	rootNamespace serviceScopeConfigs serviceSettings tcpKeepalive tlsDefaults trustDomainAliases verifyCertificateAtClient`)

// ParseMesh reads a MeshConfig, YAML or JSON, and refuses what the agent of no pod could use.
func ParseMesh(data []byte) (Mesh, error) {
	m, err := parseMesh(data)
	if err != nil {
		return Mesh{}, err
	}
	var all map[string]any
	if err := decode(data, &all); err != nil {
		return Mesh{}, err
	}
	known := append(fieldNames(reflect.TypeFor[Mesh]()), controlPlanes...)
	for _, name := range sortedKeys(all) {
		if !slices.Contains(known, name) {
			m.Notes = append(m.Notes, fmt.Sprintf("%s is no field of MeshConfig%s; it has no effect", name, didYouMean(name, known)))
		}
	}
	notes, err := m.check()
	m.Notes = append(m.Notes, notes...)
	return m, err
}

func parseMesh(data []byte) (Mesh, error) {
	var m Mesh
	if err := decode(data, &m); err != nil {
		return Mesh{}, fmt.Errorf("want Istio's MeshConfig: %w", err)
	}
	if _, err := proxyConfigOf(m.DefaultConfig); err != nil {
		return Mesh{}, fmt.Errorf("defaultConfig: %w", err)
	}
	return m, nil
}

// check asks the agent's own reader.
func (m Mesh) check() ([]string, error) {
	c, err := proxyConfigOf(m.DefaultConfig)
	if err == nil && c.InterceptionMode != "" {
		if err = oneOf(redirect, tproxy, noMode)(c.InterceptionMode); err != nil {
			err = fmt.Errorf("interceptionMode: %q: want %w", c.InterceptionMode, err)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("defaultConfig: %w", err)
	}
	fields := overlaid(map[string]any{"discoveryAddress": Options{}.controlPlane()}, m.DefaultConfig)
	delete(fields, "holdApplicationUntilProxyStarts") // injection's own
	text, err := json.Marshal(fields)
	if err != nil {
		return nil, err
	}
	read, err := config.Read(config.Inputs{Environ: append(slices.Clone(anyPod), "PROXY_CONFIG="+string(text)),
		ReadFile: func(string) ([]byte, error) { return nil, fs.ErrNotExist }})
	if err != nil {
		return nil, fmt.Errorf("defaultConfig: the agent could not use it: %w", err)
	}
	return read.Notes, nil
}

// anyPod is what every agent gets.
var anyPod = []string{"POD_NAME=a", "POD_NAMESPACE=b", "SERVICE_ACCOUNT=c", "INSTANCE_IP=192.0.2.1"}

// A proxyConfig is what injection itself reads of a ProxyConfig; the agent reads it all.
type proxyConfig struct {
	Hold             *bool             `json:"holdApplicationUntilProxyStarts"`
	StatusPort       int32             `json:"statusPort"`
	InterceptionMode string            `json:"interceptionMode"`
	ProxyMetadata    map[string]string `json:"proxyMetadata"`
	Image            struct {
		ImageType string `json:"imageType"`
	} `json:"image"`
}

func proxyConfigOf(fields map[string]any) (proxyConfig, error) {
	var c proxyConfig
	if len(fields) == 0 {
		return c, nil
	}
	text, err := json.Marshal(fields)
	if err == nil {
		err = json.Unmarshal(text, &c)
	}
	if err != nil {
		return c, fmt.Errorf("want Istio's ProxyConfig: %w", err)
	}
	return c, nil
}

func parseProxyConfig(text string) (map[string]any, proxyConfig, error) {
	var fields map[string]any
	if err := yaml.Unmarshal([]byte(text), &fields); err != nil {
		return nil, proxyConfig{}, fmt.Errorf("want Istio's ProxyConfig, as YAML or JSON: %w", err)
	}
	c, err := proxyConfigOf(fields)
	return fields, c, err
}

// Overlay is base with the fields of over, which win, as values of several files are.
func Overlay(base, over map[string]any) map[string]any { return overlaid(base, over) }

// overlaid is base with the fields of over, which win; metadata are merged by name.
func overlaid(base, over map[string]any) map[string]any {
	out := maps.Clone(base)
	if out == nil {
		out = map[string]any{}
	}
	for k, v := range over {
		below, isMap := out[k].(map[string]any)
		above, both := v.(map[string]any)
		if isMap && both {
			v = overlaid(below, above)
		}
		out[k] = v
	}
	return out
}
