package settings

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/distribution/reference"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/core/capture"
	"outrider.dev/startup"
)

// check checks the values by the same rules as the annotations for the same settings.
func (v Values) check() error {
	p := v.Global.Proxy
	all := []setting{
		{"revision", v.Revision, Label},
		{"global.hub", v.Global.Hub, hub},
		{"global.tag", v.Tag(), tag},
		{"global.imagePullPolicy", v.Global.ImagePullPolicy, oneOf("Always", "IfNotPresent", "Never")},
		{"global.network", v.Global.Network, labelValue},
		{"global.caAddress", v.Global.CAAddress, Address},
		{"global.proxy_init.image", v.Global.ProxyInit.Image, ImageName},
		{"global.proxy.image", p.Image, ImageName},
		{"global.proxy.clusterDomain", p.ClusterDomain, ObjectName},
		{"global.proxy.logLevel", p.LogLevel, level},
		{"global.proxy.componentLogLevel", p.ComponentLogLevel, componentLevels},
		{"global.proxy.includeIPRanges", string(p.IncludeIPRanges), rangesOrAll},
		{"global.proxy.excludeIPRanges", string(p.ExcludeIPRanges), ranges},
		{"global.proxy.includeInboundPorts", string(p.IncludeInboundPorts), portsOrAll},
		{"global.proxy.excludeInboundPorts", string(p.ExcludeInboundPorts), ports},
		{"global.proxy.includeOutboundPorts", string(p.IncludeOutboundPorts), portsOrAll},
		{"global.proxy.excludeOutboundPorts", string(p.ExcludeOutboundPorts), ports},
		{"global.proxy.excludeInterfaces", string(p.ExcludeInterfaces), interfaces},
		{"global.proxy.statusPort", digits(p.StatusPort), portOrZero},
		{"global.proxy.readinessInitialDelaySeconds", digits(p.ReadinessInitialDelaySeconds), number},
		{"global.proxy.readinessPeriodSeconds", digits(p.ReadinessPeriodSeconds), number},
		{"global.proxy.readinessFailureThreshold", digits(p.ReadinessFailureThreshold), number},
	}
	for _, secret := range v.Global.ImagePullSecrets {
		if secret == "" {
			return errors.New("global.imagePullSecrets: one has no name")
		}
		all = append(all, setting{"global.imagePullSecrets", secret, ObjectName})
	}
	if mode := v.Injector.Init; mode != "" {
		if err := InitModes(mode); err != nil {
			return fmt.Errorf("sidecarInjectorWebhook.init: %q: want %w", mode, err)
		}
	}
	for _, image := range v.Injector.AllowedProxyImages {
		all = append(all, setting{"sidecarInjectorWebhook.allowedProxyImages", image, imagePrefix})
	}
	for _, key := range slices.Sorted(maps.Keys(v.Injector.InjectedAnnotations)) {
		if why := validation.IsQualifiedName(strings.ToLower(key)); len(why) > 0 {
			return fmt.Errorf("sidecarInjectorWebhook.injectedAnnotations: %q: want the name of an annotation: %s", key, strings.Join(why, "; "))
		}
	}
	return errors.Join(checkAll(all), p.Resources.check(), checkLifecycle(p.Lifecycle), checkSeccomp(p.SeccompProfile))
}

// checkLifecycle applies the API's rule for hooks (kubernetes pkg/apis/core/validation, validateHandler).
func checkLifecycle(l *corev1.Lifecycle) error {
	if l == nil {
		return nil
	}
	for _, hook := range []struct {
		name string
		h    *corev1.LifecycleHandler
	}{{"postStart", l.PostStart}, {"preStop", l.PreStop}} {
		if hook.h == nil {
			continue
		}
		if want := wantedOf(*hook.h); want != "" {
			return fmt.Errorf("global.proxy.lifecycle.%s: want %s", hook.name, want)
		}
	}
	return nil
}

// wantedOf returns what a valid hook would contain; empty if the hook is valid.
func wantedOf(h corev1.LifecycleHandler) string {
	if fields, err := asMap(h); err != nil || len(fields) != 1 {
		return "one of exec, httpGet, tcpSocket and sleep"
	}
	if get := h.HTTPGet; get != nil {
		return wantedOfGet(*get)
	}
	switch {
	case h.Exec != nil && len(h.Exec.Command) == 0:
		return "exec with a command"
	case h.TCPSocket != nil && !validPort(h.TCPSocket.Port):
		return "a port"
	case h.Sleep != nil && h.Sleep.Seconds < 1:
		return "seconds of 1 or more"
	}
	return ""
}

func wantedOfGet(get corev1.HTTPGetAction) string {
	switch get.Scheme {
	case "", corev1.URISchemeHTTP, corev1.URISchemeHTTPS:
	default:
		return "the scheme HTTP or HTTPS"
	}
	if slices.ContainsFunc(get.HTTPHeaders, func(h corev1.HTTPHeader) bool { return len(validation.IsHTTPHeaderName(h.Name)) > 0 }) {
		return "names of HTTP headers"
	}
	if !validPort(get.Port) {
		return "a port"
	}
	return ""
}

func validPort(p intstr.IntOrString) bool {
	if p.Type == intstr.String {
		return len(validation.IsValidPortName(p.StrVal)) == 0
	}
	return len(validation.IsValidPortNum(int(p.IntVal))) == 0
}

// checkSeccomp applies the API's rule for profiles (validateSeccompProfileField).
func checkSeccomp(p *corev1.SeccompProfile) error {
	if p == nil {
		return nil
	}
	at := "global.proxy.seccompProfile"
	if err := oneOf("RuntimeDefault", "Unconfined", "Localhost")(string(p.Type)); err != nil {
		return fmt.Errorf("%s.type: %q: want %w", at, p.Type, err)
	}
	switch local := p.Type == corev1.SeccompProfileTypeLocalhost; {
	case local && (p.LocalhostProfile == nil || !filepath.IsLocal(*p.LocalhostProfile)):
		return fmt.Errorf("%s.localhostProfile: want a path below the kubelet's folder of profiles, as profiles/proxy.json", at)
	case !local && p.LocalhostProfile != nil:
		return fmt.Errorf("%s.localhostProfile: want it with type: Localhost alone", at)
	}
	return nil
}

// A setting is a value of the mesh with its check. An empty value means the default and is not checked.
type setting struct {
	name, value string
	check       func(string) error
}

func digits(n *int32) string {
	if n == nil {
		return ""
	}
	return strconv.Itoa(int(*n))
}

func checkAll(all []setting) error {
	for _, s := range all {
		if err := Check(s.name, s.value, s.check); err != nil {
			return err
		}
	}
	return nil
}

// Check applies check to a value. An empty value is valid. The error names the setting.
func Check(name, value string, check func(string) error) error {
	if value == "" {
		return nil
	}
	if err := check(value); err != nil {
		return fmt.Errorf("%s: %q: want %w", name, value, err)
	}
	return nil
}

var InitModes = oneOf(contract.InitAuto, contract.InitByNode, contract.InitVolume, contract.InitContained, contract.InitNone)

// levels lists Envoy's log levels.
var levels = []string{"trace", "debug", "info", "warning", "error", "critical", "off"}

// Modes checks an interceptionMode: the way in which connections reach the proxy.
var Modes = oneOf(Redirect, TProxy, NoMode)

var level = oneOf(levels...)

var component = regexp.MustCompile(`^[a-z0-9_]+$`)

// componentLevels checks a list of component:level pairs, as in Envoy's --component-log-level.
func componentLevels(s string) error {
	for item := range strings.SplitSeq(s, ",") {
		name, of, ok := strings.Cut(strings.TrimSpace(item), ":")
		if !ok || !component.MatchString(name) || level(of) != nil && of != "warn" {
			return fmt.Errorf("component:level with commas between, as misc:error,upstream:debug; levels are %s", strings.Join(levels, ", "))
		}
	}
	return nil
}

// agentLevel checks the agent's log level in the form of Istio's annotation. A list with levels for scopes is
// valid, but has no effect.
func agentLevel(s string) error {
	s = strings.TrimPrefix(s, "default:")
	if strings.ContainsAny(s, ",:") {
		return nil
	}
	return oneOf("debug", "info", "warn", "error")(strings.ToLower(s))
}

func Address(s string) error {
	host, port, err := net.SplitHostPort(s)
	if err != nil || host == "" || !isPort(port) || strings.ContainsAny(s, " ,/") {
		return errors.New("host:port, as " + contract.ControlPlaneAddress)
	}
	return nil
}

// NamespaceName checks the name of a namespace.
func NamespaceName(s string) error {
	if err := Label(s); err != nil {
		return fmt.Errorf("%q: want %w", s, err)
	}
	return nil
}

// The error of each of these checks is a noun phrase for a valid value, such as "true or false". A message puts
// "want" before it.

func valid(want string, is func(string) bool) func(string) error {
	return func(s string) error {
		if is(s) {
			return nil
		}
		return errors.New(want)
	}
}

func oneOf(words ...string) func(string) error {
	last := len(words) - 1
	return valid(strings.Join(words[:last], ", ")+" or "+words[last], func(s string) bool { return slices.Contains(words, s) })
}

var (
	ImageName   = valid("an image, as registry.example/outrider/outrider-proxy:1", isReference)
	imagePrefix = valid("an image, a repository or a registry, as registry.example/outrider", func(s string) bool {
		return isReference(s) || isReference(strings.TrimSuffix(s, "/")+"/x")
	})
	hub = valid("where images are, as registry.example/outrider", func(s string) bool { return isReference(s + "/x") })
	tag = valid("an image's tag", func(s string) bool { return isReference("x:" + s) })

	ObjectName = valid("a name of lower-case letters, digits, dashes and dots", func(s string) bool { return len(validation.IsDNS1123Subdomain(s)) == 0 })
	Label      = valid("a name of lower-case letters, digits and dashes, of 63 at most", func(s string) bool { return len(validation.IsDNS1123Label(s)) == 0 })
	labelValue = valid("a label's value", func(s string) bool { return len(validation.IsValidLabelValue(s)) == 0 })

	number     = valid("a whole number that is not negative", func(s string) bool { n, err := strconv.ParseInt(s, 10, 32); return err == nil && n >= 0 })
	boolean    = valid("true or false", func(s string) bool { _, err := strconv.ParseBool(s); return err == nil })
	quantity   = valid("an amount, for example 100m or 128Mi", func(s string) bool { q, err := resource.ParseQuantity(s); return err == nil && q.Sign() >= 0 })
	wholeBytes = valid("an amount of bytes, for example 128Mi", func(s string) bool { q, err := resource.ParseQuantity(s); return err == nil && isWhole(q) })
	portOrZero = valid("a port, or 0", func(s string) bool { _, err := strconv.ParseUint(s, 10, 16); return err == nil })
	ports      = valid(wantPorts, captureFlag("o"))
	portsOrAll = valid("*, or "+wantPorts, captureFlag("b"))

	ranges      = valid(wantRanges, captureFlag("x"))
	rangesOrAll = valid("*, or "+wantRanges, captureFlag("i"))
	interfaces  = valid(fmt.Sprintf("names of network interfaces like eth1, or their beginning like eth+, with commas between, %d at most", capture.MaxInterfaces), captureFlag("c"))
	wantPorts   = fmt.Sprintf("ports from 1 to 65535 or ranges like 8080:8090, with commas between, %d at most", capture.MaxPorts)
	wantRanges  = fmt.Sprintf("address ranges like 10.0.0.0/8, with commas between, %d at most", capture.MaxRanges)
)

// captureFlag returns a predicate that reports whether the capture accepts a value for the flag with that short
// name. The capture gets the value unchanged.
func captureFlag(short string) func(string) bool {
	return func(s string) bool {
		return slices.ContainsFunc(capture.Flags(new(capture.Intent), nil, nil), func(f *capture.Flag) bool {
			return f.Short == short && f.Set(s) == nil
		})
	}
}

func isReference(s string) bool {
	r, err := reference.Parse(s)
	_, named := r.(reference.Named)
	return err == nil && named
}

// isWhole reports whether q is a whole number of units and not negative.
func isWhole(q resource.Quantity) bool { return q.Sign() >= 0 && q.MilliValue()%1000 == 0 }

func isPort(s string) bool {
	n, err := strconv.ParseUint(s, 10, 16)
	return err == nil && n > 0
}

func Items(s string) []string {
	var out []string
	for item := range strings.SplitSeq(s, ",") {
		if item = strings.TrimSpace(item); item != "" {
			out = append(out, item)
		}
	}
	return out
}

// orNone returns a check that also accepts an empty value, which means the default.
func orNone(check func(string) error) func(string) error {
	return func(s string) error {
		if s == "" {
			return nil
		}
		return check(s)
	}
}

// of returns a check that accepts every text that parse accepts.
func of[T any](parse func(string) (T, error)) func(string) error {
	return func(s string) error {
		_, err := parse(s)
		return err
	}
}

// didYouMean returns " (did you mean X?)" for the name nearest to word, or an empty string.
func didYouMean(word string, names []string) string {
	if best := nearest(word, names); best != "" {
		return " (did you mean " + best + "?)"
	}
	return ""
}

// nearest returns the name in names of which word is probably a misspelling; empty if there is none.
func nearest(word string, names []string) (best string) {
	prefix, last := path.Split(word)
	least := 1 + len(last)/3
	for _, n := range names {
		p, l := path.Split(n)
		d := startup.Distance(last, l)
		if p != prefix {
			d++ // a wrong prefix is less likely than a misspelling
		}
		if d > 0 && d < least {
			best, least = n, d
		}
	}
	return best
}
