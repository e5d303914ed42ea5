package inject

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"sigs.k8s.io/yaml"

	"outrider.dev/internal/agent/config"
	"outrider.dev/internal/contract"
)

// A Mesh has the fields of Istio's MeshConfig that injection reads.
type Mesh struct {
	DefaultConfig         map[string]any `json:"defaultConfig"` // a ProxyConfig
	TrustDomain           string         `json:"trustDomain"`
	EnablePrometheusMerge *bool          `json:"enablePrometheusMerge"`
	InboundTrafficPolicy  struct {
		Mode string `json:"mode"`
	} `json:"inboundTrafficPolicy"`

	Notes []string `json:"-"` // fields without effect, a sentence each
}

// controlPlanes are the other fields of MeshConfig (istio.io/api mesh/v1alpha1), which the
// control plane reads.
var controlPlanes = strings.Fields(`accessLogEncoding accessLogFile accessLogFormat ca caCertificates certificates
	configSources connectTimeout defaultDestinationRuleExportTo defaultHttpRetryPolicy defaultProviders defaultServiceExportTo
	defaultVirtualServiceExportTo disableEnvoyListenerLog discoverySelectors dnsRefreshRate enableAutoMtls
	enableEnvoyAccessLogService enableTracing extensionProviders h2UpgradePolicy hboneIdleTimeout inboundClusterStatName
	ingressClass ingressControllerMode ingressSelector ingressService localityLbSetting meshMTLS outboundClusterStatName
	outboundTrafficPolicy pathNormalization protocolDetectionTimeout proxyHttpPort proxyInboundListenPort proxyListenPort
	rootNamespace serviceScopeConfigs serviceSettings tcpKeepalive tlsDefaults trustDomainAliases verifyCertificateAtClient`)

// ParseMesh reads a MeshConfig, YAML or JSON. It is an error if no agent could use it.
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

// check lets the agent's own reader check the defaultConfig.
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
	text, err := agentFields(Overlay(map[string]any{"discoveryAddress": Options{}.controlPlane()}, m.DefaultConfig))
	if err != nil {
		return nil, err
	}
	notes, err := readByAgent([]string{"PROXY_CONFIG=" + text}, "")
	if err != nil {
		return nil, fmt.Errorf("defaultConfig: the agent could not use it: %w", err)
	}
	return notes, nil
}

// agentFields is a ProxyConfig for the agent, as JSON.
func agentFields(fields map[string]any) (string, error) {
	delete(fields, "holdApplicationUntilProxyStarts") // for injection alone
	text, err := json.Marshal(fields)
	return string(text), err
}

// readByAgent lets the agent read its variables, and a pod's annotation unless it is empty.
// It returns the agent's notes.
func readByAgent(environ []string, annotation string) ([]string, error) {
	c, err := config.Read(config.Inputs{
		Environ: append([]string{"POD_NAME=a", "POD_NAMESPACE=b", "SERVICE_ACCOUNT=c", "INSTANCE_IP=192.0.2.1"}, environ...),
		ReadFile: func(name string) ([]byte, error) {
			if annotation == "" || name != config.Default().Annotations {
				return nil, fs.ErrNotExist
			}
			return []byte(contract.ProxyConfig + "=" + strconv.Quote(annotation) + "\n"), nil
		},
	})
	if err != nil {
		return nil, err
	}
	return c.Notes, nil
}

// A proxyConfig has the fields of a ProxyConfig that injection itself reads; the agent reads all.
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

// Overlay returns base with the fields of over, which win; objects are merged.
func Overlay(base, over map[string]any) map[string]any {
	out := maps.Clone(base)
	if out == nil {
		out = map[string]any{}
	}
	for k, v := range over {
		below, isMap := out[k].(map[string]any)
		above, both := v.(map[string]any)
		if isMap && both {
			v = Overlay(below, above)
		}
		out[k] = v
	}
	return out
}
