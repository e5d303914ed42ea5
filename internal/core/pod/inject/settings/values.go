package settings

import (
	"fmt"
	"strconv"
	"strings"

	"helm.sh/helm/v3/pkg/strvals"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/yaml"

	"outrider.dev/internal/base/manifest"
)

// Values holds the values of Istio's charts that injection reads, under their names in the charts. The zero
// value means the defaults.
type Values struct {
	Global struct {
		Hub              string   `json:"hub"`
		Tag              any      `json:"tag"`
		ImagePullPolicy  string   `json:"imagePullPolicy"`
		ImagePullSecrets []string `json:"imagePullSecrets"`
		Network          string   `json:"network"`
		MeshID           string   `json:"meshID"`
		CAAddress        string   `json:"caAddress"`
		NativeNftables   bool     `json:"nativeNftables"`
		MultiCluster     struct {
			ClusterName string `json:"clusterName"`
		} `json:"multiCluster"`
		Proxy     ProxyValues `json:"proxy"`
		ProxyInit struct {
			Image string `json:"image"`
		} `json:"proxy_init"`
	} `json:"global"`
	Injector struct {
		RewriteAppHTTPProbe       *bool                  `json:"rewriteAppHTTPProbe"`
		NeverInjectSelector       []metav1.LabelSelector `json:"neverInjectSelector"`
		AlwaysInjectSelector      []metav1.LabelSelector `json:"alwaysInjectSelector"`
		EnableNamespacesByDefault bool                   `json:"enableNamespacesByDefault"`
		InjectedAnnotations       map[string]string      `json:"injectedAnnotations"`

		// Init has the meaning of the annotation outrider.dev/init, for pods without it. Istio's charts do not
		// have this value.
		Init string `json:"init"`

		// AllowedProxyImages lists the images, repositories and registries from which a pod's author may choose
		// for the injected containers. By default any image is allowed, as in Istio, whose charts do not have
		// this value.
		AllowedProxyImages []string `json:"allowedProxyImages"`
	} `json:"sidecarInjectorWebhook"`
	Pilot struct {
		Env map[string]any `json:"env"`
	} `json:"pilot"`
	Env        map[string]any  `json:"env"` // in the istiod chart, where Pilot's values are at the top level
	MeshConfig map[string]any  `json:"meshConfig"`
	Revision   string          `json:"revision"`
	Telemetry  TelemetryValues `json:"telemetry"`
}

// TelemetryValues are Istio's switches for request metrics. If an outer switch is false, the inner ones have no
// effect.
type TelemetryValues struct {
	Enabled *bool `json:"enabled"`
	V2      struct {
		Enabled    *bool `json:"enabled"`
		Prometheus struct {
			Enabled *bool `json:"enabled"`
		} `json:"prometheus"`
	} `json:"v2"`
}

func (t TelemetryValues) metrics(otherwise bool) bool {
	for _, outer := range []*bool{t.Enabled, t.V2.Enabled} {
		if outer != nil && !*outer {
			return false
		}
	}
	if own := t.V2.Prometheus.Enabled; own != nil {
		return *own
	}
	return otherwise
}

// ProxyValues holds the values below global.proxy.
type ProxyValues struct {
	Image                string `json:"image"`
	AutoInject           string `json:"autoInject"`
	Hold                 *bool  `json:"holdApplicationUntilProxyStarts"`
	ClusterDomain        string `json:"clusterDomain"`
	IncludeIPRanges      Text   `json:"includeIPRanges"`
	ExcludeIPRanges      Text   `json:"excludeIPRanges"`
	IncludeInboundPorts  Text   `json:"includeInboundPorts"`
	ExcludeInboundPorts  Text   `json:"excludeInboundPorts"`
	IncludeOutboundPorts Text   `json:"includeOutboundPorts"`
	ExcludeOutboundPorts Text   `json:"excludeOutboundPorts"`
	ExcludeInterfaces    Text   `json:"excludeInterfaces"`
	LogLevel             string `json:"logLevel"`
	ComponentLogLevel    string `json:"componentLogLevel"`
	StatusPort           *int32 `json:"statusPort"`

	ReadinessInitialDelaySeconds *int32 `json:"readinessInitialDelaySeconds"`
	ReadinessPeriodSeconds       *int32 `json:"readinessPeriodSeconds"`
	ReadinessFailureThreshold    *int32 `json:"readinessFailureThreshold"`
	StartupProbe                 struct {
		FailureThreshold int32 `json:"failureThreshold"`
	} `json:"startupProbe"`

	Resources      Resources              `json:"resources"`
	Lifecycle      *corev1.Lifecycle      `json:"lifecycle"`
	SeccompProfile *corev1.SeccompProfile `json:"seccompProfile"`
}

// A Text is a string whose value may be written without quotes in YAML: 80 or "80", true or "true".
type Text string

// UnmarshalJSON accepts a string, a number or a boolean. Null means the default, as for every value.
func (t *Text) UnmarshalJSON(b []byte) error {
	s := string(b)
	if s == "null" {
		return nil
	}
	if unquoted, err := strconv.Unquote(s); err == nil {
		s = unquoted
	} else if strings.ContainsAny(s, "{}[]") {
		return fmt.Errorf("%s is no text: write a list as \"80,443\"", s)
	}
	*t = Text(s)
	return nil
}

const builtIn = "what is injected is built in; use an own container named outrider-proxy, or the annotations"

// ParseValues reads values in YAML or JSON. The warnings name the values that have no effect.
func ParseValues(data []byte) (Values, []string, error) {
	var v Values
	text, err := manifest.StrictJSON(data)
	var all map[string]any
	if err == nil {
		err = json.Unmarshal(text, &all)
	}
	if err != nil {
		return v, nil, fmt.Errorf("want values of Istio's charts: %w", err)
	}
	warnings, err := valueTree.check(all, "value", "")
	if err != nil {
		return v, nil, err
	}
	if err := json.Unmarshal(text, &v); err != nil {
		return v, nil, fmt.Errorf("want values of Istio's charts: %w", err)
	}
	for _, s := range []struct {
		name string
		list []metav1.LabelSelector
	}{{"neverInjectSelector", v.Injector.NeverInjectSelector}, {"alwaysInjectSelector", v.Injector.AlwaysInjectSelector}} {
		for i := range s.list {
			if _, err := metav1.LabelSelectorAsSelector(&s.list[i]); err != nil {
				return v, nil, fmt.Errorf("sidecarInjectorWebhook.%s[%d]: %w", s.name, i, err)
			}
		}
	}
	if err := v.check(); err != nil {
		return v, nil, err
	}
	warnings = append(warnings, misspelt(text, &Values{})...)
	if len(v.MeshConfig) > 0 {
		text, err := yaml.Marshal(v.MeshConfig)
		if err != nil {
			return v, nil, err
		}
		m, err := parseMeshAs(text, "value", "meshConfig.")
		if err != nil {
			return v, nil, fmt.Errorf("meshConfig: %w", err)
		}
		warnings = append(warnings, m.Notes...)
	}
	return v, warnings, nil
}

// SetValue sets one value of a setting such as global.proxy.logLevel=info, in the form of Helm's --set: [0] is an
// element of a list, \. is a dot in a name, and {a,b} is a list. Unlike in Helm, a comma elsewhere need not be
// escaped, since there is only one setting. A leading "values.", as in an operator's file, is ignored.
func SetValue(values map[string]any, setting string) error {
	path, value, _ := strings.Cut(strings.TrimPrefix(setting, "values."), "=")
	if !strings.HasPrefix(value, "{") {
		value = strings.NewReplacer(`\,`, `\,`, ",", `\,`).Replace(value)
	}
	err := strvals.ParseInto(path+"="+value, values)
	if err != nil || path == "" || path[0] == '[' || !strings.Contains(setting, "=") {
		return fmt.Errorf("%q: want PATH=VALUE, as in global.proxy.holdApplicationUntilProxyStarts=true%s", setting, causeOf(err))
	}
	return nil
}

// decode reads YAML or JSON. Names are case-sensitive.
func decode(data []byte, v any) error {
	text, err := manifest.StrictJSON(data) // a repeated name is an error
	if err != nil {
		return err
	}
	return json.Unmarshal(text, v)
}

// MeshOver returns m, overridden by the meshConfig in the values.
func (v Values) MeshOver(m Mesh) (Mesh, error) {
	if len(v.MeshConfig) == 0 {
		return m, nil
	}
	data, err := yaml.Marshal(v.MeshConfig)
	if err != nil {
		return m, err
	}
	over, err := parseMesh(data)
	if err != nil {
		return m, err
	}
	m.DefaultConfig = Overlay(m.DefaultConfig, over.DefaultConfig)
	if over.TrustDomain != "" {
		m.TrustDomain = over.TrustDomain
	}
	if over.EnablePrometheusMerge != nil {
		m.EnablePrometheusMerge = over.EnablePrometheusMerge
	}
	if over.MeshMTLS.MinProtocolVersion != "" {
		m.MeshMTLS = over.MeshMTLS
	}
	m.Mesh = over.Over(m.Mesh)
	return m, nil
}

// Tag returns the images' tag as a string; it may be a number in the values.
func (v Values) Tag() string {
	if v.Global.Tag == nil {
		return ""
	}
	return fmt.Sprint(v.Global.Tag)
}

// Native returns the control plane's setting ENABLE_NATIVE_SIDECARS: auto, true or false.
func (v Values) Native() string {
	for _, env := range []map[string]any{v.Env, v.Pilot.Env} {
		if s := fmt.Sprint(env["ENABLE_NATIVE_SIDECARS"]); s == "true" || s == "false" {
			return s
		}
	}
	return "auto"
}
