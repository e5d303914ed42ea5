package inject

import (
	"encoding/json"
	"fmt"
	"maps"

	"sigs.k8s.io/yaml"
)

// A Mesh is what injection reads of Istio's MeshConfig. The rest is the control plane's.
type Mesh struct {
	DefaultConfig         map[string]any `json:"defaultConfig"` // a ProxyConfig
	TrustDomain           string         `json:"trustDomain"`
	EnablePrometheusMerge *bool          `json:"enablePrometheusMerge"`
	InboundTrafficPolicy  struct {
		Mode string `json:"mode"`
	} `json:"inboundTrafficPolicy"`
}

// ParseMesh reads a MeshConfig, YAML or JSON.
func ParseMesh(data []byte) (Mesh, error) {
	var m Mesh
	if err := yaml.Unmarshal(data, &m); err != nil {
		return Mesh{}, fmt.Errorf("want Istio's MeshConfig: %w", err)
	}
	_, err := proxyConfigOf(m.DefaultConfig)
	if err != nil {
		return Mesh{}, fmt.Errorf("defaultConfig: %w", err)
	}
	return m, nil
}

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
