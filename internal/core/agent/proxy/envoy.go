package proxy

import (
	"context"
	"log/slog"
	"maps"
	"net/netip"
	"path/filepath"
	"strings"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/core/agent/config"
	"outrider.dev/internal/core/agent/envoy"
	"outrider.dev/internal/core/agent/standby"
	"outrider.dev/internal/core/agent/supervise"
)

// certificates returns the directory that keeps the certificates for the next agent of this pod;
// socket returns the path of the Unix socket from which Envoy gets them.
func certificates(c config.Config) string { return filepath.Join(c.Work, "certs") }
func socket(c config.Config) string       { return filepath.Join(c.Work, "sds.sock") }

// relaySocket returns the path of the Unix socket from which Envoy gets its configuration; kept
// returns the path of the file with the configuration that Envoy has accepted.
func relaySocket(c config.Config) string { return filepath.Join(c.Work, "ads.sock") }
func kept(c config.Config) string        { return filepath.Join(c.Work, "accepted") }

// Istio's interception modes: how connections reach the proxy.
const (
	redirect = "REDIRECT"
	tproxy   = "TPROXY"
	none     = "NONE"
)

func interception(c config.Config) string {
	if mode, ok := c.Pod.Metadata[contract.MetadataInterception].(string); ok && mode != "" {
		return mode
	}
	return redirect
}

// hasStandby reports whether the agent listens in Envoy's place while Envoy is not ready.
func hasStandby(c config.Config) bool { return interception(c) != none && !c.NoStandby }

// capturePorts returns the ports on which Envoy must listen.
func capturePorts(c config.Config) []uint16 { return []uint16{c.Ports.Outbound, c.Ports.Inbound} }

func envoyOptions(c config.Config) envoy.Options {
	metadata := maps.Clone(c.Pod.Metadata)
	metadata[contract.MetadataRelay] = "true"
	secrets := ""
	if !c.ControlPlane.Plaintext {
		secrets = socket(c)
		metadata[contract.MetadataSecrets] = envoy.SecretsCluster
	}
	if len(c.Prewarm) > 0 {
		metadata[contract.MetadataPrewarm] = strings.Join(c.Prewarm, ",")
	}
	if c.Envoy.Sampling != "" {
		metadata[contract.MetadataSampling] = c.Envoy.Sampling
	}
	return envoy.Options{
		Node:  envoy.Node{ID: c.Pod.ID(), Cluster: c.Envoy.Cluster, Metadata: metadata},
		Relay: relaySocket(c), Secrets: secrets,
		Admin:      envoy.Endpoint{Port: c.Ports.Admin},
		Family:     family(c.Pod.Addresses),
		Prometheus: c.Ports.Prometheus, PrometheusLocal: c.Callers.Metrics != nil,
		Stats:       envoy.Stats{Prefixes: c.Envoy.Stats.Prefixes, Suffixes: c.Envoy.Stats.Suffixes, Regexps: c.Envoy.Stats.Regexps},
		Log:         envoy.Log{Level: c.Envoy.Level, Components: c.Envoy.Components},
		Concurrency: c.Envoy.Concurrency,
		DrainTime:   c.Envoy.DrainTime,
		Extra:       c.Envoy.Extra,
	}
}

// copies lets Envoys that are started later hand out copies of their listening sockets, until
// ctx ends. It returns nil if that is not needed or does not work.
func (a *agent) copies(ctx context.Context) standby.Copies {
	if len(a.standbys.options) == 0 {
		return nil
	}
	hot, err := envoy.NewHotRestart(a.config.Work)
	if err == nil {
		var s *envoy.Sockets
		if s, err = hot.Listen(); err == nil {
			a.envoy.HotRestart = hot
			context.AfterFunc(ctx, func() { s.Close() })
			return s.Copy
		}
	}
	a.log.Warn(noCopies, "error", err)
	return nil
}

const noCopies = "connections that Envoy has not accepted when it ends will be reset: there are no copies of its sockets"

// hotRestart returns the hot restart options for the Envoy that is started now.
func (a *agent) hotRestart() envoy.HotRestart {
	hot := a.envoy.HotRestart
	if hot == (envoy.HotRestart{}) {
		return hot
	}
	if err := hot.Check(); err != nil {
		a.log.Warn(noCopies, "error", err)
		return envoy.HotRestart{}
	}
	return hot
}

// family returns the IP families of the pod's addresses.
func family(addresses []netip.Addr) envoy.Family {
	var v4, v6 bool
	for _, a := range addresses {
		v4 = v4 || a.Unmap().Is4()
		v6 = v6 || a.Is6() && !a.Is4In6()
	}
	switch {
	case v4 && v6:
		return envoy.Dual
	case v6:
		return envoy.IPv6
	}
	return envoy.IPv4
}

// line handles a line of Envoy's log: it logs the line, and passes it on to the readiness check.
func (a *agent) line(raw []byte) {
	l := envoy.ParseLine(raw)
	a.proxy.LogLine(l)
	// The agent sets the level of "config" to info, because these lines tell it that Envoy is
	// ready. They are logged only if the user configured that component.
	if _, configured := a.current.get().Envoy.Components["config"]; !configured && l.Component == "config" && l.Level == slog.LevelInfo {
		return
	}
	if err := l.Log(context.Background(), a.log.Handler()); err != nil {
		a.log.Error("logging a line of Envoy's", "error", err)
	}
}

func explain(e supervise.Exit) (string, bool) {
	cause := envoy.Explain(e.Tail)
	return cause.Reason, cause.Final
}
