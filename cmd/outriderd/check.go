package main

import (
	"errors"
	"fmt"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"outrider.dev/internal/base/cli"
	"outrider.dev/internal/core/controlplane"
	"outrider.dev/internal/core/controlplane/ca"
	"outrider.dev/internal/core/controlplane/kube"
	"outrider.dev/internal/core/controlplane/webhook"
)

// A rule determines which values of a flag are valid.
type rule struct {
	want string
	ok   func(string) bool
}

var (
	listenAddress = rule{"HOST:PORT or :PORT, for example :15012", isAddress}
	hostPort      = rule{"HOST:PORT, for example outriderd.outrider-system.svc:15012", func(s string) bool { return isAddress(s) && s[0] != ':' }}
	trustDomain   = rule{"lower case letters, digits, dots, dashes and underscores, for example cluster.local", func(s string) bool {
		return ca.Identity{TrustDomain: s, Namespace: "x", ServiceAccount: "x"}.Check() == nil
	}}
	trustBundle   = rule{"one of " + strings.Join(controlplane.TrustBundleModes, ", "), func(s string) bool { return slices.Contains(controlplane.TrustBundleModes, s) }}
	dnsLabel      = rule{"at most 63 lower case letters, digits and dashes, as of a namespace", label.MatchString}
	secretName    = rule{"the name of a Secret: lower case letters, digits, dashes and dots, for example outrider-ca", isSecretName}
	configMapName = rule{"the name of a ConfigMap: lower case letters, digits, dashes and dots, for example istio-ca-root-cert", isSecretName}
	dnsDomain     = rule{"a DNS domain in lower case, for example cluster.local", isDomain}
)

// check returns an error if the value of a flag violates a rule.
func check(flag, value string, r rule) error {
	if r.ok(value) {
		return nil
	}
	return &cli.UsageError{Err: fmt.Errorf("--%s=%q: want %s", flag, value, r.want)}
}

// checkServe returns an error if options of the command serve cannot work.
func checkServe(o controlplane.Options) error {
	type value struct {
		flag, value string
		rule        rule
	}
	values := []value{
		{"listen", o.Listen, listenAddress},
		{"http", o.HTTP, listenAddress},
		{"trust-domain", o.Mesh.TrustDomain, trustDomain},
		{"domain", o.Mesh.Domain, dnsDomain},
		{"namespace", o.Namespace, dnsLabel},
	}
	if o.Injection.Revision != "" {
		values = append(values, value{"revision", o.Injection.Revision, dnsLabel})
	}
	if o.CASecret != "" {
		values = append(values, value{"ca-secret", o.CASecret, secretName})
	}
	if o.TrustBundle != "" {
		values = append(values, value{"trust-bundle", o.TrustBundle, trustBundle})
	}
	if o.RootsFrom != "" {
		values = append(values, value{"ca-roots", o.RootsFrom, configMapName})
	}
	if o.Injection.ControlPlane != "" {
		values = append(values, value{"control-plane", o.Injection.ControlPlane, hostPort})
	}
	if o.Plaintext != "" {
		values = append(values, value{"plaintext", o.Plaintext, listenAddress})
	}
	if o.Webhook != "" {
		values = append(values, value{"webhook", o.Webhook, listenAddress})
	}
	for _, v := range values {
		if err := check(v.flag, v.value, v.rule); err != nil {
			return err
		}
	}
	switch {
	case o.FirstUse < shortestFirstUse:
		return &cli.UsageError{Err: fmt.Errorf("--first-use-timeout=%s: want at least %s", o.FirstUse, shortestFirstUse)}
	case o.ProxiesPerAddress < 1 || o.ProxiesPerAddress > 100_000:
		return &cli.UsageError{Err: fmt.Errorf("--proxies-per-address=%d: want 1 to 100000", o.ProxiesPerAddress)}
	case len(o.Injection.ClientNames) > 0 && o.Injection.ClientCA == "":
		return &cli.UsageError{Err: errors.New("--webhook-client-name without --webhook-client-ca: no certificate would be checked")}
	case o.Life < time.Second:
		return &cli.UsageError{Err: fmt.Errorf("--certificate-life=%s: want 1s or more", o.Life)}
	case o.ConnectionAge < time.Second:
		return &cli.UsageError{Err: fmt.Errorf("--max-connection-age=%s: want 1s or more", o.ConnectionAge)}
	case o.RootSpread < shortestSpread || o.RootSpread > longestSpread:
		return &cli.UsageError{Err: fmt.Errorf("--root-spread=%s: want %s to %s", o.RootSpread, shortestSpread, longestSpread)}
	case o.MaxLife < 0:
		return &cli.UsageError{Err: fmt.Errorf("--max-certificate-life=%s: want 1s or more", o.MaxLife)}
	case o.MaxLife != 0 && o.MaxLife < o.Life:
		return &cli.UsageError{Err: fmt.Errorf("--certificate-life=%s: more than --max-certificate-life, which is %s", o.Life, o.MaxLife)}
	}
	for _, kind := range o.SkipKinds {
		if err := check("skip-kind", kind, rule{"one of " + strings.Join(kube.OptionalKinds(), ", "), func(s string) bool { return slices.Contains(kube.OptionalKinds(), s) }}); err != nil {
			return err
		}
	}
	if file := o.Injection.ClientCA; file != "" {
		if _, err := webhook.NewClients(file, nil); err != nil {
			return &cli.UsageError{Err: fmt.Errorf("--webhook-client-ca: %w", err)}
		}
	}
	return names(o.Names)
}

// byFlag adds the name of the flag to an error of the control plane about an option.
func byFlag(err error) error {
	var wrong *controlplane.OptionError
	if !errors.As(err, &wrong) {
		return err
	}
	flags := map[string]string{"State": "state", "CASecret": "ca-secret", "ServingSecret": "serving-certificate", "RootsFrom": "ca-roots", "Injection.Values": "inject-values", "Injection.MeshConfig": "mesh-config", "Injection.ClientCA": "webhook-client-ca"}
	return &cli.UsageError{Err: fmt.Errorf("--%s: %w", flags[wrong.Option], wrong.Err)}
}

func isAddress(s string) bool {
	host, port, err := net.SplitHostPort(s)
	if err != nil {
		return false
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return false
	}
	return host == "" || ca.CheckName(host) == nil
}

var label = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)

func isSecretName(s string) bool { return len(s) <= 253 && subdomain.MatchString(s) }

var subdomain = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*$`)

// shortestSpread and longestSpread are the bounds of --root-spread: a root must reach each pod before it
// signs certificates, and must sign long before the old one expires.
const (
	shortestSpread = time.Second
	longestSpread  = 30 * 24 * time.Hour
)

// isDomain reports whether s is a lower-case DNS domain, such that a certificate can contain the names of
// services in it.
func isDomain(s string) bool {
	return lowerName.MatchString(s) && ca.CheckName("outriderd.outrider-system.svc."+s) == nil
}

var lowerName = regexp.MustCompile(`^[a-z0-9.-]+$`)
