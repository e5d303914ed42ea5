package settings

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	kjson "sigs.k8s.io/json"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/core/agent/config"
)

// A Surface is a kind of place where Istio's settings are written.
type Surface string

// The surfaces. Each value is the word that messages use.
const (
	InValues      Surface = "value"       // values of Istio's charts
	InMesh        Surface = "MeshConfig"  // meshConfig of the values, and --mesh-config
	InProxyConfig Surface = "ProxyConfig" // defaultConfig of a MeshConfig, and the annotation
	InVariables   Surface = "variable"    // proxyMetadata of a ProxyConfig
	InAnnotations Surface = "annotation"
	InLabels      Surface = "label"
)

// A Key is a known setting and the way it is treated. Exactly one of its texts (Means to Refused) is set.
type Key struct {
	Surface Surface
	Name    string // path of a field, as a.b; a.* stands for each field of a without its own key
	Means   string // its meaning, if injection uses it
	Chart   string // its meaning, if only the chart of outriderd (charts/outrider) uses it
	Plane   string // its meaning, if only outriderd uses it, to configure running proxies
	Without string // why it has no effect; the warning contains this
	Refused string // why it is an error, and what would be valid

	same []string // values in JSON that only request the default behaviour, so that they cause no warning
}

// keysOf returns a copy of k for each name in the lists. "a.b|c|d" stands for the names a.b, a.c and a.d.
func keysOf(s Surface, k Key, lists ...string) []Key {
	var out []Key
	for _, list := range lists {
		for group := range strings.FieldsSeq(list) {
			parent := ""
			if i := strings.LastIndex(strings.SplitN(group, "|", 2)[0], "."); i >= 0 {
				parent, group = group[:i+1], group[i+1:]
			}
			for name := range strings.SplitSeq(group, "|") {
				k.Surface, k.Name = s, parent+name
				out = append(out, k)
			}
		}
	}
	return out
}

const (
	noCNI     = "the capture is written by the pod's own init container, or with annotation " + contract.Init + ": none by the proxy's; no CNI plugin is needed"
	noAmbient = "there is no ambient mode here"
	oneImage  = "there is one image, which has no shell"
	// Reasons why settings of Istio's own workloads have no effect.
	istiods  = "only Istio's own control plane has this; the flags of outriderd serve are in its --help"
	webhooks = "the chart, or outriderd webhook-config, has the webhook's configuration"
)

// Values of Istio's istiod chart. A file gives them at its top level or under the key pilot. The values in
// chartValues have an effect only under pilot, on the chart of outriderd.
const (
	chartValues = `affinity|autoscaleBehavior|autoscaleEnabled|autoscaleMax|autoscaleMin|cpu|deploymentAnnotations|deploymentLabels|
	envVarFrom|extraContainerArgs|hub|image|ipFamilies|ipFamilyPolicy|keepaliveMaxServerConnectionAge|memory|nodeSelector|pdb|
	podAnnotations|podLabels|replicaCount|resources|rollingMaxSurge|rollingMaxUnavailable|seccompProfile|serviceAccountAnnotations|
	serviceAnnotations|sidecarInjectorWebhookAnnotations|tag|tolerations|topologySpreadConstraints|volumeMounts|volumes`
	istiodValues = `configMap|crlConfigMapName|enabled|initContainers|istiodRemote|jwksResolverExtraRootCA|taint|traceSampling|
	trustedZtunnelName|trustedZtunnelNamespace|variant`
)

var valueKeys = slices.Concat(
	keysOf(InValues, Key{Means: "images of the proxy and of " + contract.InitContainer}, "global.hub|tag|imagePullPolicy|imagePullSecrets global.proxy.image global.proxy_init.image"),
	keysOf(InValues, Key{Means: "metadata of the proxy, which control planes read"}, "global.network|meshID global.multiCluster.clusterName"),
	keysOf(InValues, Key{Means: "address of the certificate authority"}, "global.caAddress"),
	keysOf(InValues, Key{Means: "nftables capture, and not what outrider-init finds"}, "global.nativeNftables"),
	keysOf(InValues, Key{Means: "whether pods are injected whose labels do not decide it"}, "global.proxy.autoInject"),
	keysOf(InValues, Key{Means: "whether the app starts after the proxy"}, "global.proxy.holdApplicationUntilProxyStarts"),
	keysOf(InValues, Key{Means: "DNS domain of services"}, "global.proxy.clusterDomain"),
	keysOf(InValues, Key{Means: "what is captured, where the pod has no annotation"},
		"global.proxy.includeIPRanges|excludeIPRanges|includeInboundPorts|excludeInboundPorts|includeOutboundPorts|excludeOutboundPorts|excludeInterfaces"),
	keysOf(InValues, Key{Means: "Envoy's log levels, where the pod has no annotation"}, "global.proxy.logLevel|componentLogLevel"),
	keysOf(InValues, Key{Means: "probes of the proxy, where the pod has no annotation"},
		"global.proxy.statusPort|readinessInitialDelaySeconds|readinessPeriodSeconds|readinessFailureThreshold global.proxy.startupProbe.failureThreshold"),
	keysOf(InValues, Key{Means: "fields of the proxy's container"}, "global.proxy.resources|lifecycle|seccompProfile"),
	keysOf(InValues, Key{Means: "which pods are injected"}, "sidecarInjectorWebhook.neverInjectSelector|alwaysInjectSelector|enableNamespacesByDefault revision"),
	keysOf(InValues, Key{Means: "whether the agent makes the app's probes"}, "sidecarInjectorWebhook.rewriteAppHTTPProbe"),
	keysOf(InValues, Key{Means: "annotations that each injected pod gets"}, "sidecarInjectorWebhook.injectedAnnotations"),
	keysOf(InValues, Key{Means: "images that a pod's author may choose; it is ours"}, "sidecarInjectorWebhook.allowedProxyImages"),
	keysOf(InValues, Key{Means: "annotation outrider.dev/init of pods without one; it is ours"}, "sidecarInjectorWebhook.init"),
	keysOf(InValues, Key{Means: "auto, true or false: whether the proxy is a native sidecar"}, "pilot.env.ENABLE_NATIVE_SIDECARS env.ENABLE_NATIVE_SIDECARS"),
	keysOf(InValues, Key{Means: "a MeshConfig"}, "meshConfig"),

	keysOf(InValues, Key{Chart: "the Deployment of outriderd and what belongs to it"}, oneList("pilot.", chartValues), "global.priorityClassName|defaultPodDisruptionBudget|networkPolicy"),
	keysOf(InValues, Key{Chart: "variables of outriderd"}, "pilot.env.OUTRIDER_FIRST_USE_TIMEOUT|GOMEMLIMIT|GOGC"),
	keysOf(InValues, Key{Chart: "the webhook's configuration; ownLabels is our name"}, "sidecarInjectorWebhook.failurePolicy|ownLabels"),
	keysOf(InValues, Key{Chart: "the authority, flags of outriderd serve, what it reads, monitoring, and the nodes; these names are ours"}, "authority serve features monitoring node"),

	keysOf(InValues, Key{Refused: "it is a field of an IstioOperator or of another object; want only what is below its spec.values, and its spec.meshConfig as meshConfig"}, "apiVersion kind metadata spec"),

	keysOf(InValues, Key{Without: "the proxy needs no privilege", same: []string{"false"}}, "global.proxy.privileged"),
	keysOf(InValues, Key{Without: "core dumps are the container runtime's", same: []string{"false"}}, "global.proxy.enableCoreDump"),
	keysOf(InValues, Key{Without: "spans go to the opentelemetry provider of meshConfig.defaultProviders.tracing", same: []string{`"none"`}}, "global.proxy.tracer global.tracer"),
	keysOf(InValues, Key{Without: "outlier events are not logged to a file"}, "global.proxy.outlierLogPath"),
	keysOf(InValues, Key{Without: "both families are captured where the pod has both", same: []string{"true"}}, "global.proxy.includeIPv6"),
	keysOf(InValues, Key{Without: "it is annotation " + BindKey + " of a pod", same: []string{"false"}}, "global.proxy.capNetBindService"),
	keysOf(InValues, Key{Without: "annotation " + contract.NativeRelease + ": probe requests a startup probe"}, "global.proxy.startupProbe.enabled"),
	keysOf(InValues, Key{Without: "outrider-init has the resources of the proxy, as in Istio"}, "global.proxy_init.resources"),
	keysOf(InValues, Key{Without: "every run of the capture replaces what was there"}, "global.proxy_init.forceApplyIptables"),
	keysOf(InValues, Key{Without: builtIn, same: []string{`["sidecar"]`}}, "sidecarInjectorWebhook.templates|defaultTemplates"),
	keysOf(InValues, Key{Without: "the selectors are Istio's present ones", same: []string{"false"}}, "sidecarInjectorWebhook.useLegacySelectors"),
	keysOf(InValues, Key{Without: webhooks}, "sidecarInjectorWebhook.reinvocationPolicy|injectionURL|injectionPath|objectSelector"),
	keysOf(InValues, Key{Without: noCNI, same: []string{"false", `"default"`}}, "pilot.cni.enabled|provider|chained cni.enabled|provider|chained istio_cni.enabled|provider|chained cni.* components"),
	keysOf(InValues, Key{Without: "it is a variable of istiod; the flags of outriderd serve are in its --help, and variables of the agent are meshConfig.defaultConfig.proxyMetadata"}, "pilot.env.* env.*"),
	keysOf(InValues, Key{Without: istiods, same: []string{"false"}}, oneList("", istiodValues), oneList("pilot.", istiodValues),
		"global.arch|certSigners|configValidation|defaultNodeSelector|defaultResources|defaultTolerations|enableReaderRBAC|istiod|"+
			"ipFamilies|ipFamilyPolicy|omitSidecarInjectorConfigMap|operatorManageWebhooks|platform|readerServiceAccount|resourceScope",
		"base compatibilityVersion defaultRevision experimental ownerName platform profile revisionTags"),
	keysOf(InValues, Key{Without: "want it below pilot, for the chart of outriderd", same: []string{"false"}}, oneList("", chartValues)),
	keysOf(InValues, Key{Without: "write what is in it one level up, as the chart's users do"}, "_internal_defaults_do_not_set defaults"),
	keysOf(InValues, Key{Without: "the revision is the value revision, or --revision"}, "global.revision"),
	keysOf(InValues, Key{Without: "there are no gateways here; use an ingress controller"}, "gateways gatewayClasses"),
	keysOf(InValues, Key{Plane: "whether requests are counted by Istio's names ([telemetry.md](telemetry.md))"}, "telemetry.enabled telemetry.v2.enabled telemetry.v2.prometheus.enabled"),
	keysOf(InValues, Key{Without: "metrics go to Prometheus alone, by fixed names and labels", same: []string{"false"}}, "telemetry.v2.stackdriver telemetry.v2.accessLogPolicy"),
	keysOf(InValues, Key{Without: noAmbient}, "ztunnel global.waypoint global.agentgateway"),
	keysOf(InValues, Key{Without: "the control plane's namespace is in its address: --control-plane, or meshConfig.defaultConfig.discoveryAddress"}, "global.istioNamespace global.remotePilotAddress"),
	keysOf(InValues, Key{Without: "a control plane has one cluster, which it runs in or reads (outriderd serve --kubeconfig)", same: []string{"false"}},
		"global.externalIstiod|configCluster|meshNetworks global.multiCluster.enabled|globalDomainSuffix|includeEnvoyFilter"),
	keysOf(InValues, Key{Without: "logs of outriderd and the agent are JSON", same: []string{"true"}}, "global.logAsJson"),
	keysOf(InValues, Key{Without: "levels of logs are outriderd serve --log-level and annotation " + AgentLogKey}, "global.logging"),
	keysOf(InValues, Key{Without: oneImage, same: []string{`"distroless"`}}, "global.variant"),
	keysOf(InValues, Key{Without: "outriderd signs certificates, or Istio's service at global.caAddress", same: []string{`"Citadel"`, `"istiod"`}}, "global.caName|pilotCertProvider"),
	keysOf(InValues, Key{Without: "the agent requests certificates with a token of audience istio-ca, and keeps them in memory", same: []string{"false", `"third-party-jwt"`, `{"token":{"aud":"istio-ca"}}`, `{"servicePort":0}`}},
		"global.jwtPolicy|mountMtlsCerts|sds|sts"),
	keysOf(InValues, Key{Without: "the roots are in the ConfigMap outrider-ca-root-cert"}, "global.trustBundleName"),
	keysOf(InValues, Key{Without: "it is meshConfig.trustDomain"}, "global.trustDomain"),
	keysOf(InValues, Key{Without: "a pod's DNS is its own dnsConfig"}, "global.podDNSSearchNamespaces"),
)

// oneList returns names below parent for keysOf. The list may be written on several lines.
func oneList(parent, list string) string {
	return parent + strings.Join(strings.Fields(list), "")
}

var meshKeys = slices.Concat(
	keysOf(InMesh, Key{Means: "a ProxyConfig"}, "defaultConfig"),
	keysOf(InMesh, Key{Means: "trust domain of the pods' identities"}, "trustDomain"),
	keysOf(InMesh, Key{Means: "whether the agent serves the app's metrics with its own"}, "enablePrometheusMerge"),

	keysOf(InMesh, Key{Refused: "it is a field of a ConfigMap or of another object; want only the MeshConfig, which is below data.mesh of Istio's ConfigMap"}, "apiVersion kind metadata data"),

	keysOf(InMesh, Key{Without: "connections reach the application at the pod's address: it must listen there, and not only at 127.0.0.1", same: []string{`"PASSTHROUGH"`}}, "inboundTrafficPolicy.mode"),
	keysOf(InMesh, Key{Without: "addresses outside the mesh stay reachable; forbid them by a NetworkPolicy", same: []string{`"ALLOW_ANY"`}}, "outboundTrafficPolicy.mode"),
	keysOf(InMesh, Key{Without: "there are no gateways or egress proxies here"}, "ingressClass|ingressControllerMode|ingressSelector|ingressService proxyHttpPort"),
	keysOf(InMesh, Key{Without: "identities of other trust domains are not accepted; all pods need one trustDomain"}, "trustDomainAliases"),
	keysOf(InMesh, Key{Without: "outriderd signs certificates, with the root in its state directory"}, "ca|caCertificates|certificates"),
	keysOf(InMesh, Key{Without: "mutual TLS is used wherever both sides have a proxy; a PeerAuthentication says what servers accept", same: []string{"true"}}, "enableAutoMtls"),
	keysOf(InMesh, Key{Plane: "the oldest version of TLS that proxies accept from others: TLSV1_2 or TLSV1_3 ([security.md](security.md#tls-between-proxies))"}, "meshMTLS.minProtocolVersion"),
	keysOf(InMesh, Key{Without: "groups and ciphers of TLS between proxies are built in, and certificates are always verified"}, "meshMTLS.cipherSuites|ecdhCurves tlsDefaults|verifyCertificateAtClient"),
	keysOf(InMesh, Key{Plane: "access logs of all proxies ([telemetry.md](telemetry.md))"}, "accessLogFile|accessLogFormat|accessLogEncoding"),
	keysOf(InMesh, Key{Plane: "whether requests are counted, and where spans go ([telemetry.md](telemetry.md))"}, "defaultProviders.tracing|metrics"),
	keysOf(InMesh, Key{Plane: "the collector that defaultProviders.tracing names, of kind opentelemetry"}, "extensionProviders"),
	keysOf(InMesh, Key{Without: "access logs go to standard output: accessLogFile", same: []string{"false"}}, "enableEnvoyAccessLogService|disableEnvoyListenerLog defaultProviders.accessLogging"),
	keysOf(InMesh, Key{Without: "tracing is on where defaultProviders.tracing names a provider", same: []string{"false"}}, "enableTracing"),
	keysOf(InMesh, Key{Without: "statistics have Envoy's own names"}, "inboundClusterStatName|outboundClusterStatName"),
	keysOf(InMesh, Key{Without: "a service is visible in all namespaces, unless its annotation networking.istio.io/exportTo restricts it", same: []string{`["*"]`}}, "defaultServiceExportTo"),
	keysOf(InMesh, Key{Without: "objects of this kind have no effect here; outriderd reports them, with what to use instead"}, "defaultVirtualServiceExportTo|defaultDestinationRuleExportTo|serviceEntryVisibility"),
	keysOf(InMesh, Key{Without: "all namespaces are read"}, "discoverySelectors"),
	keysOf(InMesh, Key{Without: "the source of the mesh is outriderd serve --source"}, "configSources"),
	keysOf(InMesh, Key{Without: "the root namespace is outriderd's (--namespace)"}, "rootNamespace"),
	keysOf(InMesh, Key{Without: "endpoints are chosen by trafficDistribution of the Service"}, "localityLbSetting|zoneAwareLbSetting|serviceSettings|serviceScopeConfigs"),
	keysOf(InMesh, Key{Without: "which requests are tried again is built in; an HTTPRoute sets time-outs"}, "defaultHttpRetryPolicy"),
	keysOf(InMesh, Key{Without: "paths of requests are normalised as by BASE where an AuthorizationPolicy has paths, else not changed", same: []string{`{"normalization":"NONE"}`}}, "pathNormalization"),
	keysOf(InMesh, Key{Without: "there are no traffic policies for all services; a Service has trafficDistribution, a BackendPolicy limits, an HTTPRoute time-outs"}, "defaultTrafficPolicy"),
	keysOf(InMesh, Key{Without: "ports and times of the proxy's connections are built in"}, "connectTimeout|dnsRefreshRate|h2UpgradePolicy|protocolDetectionTimeout|proxyInboundListenPort|proxyListenPort|tcpKeepalive"),
	keysOf(InMesh, Key{Without: noAmbient}, "hboneIdleTimeout"),
)

// Keys returns all known settings of Istio, and our own annotations and labels.
func Keys() []Key {
	out := slices.Concat(valueKeys, meshKeys)
	for _, s := range []struct {
		surface Surface
		fields  map[string]string
	}{{InProxyConfig, config.ProxyConfigFields()}, {InVariables, config.Variables()}} {
		for _, name := range slices.Sorted(maps.Keys(s.fields)) {
			k := Key{Surface: s.surface, Name: name, Without: s.fields[name]}
			switch {
			case k.Without != "":
			case strings.HasPrefix(name, "OUTRIDER_"):
				k.Means = "see [agent.md](agent.md)"
			case strings.HasPrefix(name, "ISTIO_META_"):
				k.Means = "the proxy's metadata"
			default:
				k.Means = "as in Istio"
			}
			out = append(out, k)
		}
	}
	for _, a := range annotations {
		out = append(out, Key{Surface: InAnnotations, Name: a.name, Means: a.means, Without: a.without})
	}
	for _, l := range knownLabels {
		out = append(out, Key{Surface: InLabels, Name: l.name, Means: l.means, Without: l.without})
	}
	return out
}

// An Ignored is an annotation or a label without effect.
type Ignored struct {
	Name    string // empty if the warning concerns several names
	Why     string
	Warning string
}

// A keyTree finds the key of a field by its path.
type keyTree struct {
	keys     map[string]*Key
	children map[string][]string // names of the fields below a path
}

func treeOf(keys []Key) keyTree {
	t := keyTree{map[string]*Key{}, map[string][]string{}}
	for i := range keys {
		path := keys[i].Name
		t.keys[path] = &keys[i]
		for i := strings.LastIndex(path, "."); ; i = strings.LastIndex(path, ".") {
			parent, name := path[:max(i, 0)], path[i+1:]
			if name != "*" && !slices.Contains(t.children[parent], name) {
				t.children[parent] = append(t.children[parent], name)
			}
			if i < 0 {
				break
			}
			path = parent
		}
	}
	return t
}

var valueTree, meshTree = treeOf(valueKeys), treeOf(meshKeys)

// check checks the fields of an object against the table. It returns warnings about fields without effect, with
// their paths below parent; fields with the same reason share a warning. It returns an error if a field is
// refused. The messages call a field by the word in what: "field" or "value".
func (t keyTree) check(object map[string]any, what, parent string) ([]string, error) {
	c := keyCheck{tree: t, what: what, parent: parent, without: map[string][]string{}}
	c.object("", object)
	out := c.unknown
	for _, why := range c.reasons {
		names, verb := c.without[why], "has"
		of := what
		if len(names) > 1 {
			of, verb = what+"s", "have"
		}
		out = append(out, fmt.Sprintf("%s %s %s no effect: %s", of, strings.Join(names, ", "), verb, why))
	}
	return out, errors.Join(c.refused...)
}

// notKnown returns the warning about a field that is not in the table. It suggests the most similar of the names.
func notKnown(what, path, name string, names []string) string {
	return fmt.Sprintf("%s %s is not known%s; it has no effect", what, path, didYouMean(name, names))
}

type keyCheck struct {
	tree    keyTree
	what    string
	parent  string
	unknown []string
	reasons []string // in the order in which they were found
	without map[string][]string
	refused []error
}

func (c *keyCheck) object(parent string, fields map[string]any) {
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		path := name
		if parent != "" {
			path = parent + "." + name
		}
		key := c.tree.keys[path]
		if key == nil && c.tree.children[path] == nil {
			key = c.tree.keys[strings.TrimPrefix(parent+".*", ".")]
		}
		below, isObject := fields[name].(map[string]any)
		switch {
		case key != nil && key.Refused != "":
			if !slices.ContainsFunc(c.refused, func(err error) bool { return strings.HasSuffix(err.Error(), key.Refused) }) {
				c.refused = append(c.refused, fmt.Errorf("%s%s: %s", c.parent, path, key.Refused))
			}
		case key != nil && key.Without != "":
			if !key.asItIs(fields[name]) {
				if c.without[key.Without] == nil {
					c.reasons = append(c.reasons, key.Without)
				}
				c.without[key.Without] = append(c.without[key.Without], c.parent+path)
			}
		case key != nil: // injection, the chart or the control plane uses it
		case c.tree.children[path] == nil:
			c.unknown = append(c.unknown, notKnown(c.what, c.parent+path, name, c.tree.children[parent]))
		case isObject:
			c.object(path, below)
		}
	}
}

// asItIs reports whether a value requests nothing, or only the default behaviour.
func (k *Key) asItIs(value any) bool {
	text, err := json.Marshal(value)
	return err == nil && (slices.Contains([]string{"null", `""`, "{}", "[]"}, string(text)) || slices.Contains(k.same, string(text)))
}

// misspelt returns warnings about unknown fields within values that are used, such as lifecycle.prestop. A
// decoder would ignore these silently.
func misspelt(data []byte, into any) []string {
	strict, err := kjson.UnmarshalStrict(data, into)
	if err != nil {
		return nil // decode returns the error
	}
	var out []string
	for _, e := range strict {
		var field kjson.FieldError
		if !errors.As(e, &field) {
			continue
		}
		path := field.FieldPath()
		if !strings.Contains(e.Error(), "unknown") || !usedAbove(path) {
			continue
		}
		parent, name := "", path
		if i := strings.LastIndex(path, "."); i >= 0 {
			parent, name = path[:i], path[i+1:]
		}
		out = append(out, notKnown("value", path, name, fieldsAt(reflect.TypeOf(into), parent)))
	}
	return out
}

// usedAbove reports whether a field is part of a value that has an effect.
func usedAbove(path string) bool {
	for i := strings.LastIndexAny(path, ".["); i >= 0; i = strings.LastIndexAny(path, ".[") {
		path = path[:i]
		if k := valueTree.keys[path]; k != nil {
			return k.Means != "" || k.Plane != ""
		}
	}
	return false
}

// fieldsAt returns the JSON names of the fields of the object at a path below a value of type t.
func fieldsAt(t reflect.Type, path string) []string {
	if path != "" {
		name, rest, _ := strings.Cut(path, ".")
		name, _, _ = strings.Cut(name, "[")
		for _, f := range fieldsOf(t) {
			if jsonName(f) == name {
				return fieldsAt(f.Type, rest)
			}
		}
		return nil
	}
	var out []string
	for _, f := range fieldsOf(t) {
		out = append(out, jsonName(f))
	}
	return out
}

// fieldsOf returns the fields of a struct, or of the struct that a pointer or a list refers to.
func fieldsOf(t reflect.Type) []reflect.StructField {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct {
		return nil
	}
	return reflect.VisibleFields(t)
}

func jsonName(f reflect.StructField) string {
	name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	return name
}
