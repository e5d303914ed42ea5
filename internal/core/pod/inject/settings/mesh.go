package settings

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/base/manifest"
	"outrider.dev/internal/base/telemetry"
	"outrider.dev/internal/core/agent/config"
	"outrider.dev/internal/core/mesh"
)

// Values of interceptionMode: the ways in which connections reach the proxy.
const (
	Redirect = "REDIRECT"
	TProxy   = "TPROXY"
	NoMode   = "NONE"
)

// A Mesh holds the fields of Istio's MeshConfig that injection reads.
type Mesh struct {
	DefaultConfig         map[string]any `json:"defaultConfig"` // a ProxyConfig
	TrustDomain           string         `json:"trustDomain"`
	EnablePrometheusMerge *bool          `json:"enablePrometheusMerge"`
	MeshMTLS              struct {
		MinProtocolVersion string `json:"minProtocolVersion"`
	} `json:"meshMTLS"`
	telemetry.Mesh

	Notes []string `json:"-"` // one sentence for each field without effect
}

// ParseMesh reads a MeshConfig in YAML or JSON. It fails if the agent could not use the result.
func ParseMesh(data []byte) (Mesh, error) { return parseMeshAs(data, "field", "") }

// parseMeshAs is [ParseMesh] with other words in the notes: they call a field by the word in what ("field" or
// "value"), and each path begins with parent.
func parseMeshAs(data []byte, what, parent string) (Mesh, error) {
	m, err := parseMesh(data)
	if err != nil {
		return Mesh{}, err
	}
	var all map[string]any
	if err := decode(data, &all); err != nil {
		return Mesh{}, err
	}
	if m.Notes, err = meshTree.check(all, what, parent); err != nil {
		return m, err
	}
	notes, err := m.check()
	for _, n := range notes {
		m.Notes = append(m.Notes, strings.Replace(n, "variable PROXY_CONFIG: ", what+" "+parent+"defaultConfig.", 1))
	}
	return m, err
}

func parseMesh(data []byte) (Mesh, error) {
	var m Mesh
	if err := decode(data, &m); err != nil {
		return Mesh{}, fmt.Errorf("want Istio's MeshConfig: %w", err)
	}
	if _, err := ProxyConfigOf(m.DefaultConfig); err != nil {
		return Mesh{}, fmt.Errorf("defaultConfig: %w", err)
	}
	if _, err := m.minTLS(); err != nil {
		return Mesh{}, err
	}
	return m, nil
}

// minTLS returns the oldest version of TLS that servers accept between proxies.
func (m Mesh) minTLS() (mesh.TLSVersion, error) {
	switch v := m.MeshMTLS.MinProtocolVersion; v {
	case "", "TLS_AUTO", string(mesh.TLS12):
		return mesh.TLS12, nil
	case string(mesh.TLS13):
		return mesh.TLS13, nil
	default:
		return "", fmt.Errorf("meshMTLS.minProtocolVersion: %q: want %s, the default, or %s", v, mesh.TLS12, mesh.TLS13)
	}
}

// check checks the defaultConfig with the agent's own parser, and returns the agent's notes.
func (m Mesh) check() ([]string, error) {
	c, err := ProxyConfigOf(m.DefaultConfig)
	if err == nil && c.InterceptionMode != "" {
		if err = Modes(c.InterceptionMode); err != nil {
			err = fmt.Errorf("interceptionMode: %q: want %w", c.InterceptionMode, err)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("defaultConfig: %w", err)
	}
	text, err := AgentFields(Overlay(map[string]any{"discoveryAddress": contract.ControlPlaneAddress}, m.DefaultConfig))
	if err != nil {
		return nil, err
	}
	notes, err := ReadByAgent([]string{"PROXY_CONFIG=" + text}, "")
	if err != nil {
		return nil, fmt.Errorf("defaultConfig: the agent could not use it: %w", err)
	}
	if m.Defaults.Tracing == nil || m.Providers != nil { // otherwise the providers may be in another file: see Telemetry
		_, err = m.Settings(c.Tracing.Sampling)
	}
	return notes, err
}

// TelemetryIn returns the settings for access logs, traces and request metrics in a mesh with these values.
// The control plane configures them.
func (v Values) TelemetryIn(m Mesh) (telemetry.Settings, error) {
	m, err := v.MeshOver(m)
	if err != nil {
		return telemetry.Settings{}, err
	}
	c, err := ProxyConfigOf(m.DefaultConfig)
	if err != nil {
		return telemetry.Settings{}, fmt.Errorf("defaultConfig: %w", err)
	}
	s, err := m.Settings(c.Tracing.Sampling)
	s.Metrics = v.Telemetry.metrics(s.Metrics)
	return s, err
}

// MinTLSIn returns the oldest version of TLS that servers accept between proxies, in a mesh with these values. The
// control plane configures it.
func (v Values) MinTLSIn(m Mesh) (mesh.TLSVersion, error) {
	m, err := v.MeshOver(m)
	if err != nil {
		return "", err
	}
	return m.minTLS()
}

// TrustDomainIn returns the trust domain in the identities of the pods of a mesh with these values, and the
// surface that sets it. It is empty if it is not set, or if an authority other than the control plane signs the
// certificates.
func (v Values) TrustDomainIn(mesh Mesh) (domain string, source Surface, err error) {
	m, err := v.MeshOver(mesh)
	if err != nil || m.DefaultConfig["discoveryAddress"] != nil || v.Global.CAAddress != "" {
		return "", "", err
	}
	if source = InMesh; m.TrustDomain != mesh.TrustDomain {
		source = InValues
	}
	return m.TrustDomain, source, nil
}

// AgentFields returns the fields of a ProxyConfig as JSON, without those that only injection reads. It modifies
// the given map.
func AgentFields(fields map[string]any) (string, error) {
	delete(fields, "holdApplicationUntilProxyStarts") // only injection reads it
	text, err := json.Marshal(fields)
	return string(text), err
}

// ReadByAgent passes environment variables, and a pod's ProxyConfig annotation unless it is empty, to the agent's
// own parser. It returns the agent's notes, or its error. Variables that only the container has are placeholders.
func ReadByAgent(environ []string, annotation string) ([]string, error) {
	c, err := config.Read(config.Inputs{
		Environ: append([]string{"POD_NAME=a", "POD_NAMESPACE=b", "SERVICE_ACCOUNT=c", "INSTANCE_IP=192.0.2.1", "ISTIOD_SAN=d"}, environ...),
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

// A ProxyConfig holds the fields of a ProxyConfig that injection itself reads; the agent reads all fields.
type ProxyConfig struct {
	Hold             *bool           `json:"holdApplicationUntilProxyStarts"`
	StatusPort       int32           `json:"statusPort"`
	InterceptionMode string          `json:"interceptionMode"`
	ProxyMetadata    map[string]Text `json:"proxyMetadata"`
	MeshID           string          `json:"meshId"`
	Tracing          struct {
		Sampling *float64 `json:"sampling"`
	} `json:"tracing"`
	Image struct {
		ImageType string `json:"imageType"`
	} `json:"image"`
}

func ProxyConfigOf(fields map[string]any) (ProxyConfig, error) {
	var c ProxyConfig
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
	for _, name := range slices.Sorted(maps.Keys(c.ProxyMetadata)) {
		if len(validation.IsEnvVarName(name)) > 0 {
			return c, fmt.Errorf("proxyMetadata: %q: want the name of an environment variable, of letters, digits, '_', '-' and '.'", name)
		}
	}
	return c, nil
}

func ParseProxyConfig(text string) (map[string]any, ProxyConfig, error) {
	var fields map[string]any
	if err := manifest.DecodeAnnotation(text, &fields); err != nil {
		return nil, ProxyConfig{}, fmt.Errorf("want Istio's ProxyConfig, as YAML or JSON: %w", err)
	}
	c, err := ProxyConfigOf(fields)
	return fields, c, err
}

// Overlay returns the first object, overridden by the fields of the second. A field that is an object in both is
// merged.
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
