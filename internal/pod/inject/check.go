package inject

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"

	"outrider.dev/startup"
)

// Check checks the options as the annotations for the same settings are. The values are
// checked when they are read.
func (o Options) Check() error {
	return checkAll([]setting{
		{"the address of the control plane", o.ControlPlane, address},
		{"the revision", o.Revision, label},
		{"the ConfigMap with the mesh's root", o.RootCA, objectName},
		{"the image of the proxy", o.Images.Proxy, imageName},
		{"the image of the init container", o.Images.Init, imageName},
	})
}

// check is likewise.
func (v Values) check() error {
	p := v.Global.Proxy
	all := []setting{
		{"revision", v.Revision, label},
		{"global.hub", v.Global.Hub, hub},
		{"global.imagePullPolicy", v.Global.ImagePullPolicy, oneOf("Always", "IfNotPresent", "Never")},
		{"global.network", v.Global.Network, labelValue},
		{"global.caAddress", v.Global.CAAddress, address},
		{"global.proxy_init.image", v.Global.ProxyInit.Image, imageName},
		{"global.proxy.image", p.Image, imageName},
		{"global.proxy.clusterDomain", p.ClusterDomain, objectName},
		{"global.proxy.logLevel", p.LogLevel, level},
		{"global.proxy.componentLogLevel", p.ComponentLogLevel, componentLevels},
		{"global.proxy.includeIPRanges", p.IncludeIPRanges.String(), rangesOrAll},
		{"global.proxy.excludeIPRanges", p.ExcludeIPRanges.String(), ranges},
		{"global.proxy.includeInboundPorts", p.IncludeInboundPorts.String(), portsOrAll},
		{"global.proxy.excludeInboundPorts", p.ExcludeInboundPorts.String(), ports},
		{"global.proxy.includeOutboundPorts", p.IncludeOutboundPorts.String(), portsOrAll},
		{"global.proxy.excludeOutboundPorts", p.ExcludeOutboundPorts.String(), ports},
		{"global.proxy.excludeInterfaces", p.ExcludeInterfaces.String(), interfaces},
	}
	if v.Global.Tag != nil {
		all = append(all, setting{"global.tag", fmt.Sprint(v.Global.Tag), tag})
	}
	for _, secret := range v.Global.ImagePullSecrets {
		all = append(all, setting{"global.imagePullSecrets", secret, objectName})
	}
	for _, n := range []struct {
		name  string
		value *int32
		check func(string) error
	}{
		{"statusPort", p.StatusPort, portOrZero},
		{"readinessInitialDelaySeconds", p.ReadinessInitialDelaySeconds, number},
		{"readinessPeriodSeconds", p.ReadinessPeriodSeconds, number},
		{"readinessFailureThreshold", p.ReadinessFailureThreshold, number},
	} {
		if n.value != nil {
			all = append(all, setting{"global.proxy." + n.name, fmt.Sprint(*n.value), n.check})
		}
	}
	return checkAll(all)
}

// A setting is a value with its check. An empty one is the default.
type setting struct {
	name, value string
	check       func(string) error
}

func checkAll(all []setting) error {
	for _, s := range all {
		if s.value == "" {
			continue
		}
		if err := s.check(s.value); err != nil {
			return fmt.Errorf("%s: %q: want %w", s.name, s.value, err)
		}
	}
	return nil
}

// levels are Envoy's log levels.
var levels = []string{"trace", "debug", "info", "warning", "error", "critical", "off"}

var level = oneOf(levels...)

var component = regexp.MustCompile(`^[a-z0-9_]+$`)

// componentLevels are component:level, as Envoy's --component-log-level has them.
func componentLevels(s string) error {
	for item := range strings.SplitSeq(s, ",") {
		name, of, ok := strings.Cut(strings.TrimSpace(item), ":")
		if !ok || !component.MatchString(name) || level(of) != nil && of != "warn" {
			return fmt.Errorf("component:level with commas between, as misc:error,upstream:debug; levels are %s", strings.Join(levels, ", "))
		}
	}
	return nil
}

// agentLevel is the agent's log level, as in Istio's annotation: levels of scopes are ignored.
func agentLevel(s string) error {
	s = strings.TrimPrefix(s, "default:")
	if strings.ContainsAny(s, ",:") {
		return nil
	}
	return oneOf("debug", "info", "warn", "error")(strings.ToLower(s))
}

func address(s string) error {
	host, port, err := net.SplitHostPort(s)
	if err != nil || host == "" || ports(port) != nil || port == "" || strings.ContainsAny(s, " ,/") {
		return errors.New("host:port, as outriderd.outrider-system.svc:15012")
	}
	return nil
}

// reference is the grammar of an image's name (distribution's reference package).
var reference = regexp.MustCompile(`^(?:(?:[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?|\[[0-9A-Fa-f:]+\])(?::[0-9]+)?/)?` +
	`[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*(?:/[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*)*` +
	`(?::\w[\w.-]{0,127})?(?:@sha256:[0-9a-f]{64})?$`)

func imageName(s string) error {
	if !reference.MatchString(s) {
		return errors.New("an image, as registry.example/outrider/outrider-proxy:1")
	}
	return nil
}

// hub is the beginning of an image's name.
func hub(s string) error {
	if !reference.MatchString(s + "/x") {
		return errors.New("where images are, as registry.example/outrider")
	}
	return nil
}

func tag(s string) error {
	if !reference.MatchString("x:" + s) {
		return errors.New("an image's tag")
	}
	return nil
}

func objectName(s string) error {
	if len(validation.IsDNS1123Subdomain(s)) > 0 {
		return errors.New("a name of lower-case letters, digits, dashes and dots")
	}
	return nil
}

func label(s string) error {
	if len(validation.IsDNS1123Label(s)) > 0 {
		return errors.New("a name of lower-case letters, digits and dashes, of 63 at most")
	}
	return nil
}

func labelValue(s string) error {
	if len(validation.IsValidLabelValue(s)) > 0 {
		return errors.New("a label's value")
	}
	return nil
}

// NamespaceName says whether a namespace can have that name.
func NamespaceName(s string) error {
	if err := label(s); err != nil {
		return fmt.Errorf("%q: want %w", s, err)
	}
	return nil
}

// The errors of checks say what would be valid.

func oneOf(words ...string) func(string) error {
	return func(s string) error {
		if slices.Contains(words, s) {
			return nil
		}
		return errors.New(strings.Join(words[:len(words)-1], ", ") + " or " + words[len(words)-1])
	}
}

func number(s string) error {
	if n, err := strconv.ParseInt(s, 10, 32); err != nil || n < 0 {
		return errors.New("a whole number that is not negative")
	}
	return nil
}

func portOrZero(s string) error {
	if _, err := strconv.ParseUint(s, 10, 16); err != nil {
		return errors.New("a port, or 0")
	}
	return nil
}

func boolean(s string) error {
	if _, err := strconv.ParseBool(s); err != nil {
		return errors.New("true or false")
	}
	return nil
}

func quantity(s string) error {
	if q, err := resource.ParseQuantity(s); err != nil || q.Sign() < 0 {
		return errors.New("an amount, for example 100m or 128Mi")
	}
	return nil
}

func items(s string) []string {
	var out []string
	for item := range strings.SplitSeq(s, ",") {
		if item = strings.TrimSpace(item); item != "" {
			out = append(out, item)
		}
	}
	return out
}

func ports(s string) error {
	for _, item := range items(s) {
		if n, err := strconv.ParseUint(item, 10, 16); err != nil || n == 0 {
			return errors.New("ports from 1 to 65535, with commas between")
		}
	}
	return nil
}

func portsOrAll(s string) error {
	if s == "*" || ports(s) == nil {
		return nil
	}
	return errors.New("*, or ports from 1 to 65535 with commas between")
}

func ranges(s string) error {
	for _, item := range items(s) {
		_, err := netip.ParsePrefix(item)
		if _, bare := netip.ParseAddr(item); err != nil && bare != nil {
			return errors.New("address ranges like 10.0.0.0/8, with commas between")
		}
	}
	return nil
}

func rangesOrAll(s string) error {
	if s == "*" || ranges(s) == nil {
		return nil
	}
	return errors.New("*, or address ranges like 10.0.0.0/8 with commas between")
}

func interfaces(s string) error {
	for _, item := range items(s) {
		if len(item) > 15 || strings.ContainsAny(item, " /:+*") {
			return errors.New("names of network interfaces, with commas between")
		}
	}
	return nil
}

// orNone also allows an empty value, which is the default.
func orNone(check func(string) error) func(string) error {
	return func(s string) error {
		if s == "" {
			return nil
		}
		return check(s)
	}
}

// of allows what parse can read.
func of[T any](parse func(string) (T, error)) func(string) error {
	return func(s string) error {
		_, err := parse(s)
		return err
	}
}

// didYouMean is " (did you mean X?)" for the name nearest to word, or nothing.
func didYouMean(word string, names []string) string {
	best, least := "", 1+len(lastPart(word))/3
	for _, n := range names {
		d := startup.Distance(lastPart(word), lastPart(n))
		if before(word) != before(n) {
			d++ // with another prefix: less likely than a misspelling
		}
		if d > 0 && d < least {
			best, least = n, d
		}
	}
	if best == "" {
		return ""
	}
	return " (did you mean " + best + "?)"
}

func lastPart(s string) string { return s[strings.LastIndex(s, "/")+1:] }

func before(s string) string { return s[:strings.LastIndex(s, "/")+1] }
