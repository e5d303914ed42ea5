package inject

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"helm.sh/helm/v3/pkg/strvals"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/yaml"

	"outrider.dev/internal/contract"
)

// Values have the values of Istio's charts that injection reads, by their names. The zero
// value is the default.
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

		// AllowedProxyImages are the images, repositories and registries that a pod's author
		// may choose for the containers of injection. It is ours; default: any, as in Istio.
		AllowedProxyImages []string `json:"allowedProxyImages"`
	} `json:"sidecarInjectorWebhook"`
	Pilot struct {
		Env map[string]any `json:"env"`
		CNI struct {
			Enabled bool `json:"enabled"`
		} `json:"cni"`
	} `json:"pilot"`
	MeshConfig map[string]any `json:"meshConfig"`
	Revision   string         `json:"revision"`
}

// ProxyValues are those below global.proxy.
type ProxyValues struct {
	Image                string `json:"image"`
	AutoInject           string `json:"autoInject"`
	Hold                 *bool  `json:"holdApplicationUntilProxyStarts"`
	ClusterDomain        string `json:"clusterDomain"`
	IncludeIPRanges      text   `json:"includeIPRanges"`
	ExcludeIPRanges      text   `json:"excludeIPRanges"`
	IncludeInboundPorts  text   `json:"includeInboundPorts"`
	ExcludeInboundPorts  text   `json:"excludeInboundPorts"`
	IncludeOutboundPorts text   `json:"includeOutboundPorts"`
	ExcludeOutboundPorts text   `json:"excludeOutboundPorts"`
	ExcludeInterfaces    text   `json:"excludeInterfaces"`
	LogLevel             string `json:"logLevel"`
	ComponentLogLevel    string `json:"componentLogLevel"`
	StatusPort           *int32 `json:"statusPort"`

	ReadinessInitialDelaySeconds *int32 `json:"readinessInitialDelaySeconds"`
	ReadinessPeriodSeconds       *int32 `json:"readinessPeriodSeconds"`
	ReadinessFailureThreshold    *int32 `json:"readinessFailureThreshold"`
	StartupProbe                 struct {
		Enabled          *bool `json:"enabled"`
		FailureThreshold int32 `json:"failureThreshold"`
	} `json:"startupProbe"`

	Resources      *corev1.ResourceRequirements `json:"resources"`
	Lifecycle      *corev1.Lifecycle            `json:"lifecycle"`
	SeccompProfile *corev1.SeccompProfile       `json:"seccompProfile"`
}

// A text is a string that may be written without quotes: 80 or "80".
type text string

// UnmarshalJSON takes a string or a number.
func (t *text) UnmarshalJSON(b []byte) error {
	s := string(b)
	if unquoted, err := strconv.Unquote(s); err == nil {
		s = unquoted
	} else if strings.ContainsAny(s, "{}[]") {
		return fmt.Errorf("%s is no text: write a list as \"80,443\"", s)
	}
	*t = text(s)
	return nil
}

// valuesWithout are values of Istio's without effect in injection, and why; "": they have one
// elsewhere.
var valuesWithout = map[string]string{
	"global.proxy.privileged":                    "the proxy needs no privilege",
	"global.proxy.enableCoreDump":                "core dumps are the container runtime's",
	"global.proxy.tracer":                        "tracing is not configured by injection",
	"global.proxy.outlierLogPath":                "outlier events are not logged to a file",
	"global.proxy.includeIPv6":                   "both families are captured where the pod has both",
	"global.proxy_init.resources":                "outrider-init has the resources of the proxy, as in Istio",
	"global.proxy_init.forceApplyIptables":       "every run of the capture replaces what was there",
	"sidecarInjectorWebhook.templates":           builtIn,
	"sidecarInjectorWebhook.defaultTemplates":    builtIn,
	"sidecarInjectorWebhook.useLegacySelectors":  "the selectors are Istio's present ones",
	"sidecarInjectorWebhook.reinvocationPolicy":  "",
	"sidecarInjectorWebhook.injectionURL":        "",
	"sidecarInjectorWebhook.injectionPath":       "",
	"sidecarInjectorWebhook.failurePolicy":       "",
	"sidecarInjectorWebhook.objectSelector":      "",
	"sidecarInjectorWebhook.neverInjectSelector": "",
}

const builtIn = "what is injected is built in; use an own container named outrider-proxy, or the annotations"

// fieldNames are the names that a struct has in JSON.
func fieldNames(t reflect.Type) []string {
	var out []string
	for i := range t.NumField() {
		name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
		out = append(out, name)
	}
	return out
}

// ParseValues reads values, YAML or JSON. The warnings are about values without effect.
func ParseValues(data []byte) (Values, []string, error) {
	var v Values
	if err := decode(data, &v); err != nil {
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
	var all map[string]any
	if err := decode(data, &all); err != nil {
		return v, nil, err
	}
	warnings := v.without(all)
	if len(v.MeshConfig) > 0 {
		text, err := yaml.Marshal(v.MeshConfig)
		if err != nil {
			return v, nil, err
		}
		m, err := ParseMesh(text)
		if err != nil {
			return v, nil, fmt.Errorf("meshConfig: %w", err)
		}
		for _, n := range m.Notes {
			warnings = append(warnings, "value meshConfig: "+n)
		}
	}
	return v, warnings, nil
}

// SetValue puts one value into values, as in --set global.proxy.logLevel=info, in Helm's
// form: [0] is an element of a list, \. a dot in a name, and {a,b} a list. A comma in any
// other value needs no backslash, since there is one setting. A leading "values." is passed
// over, as an operator's file has it.
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
	text, err := yaml.YAMLToJSON(data)
	if err != nil {
		return err
	}
	return json.Unmarshal(text, v)
}

// without are the warnings about values.
func (v Values) without(all map[string]any) []string {
	var out []string
	global, _ := all["global"].(map[string]any)
	// In these parts every name is known, or warned about: the others are the control plane's.
	for _, part := range []struct {
		prefix string
		fields any
		known  []string
	}{
		{"global.proxy.", global["proxy"], fieldNames(reflect.TypeFor[ProxyValues]())},
		{"global.proxy_init.", global["proxy_init"], fieldNames(reflect.TypeOf(v.Global.ProxyInit))},
		{"sidecarInjectorWebhook.", all["sidecarInjectorWebhook"], fieldNames(reflect.TypeOf(v.Injector))},
	} {
		fields, _ := part.fields.(map[string]any)
		for _, name := range slices.Sorted(maps.Keys(fields)) {
			if slices.Contains(part.known, name) {
				continue
			}
			why, known := valuesWithout[part.prefix+name]
			switch {
			case !known:
				out = append(out, fmt.Sprintf("value %s%s is not known%s; it has no effect", part.prefix, name, didYouMean(name, part.known)))
			case why != "":
				out = append(out, fmt.Sprintf("value %s%s has no effect: %s", part.prefix, name, why))
			}
		}
	}
	if v.Global.Proxy.StartupProbe.Enabled != nil {
		out = append(out, "value global.proxy.startupProbe.enabled has no effect: annotation "+contract.NativeRelease+": probe requests a startup probe")
	}
	if v.Pilot.CNI.Enabled {
		out = append(out, "value pilot.cni.enabled has no effect: the capture is written by the pod's own init container")
	}
	return out
}

// mesh is m with the values' own meshConfig over it.
func (v Values) mesh(m Mesh) (Mesh, error) {
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
	if over.InboundTrafficPolicy.Mode != "" {
		m.InboundTrafficPolicy = over.InboundTrafficPolicy
	}
	return m, nil
}

// tag is the images' tag, which may be written without quotes.
func (v Values) tag() string {
	if v.Global.Tag == nil {
		return ""
	}
	return fmt.Sprint(v.Global.Tag)
}

// native is Istio's switch of the control plane: auto, true or false.
func (v Values) native() string {
	s := fmt.Sprint(v.Pilot.Env["ENABLE_NATIVE_SIDECARS"])
	if s == "true" || s == "false" {
		return s
	}
	return "auto"
}
