package inject

import (
	"cmp"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/core/agent/config"
	"outrider.dev/internal/core/mesh"
	"outrider.dev/internal/core/pod/inject/settings"
)

// used contains, for each key that has an effect, a value in YAML that changes the injected pod. The values for
// annotations are in set1, and the values for a ProxyConfig in usedByAgent.
var used = map[settings.Surface]map[string]string{
	settings.InValues: {
		"global.hub": "h.example/a", "global.tag": "9", "global.imagePullPolicy": "Always", "global.imagePullSecrets": "[s]", "global.proxy.image": "other",
		"global.proxy_init.image": "other", "global.network": "net", "global.meshID": "m", "global.multiCluster.clusterName": "c", "global.caAddress": "a:1",
		"global.nativeNftables": "true", "global.proxy.autoInject": "disabled", "global.proxy.holdApplicationUntilProxyStarts": "false", "global.proxy.clusterDomain": "d",
		"global.proxy.includeIPRanges": "10.0.0.0/8", "global.proxy.excludeIPRanges": "10.0.0.0/8", "global.proxy.includeInboundPorts": "80",
		"global.proxy.excludeInboundPorts": "80", "global.proxy.includeOutboundPorts": "80", "global.proxy.excludeOutboundPorts": "80", "global.proxy.excludeInterfaces": "eth1",
		"global.proxy.logLevel": "debug", "global.proxy.componentLogLevel": "upstream:debug", "global.proxy.statusPort": "15555", "global.proxy.readinessInitialDelaySeconds": "3",
		"global.proxy.readinessPeriodSeconds": "3", "global.proxy.readinessFailureThreshold": "7", "global.proxy.startupProbe.failureThreshold": "7",
		"global.proxy.resources": "{limits: {cpu: 3}}", "global.proxy.lifecycle": "{preStop: {exec: {command: [/a]}}}", "global.proxy.seccompProfile": "{type: Unconfined}",
		"sidecarInjectorWebhook.neverInjectSelector": "[{matchLabels: {app: shop}}]", "sidecarInjectorWebhook.alwaysInjectSelector": "[{matchLabels: {app: shop}}]",
		"sidecarInjectorWebhook.enableNamespacesByDefault": "true", "revision": "other", "sidecarInjectorWebhook.rewriteAppHTTPProbe": "false",
		"sidecarInjectorWebhook.injectedAnnotations": "{a: b}", "sidecarInjectorWebhook.allowedProxyImages": "[a.example]", "sidecarInjectorWebhook.init": "node",
		"pilot.env.ENABLE_NATIVE_SIDECARS": "true", "env.ENABLE_NATIVE_SIDECARS": `"true"`, "meshConfig": "{trustDomain: td}",
		"telemetry.enabled": "false", "telemetry.v2.enabled": "false", "telemetry.v2.prometheus.enabled": "true",
	},
	settings.InMesh: {"defaultConfig": "{concurrency: 3}", "trustDomain": "td", "enablePrometheusMerge": "false",
		"accessLogFile": "/dev/stdout", "accessLogEncoding": "JSON", "accessLogFormat": `"%PROTOCOL%"`, "defaultProviders.metrics": "[prometheus]",
		"defaultProviders.tracing": "[other]", "extensionProviders": "[{name: otel, opentelemetry: {service: changed.example, port: 4317}}]",
		"meshMTLS.minProtocolVersion": "TLSV1_3",
	},
	settings.InLabels: {
		contract.InjectLabel: `"false"`, contract.OwnInjectLabel: `"false"`, contract.RevisionLabel: "other", contract.NamespaceLabel: "disabled", contract.OwnNamespaceLabel: "disabled",
		contract.TLSModeLabel: "disabled", settings.CanonicalName: "n", settings.CanonicalRevision: "r", settings.NetworkLabel: "net",
	},
}

// usedByAgent contains, for each field of a ProxyConfig that has an effect, a value that changes what the agent
// reads or what is injected.
var usedByAgent = map[string]string{
	"discoveryAddress": "a:1", "concurrency": "3", "drainDuration": "9s", "terminationDrainDuration": "9s", "statusPort": "15555", "proxyAdminPort": "15556",
	"serviceCluster": "c", "binaryPath": "/e", "configPath": "/w", "controlPlaneAuthPolicy": "NONE", "proxyMetadata": "{MINIMUM_DRAIN_DURATION: 9s}", "proxyStatsMatcher": "{inclusionPrefixes: [a]}",
	"holdApplicationUntilProxyStarts": "false", "interceptionMode": "TPROXY", "image": "{imageType: debug}", "meshId": "m",
	"tracing": "{sampling: 3}",
}

// usedVariables contains, for each variable of the agent that does not accept an arbitrary text, a value that
// changes what the agent reads.
var usedVariables = map[string]string{
	"INSTANCE_IP": "192.0.2.2", "INSTANCE_IPS": "192.0.2.3", "CA_ADDR": "a:1", "SECRET_TTL": "9h", "SECRET_GRACE_PERIOD_RATIO": "0.3", "SECRET_GRACE_PERIOD_RATIO_JITTER": "0.02",
	"WORKLOAD_RSA_KEY_SIZE": "2048", "ECC_SIGNATURE_ALGORITHM": "RSA", "ECC_CURVE": "P384", "FILE_MOUNTED_CERTS": "true", "ENVOY_STATUS_PORT": "15555", "ENVOY_PROMETHEUS_PORT": "15556",
	"ENVOY_PORT": "15557", "INBOUND_CAPTURE_PORT": "15558", "DNS_PROXY_ADDR": "localhost:15559", "ISTIO_META_DNS_CAPTURE": "true", "ISTIO_CPU_LIMIT": "3", "MINIMUM_DRAIN_DURATION": "9s",
	"EXIT_ON_ZERO_ACTIVE_CONNECTIONS": "true", "OUTRIDER_GRACE": "99s", "HOST_IP": "192.0.2.9", contract.ProbeKey: "0123456789abcdef", "OUTRIDER_PROBE_FROM": "192.0.2.0/24",
	"OUTRIDER_METRICS_FROM": "192.0.2.0/24", "ISTIO_KUBE_APP_PROBERS": "{}", "ISTIO_PROMETHEUS_ANNOTATIONS": "{}", "OUTRIDER_ORDERED_STOP": "true", "OUTRIDER_STANDBY": "off",
	"OUTRIDER_RENEW_AFTER": "9h", "OUTRIDER_CAPTURE_PROOF": "9s", "OUTRIDER_FAMILIES": "ipv4",
}

const keyPod = `
metadata: {name: shop, labels: {app: shop}, annotations: {%s}}
spec: {containers: [{name: app, image: a, command: [/app], readinessProbe: {httpGet: {port: 80}}}]}`

// object returns an object in YAML that contains one field, at the given path.
func object(path, value string) string {
	var v any
	if err := yaml.Unmarshal([]byte(value), &v); err != nil {
		panic(err)
	}
	names := strings.Split(path, ".")
	for i := len(names) - 1; i >= 0; i-- {
		v = map[string]any{names[i]: v}
	}
	text, err := yaml.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(text)
}

// outcome returns as text all results of an injection that a setting can affect: in namespaces that do and do not
// request injection, on Kubernetes 1.34 and 1.28.
func outcome(t *testing.T, pod string, namespace map[string]string, o Options) string {
	t.Helper()
	var out strings.Builder
	for _, request := range []bool{false, true} {
		ns := Namespace{Name: "shop", Labels: map[string]string{}}
		if request {
			ns.Labels[contract.NamespaceLabel] = "enabled"
		}
		for name, value := range namespace {
			ns.Labels[name] = value
		}
		for _, kube := range []bool{false, true} {
			if o.Kubernetes = 34; kube {
				o.Kubernetes = 28
			}
			r, err := Pod(podOf(t, pod), ns, o)
			delete(r.Pod.Annotations, contract.Overrides)
			text, _ := yaml.Marshal(r.Pod)
			fmt.Fprintln(&out, string(text), r.Reason, r.Notes, r.Warnings, err)
		}
	}
	return out.String()
}

// The table is correct for each key: the key changes what is injected or what the agent reads, or a warning or an
// error names it.
func TestEveryKeyIsUsedRefusedOrWarnedOf(t *testing.T) {
	pod := fmt.Sprintf(keyPod, "")
	plain := outcome(t, pod, nil, Options{})
	for _, k := range settings.Keys() {
		t.Run(string(k.Surface)+" "+strings.ReplaceAll(k.Name, "/", "_"), func(t *testing.T) {
			if given := slices.DeleteFunc([]string{k.Means, k.Chart, k.Plane, k.Without, k.Refused}, func(s string) bool { return s == "" }); len(given) != 1 {
				t.Fatalf("the table says %q: want one text", given)
			}
			var warnings []string
			var err error
			var got, base string
			name := strings.Replace(k.Name, "*", "SOME", 1)
			value := cmp.Or(used[k.Surface][k.Name], "some")
			switch k.Surface {
			case settings.InAnnotations:
				if k.Means != "" {
					return // TestEveryAnnotationHasAnEffectOrAWarning tests these
				}
				var ignored []settings.Ignored
				ignored, err = settings.CheckAnnotations(map[string]string{name: value})
				for _, i := range ignored {
					warnings = append(warnings, i.Warning)
				}
			case settings.InLabels:
				value = strings.Trim(value, `"`)
				inPod := strings.Replace(pod, "app: shop}", "app: shop, '"+name+"': '"+value+"'}", 1)
				base = outcome(t, strings.Replace(pod, "app: shop}", "app: shop, 'other': x}", 1), nil, Options{})
				if got = outcome(t, inPod, nil, Options{}); k.Name == contract.NamespaceLabel || k.Name == contract.OwnNamespaceLabel {
					got = outcome(t, pod, map[string]string{name: value}, Options{})
				}
				// The label itself in the result is not an effect. If a label has no effect, there must be a
				// warning.
				for _, line := range []string{"    " + name + ": " + value + "\n", "    " + name + ": \"" + value + "\"\n", "    other: x\n"} {
					got, base = strings.ReplaceAll(got, line, ""), strings.ReplaceAll(base, line, "")
				}
				if k.Without != "" {
					warnings = []string{got}
				}
			case settings.InProxyConfig:
				warnings, got, base = ofProxyConfig(t, k.Name)
			case settings.InVariables:
				if slices.Contains([]string{"OUTRIDER_STATE_DIR", "OUTRIDER_STATUS_PORT", "OUTRIDER_TERMINATION_LOG"}, k.Name) {
					return // the commands in cmd/outrider-agent read this variable
				}
				value = cmp.Or(usedVariables[k.Name], "x")
				_, base = ofAgent("PROXY_CONFIG={}")
				warnings, got = ofAgent("PROXY_CONFIG={}", k.Name+"="+value)
			case settings.InMesh:
				var m settings.Mesh
				m, err = settings.ParseMesh([]byte(object(name, value)))
				warnings, got, base = m.Notes, outcome(t, pod, nil, Options{Mesh: m}), plain
			case settings.InValues:
				var v settings.Values
				v, warnings, err = settings.ParseValues([]byte(object(name, value)))
				base = plain
				switch k.Name { // for these values another pod is needed to see an effect
				case "sidecarInjectorWebhook.alwaysInjectSelector":
					v.Global.Proxy.AutoInject = "disabled"
					base = outcome(t, pod, nil, Options{Values: onlyPolicy(v)})
				case "sidecarInjectorWebhook.allowedProxyImages":
					pod := fmt.Sprintf(keyPod, settings.ImageKey+": b.example/c")
					base, got = outcome(t, pod, nil, Options{}), outcome(t, pod, nil, Options{Values: v})
				case "global.proxy.startupProbe.failureThreshold":
					pod := fmt.Sprintf(keyPod, contract.NativeSidecar+`: "true", `+contract.NativeRelease+": probe")
					base, got = outcome(t, pod, nil, Options{}), outcome(t, pod, nil, Options{Values: v})
				}
				got = cmp.Or(got, outcome(t, pod, nil, Options{Values: v}))
			}
			all := strings.Join(warnings, "\n")
			switch {
			case k.Refused != "":
				if err == nil || !strings.Contains(err.Error(), name) || !strings.Contains(err.Error(), k.Refused) {
					t.Errorf("error %v, want one with the name and %q", err, k.Refused)
				}
			case err != nil:
				t.Error(err)
			case k.Without != "":
				if !strings.Contains(all, name) || !strings.Contains(all, k.Without) {
					t.Errorf("warnings %q: want one with the name and %q", all, k.Without)
				}
			case k.Chart != "":
				if got != base || strings.Contains(all, name) {
					t.Errorf("it is of the chart, and changes what is injected or is warned of: %s", all)
				}
			case k.Plane != "":
				if got != base || strings.Contains(all, name) {
					t.Errorf("it is of the control plane, and changes what is injected or is warned of: %s", all)
				}
				if off, on := configOf(t, k, ""), configOf(t, k, value); gocmp.Equal(off, on) {
					t.Errorf("%s changes nothing", value)
				}
			case value == "some" && k.Surface != settings.InProxyConfig:
				t.Error("no value is known that shows its effect")
			case got == base:
				t.Errorf("%s changes nothing", value)
			case strings.Contains(all, name):
				t.Errorf("it is used, and warned of: %s", all)
			}
		})
	}
}

// configOf returns what the control plane configures with the key set to value, in a configuration where the key has
// an effect. If value is empty, the key is not set.
func configOf(t *testing.T, k settings.Key, value string) (c mesh.Config) {
	t.Helper()
	const provider = "{name: %s, opentelemetry: {service: %s.example, port: 4317}}"
	m, err := settings.ParseMesh([]byte("accessLogFile: /dev/stdout\nextensionProviders: [" + fmt.Sprintf(provider, "otel", "otel") + "," + fmt.Sprintf(provider, "other", "other") + "]\n" +
		"defaultProviders: {tracing: [otel]}"))
	if err != nil {
		t.Fatal(err)
	}
	switch {
	case k.Name == "accessLogFile":
		m.AccessLogFile = ""
	case strings.HasPrefix(k.Name, "telemetry.") && k.Name != "telemetry.v2.prometheus.enabled":
		m.Defaults.Metrics = []string{"prometheus"}
	}
	o := Options{Mesh: m}
	if value != "" {
		text := object(k.Name, value)
		if k.Surface == settings.InMesh {
			text = object("meshConfig."+k.Name, value)
		}
		if o.Values, _, err = settings.ParseValues([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	if c.Telemetry, err = o.Values.TelemetryIn(o.Mesh); err == nil {
		c.MinTLS, err = o.Values.MinTLSIn(o.Mesh)
	}
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// onlyPolicy returns values that contain only the policy of v.
func onlyPolicy(v settings.Values) settings.Values {
	var out settings.Values
	out.Global.Proxy.AutoInject = v.Global.Proxy.AutoInject
	return out
}

// ofAgent passes variables to the agent's parser. It returns the agent's notes and its configuration.
func ofAgent(environ ...string) (notes []string, got string) {
	c, err := config.Read(config.Inputs{Environ: append([]string{"POD_NAME=a", "POD_NAMESPACE=b", "SERVICE_ACCOUNT=c", "INSTANCE_IP=192.0.2.1"}, environ...),
		ReadFile: func(string) ([]byte, error) { return nil, os.ErrNotExist }})
	notes, c.Notes = c.Notes, nil
	return notes, fmt.Sprintf("%+v %v", c, err)
}

// ofProxyConfig returns the notes about a field, and the effects with the field (got) and without it (base): what
// the agent reads and what is injected.
func ofProxyConfig(t *testing.T, name string) (notes []string, got, base string) {
	t.Helper()
	pod := fmt.Sprintf(keyPod, "")
	_, base = ofAgent("PROXY_CONFIG={}")
	base += outcome(t, pod, nil, Options{})
	text := object(name, cmp.Or(usedByAgent[name], "some"))
	notes, got = ofAgent("PROXY_CONFIG=" + text)
	m, err := settings.ParseMesh([]byte("defaultConfig:\n  " + strings.ReplaceAll(strings.TrimSpace(text), "\n", "\n  ")))
	if err != nil {
		t.Fatal(err)
	}
	got += outcome(t, pod, nil, Options{Mesh: m})
	// A change of the variable PROXY_CONFIG itself is no effect. A change of the configuration that the agent
	// reads from it is one.
	given := regexp.MustCompile(`(?m)- name: PROXY_CONFIG\n.*value: .*\n`)
	return append(notes, m.Notes...), given.ReplaceAllString(got, ""), given.ReplaceAllString(base, "")
}
