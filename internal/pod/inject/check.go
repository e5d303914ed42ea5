package inject

import (
	"errors"
	"fmt"
	"net"
	"regexp"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// Check says what of the options could be used in no pod: by the checks of the annotations
// that say the same for one. The values are checked where they are read.
func (o Options) Check() error {
	return checkAll([]setting{
		{"the address of the control plane", o.ControlPlane, address},
		{"the revision", o.Revision, label},
		{"the ConfigMap with the mesh's root", o.RootCA, objectName},
		{"the image of the proxy", o.Images.Proxy, imageName},
		{"the image of the init container", o.Images.Init, imageName},
	})
}

// check says which of the values no pod could use.
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

// agentLevel is the agent's log level, as Istio's annotation has it: scopes are passed over.
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

// reference is the grammar of an image's name (distribution's reference package): a
// registry, a path, a tag, a digest.
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
