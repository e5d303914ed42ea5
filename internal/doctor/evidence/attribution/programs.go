package attribution

import (
	"regexp"
	"slices"

	"outrider.dev/internal/doctor/evidence"
)

// A program is recognised by the lines that it writes.
type program struct {
	name       string
	line       *regexp.Regexp
	containers []string // names of containers that run it, the usual one first
	words      []string // of the names and images of other containers that run it
	anywhere   bool     // it is a program of applications: in a pod of which no name or image has its words it may run too
}

// programs has the forms of programs that run beside applications, and of some that are applications. The first that fits
// counts. Sources: what the programs print at their start, in their releases of 2021 to 2025.
var programs = []program{
	{name: "the agent of Linkerd's proxy", line: regexp.MustCompile(`(?m)\blinkerd2_proxy\b|\blinkerd_(?:app|reconnect|proxy|stack)\b`), containers: []string{"linkerd-proxy"}, words: []string{"linkerd", "linkerd2"}},
	{name: "daprd", line: regexp.MustCompile(`(?m)\bscope="?dapr\.|"scope":\s?"dapr\.`), containers: []string{"daprd"}, words: []string{"dapr", "daprd"}},
	{name: "kuma-dp", line: regexp.MustCompile(`(?m)^\S+\s+INFO\s+(?:kuma-dp|dns-server|dataplane)\b|\bkuma-dp\.run\b`), containers: []string{"kuma-sidecar"}, words: []string{"kuma"}},
	{name: "consul-dataplane", line: regexp.MustCompile(`(?m)\]\s+consul-dataplane\b`), containers: []string{"consul-dataplane"}, words: []string{"consul"}},
	{name: "the Cloud SQL proxy", line: regexp.MustCompile(`(?m)^\S+ \S+ (?:current FDs rlimit set|using credential file for authentication; email=|Listening on \S+ for [\w-]+:[\w-]+:[\w-]+)|The proxy has started successfully and is ready for new connections|\[[\w-]+:[\w-]+:[\w-]+\] (?:Listening on|Accepted connection|accepted connection)`),
		containers: []string{"cloud-sql-proxy", "cloudsql-proxy"}, words: []string{"cloudsql"}},
	{name: "Istio's init container", line: regexp.MustCompile(`(?m)\bISTIO_(?:INBOUND|OUTPUT|REDIRECT|IN_REDIRECT)\b|^ENVOY_PORT=`), containers: []string{"istio-init", "istio-validation"}, words: nil},
	{name: "Istio's agent", line: regexp.MustCompile(`(?m)^\S+Z\t(?:info|warn|error)\t(?:(?:xdsproxy|ca|sds|cache|citadelclient|dns|delta|healthcheck)\t|.*(?:Envoy proxy is |Pilot SAN|CA Endpoint |FLAG: --|Starting proxy agent|Workload SDS|Readiness succeeded|JWT policy|Envoy aborted|Epoch \d))`),
		containers: []string{"istio-proxy", "outrider-proxy"}, words: []string{"proxyv2"}},
	{name: "Envoy", line: regexp.MustCompile(`(?m)^\[\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d\.\d{3}Z?\](?:\[\d+\]\[(?:trace|debug|info|warning|error|critical)\]| "[A-Z]+ \S+ HTTP/)`),
		containers: []string{"istio-proxy", "outrider-proxy", "envoy", "envoy-sidecar", "kuma-sidecar", "consul-dataplane"}, words: []string{"envoy", "proxyv2", "envoyproxy"}},
	{name: "Vault's agent", line: regexp.MustCompile(`(?m)^==> Vault Agent |\bagent\.(?:auth\.handler|sink\.file|template\.server)\b`), containers: []string{"vault-agent", "vault-agent-init"}, words: []string{"vault"}},
	{name: "Flyway", line: regexp.MustCompile(`(?m)^Flyway .*(?:Edition|by Redgate|by Boxfuse)`), words: []string{"flyway", "migrate", "migration", "migrations"}, anywhere: true},
	{name: "Alembic", line: regexp.MustCompile(`(?m)\[alembic\.`), words: []string{"alembic", "migrate", "migration", "migrations"}, anywhere: true},
	{name: "Redis", line: regexp.MustCompile(`(?m)^\d+:[XCSM] \d\d \w{3} \d{4} `), words: []string{"redis", "valkey", "sentinel"}, anywhere: true},
	{name: "PostgreSQL", line: regexp.MustCompile(`(?m)^\d{4}-\d\d-\d\d \S+ \w+ \[\d+\] (?:LOG|FATAL|ERROR|HINT|PANIC|DETAIL):  `), words: []string{"postgres", "postgresql", "pg", "patroni", "db"}, anywhere: true},
	{name: "MySQL", line: regexp.MustCompile(`(?m)\[(?:Note|System|ERROR|Warning)\] \[MY-\d+\]`), words: []string{"mysql", "mariadb", "percona", "db"}, anywhere: true},
	{name: "nginx", line: regexp.MustCompile(`(?m)^\d{4}/\d\d/\d\d \d\d:\d\d:\d\d \[(?:notice|warn|error|emerg|crit|alert)\] \d+#\d+: `), words: []string{"nginx", "web", "proxy", "frontend"}, anywhere: true},
	{name: "Sidekiq", line: regexp.MustCompile(`(?m)\bBooting Sidekiq\b`), words: []string{"sidekiq", "worker"}, anywhere: true},
}

// programOf returns the program that wrote a log; nil: it is not known.
func programOf(head []byte) *program {
	for i := range programs {
		if programs[i].line.Match(head) {
			return &programs[i]
		}
	}
	return nil
}

// runs reports whether a container runs the program, by its name or its image.
func (of *program) runs(p *evidence.Pod, c *evidence.Container) bool {
	if slices.Contains(of.containers, c.Name) || hasWord(c.Name, of.words) {
		return !machinery.MatchString(c.Name) || slices.Contains(of.containers, c.Name)
	}
	spec := p.Spec(c.Name)
	return spec != nil && hasWord(spec.Image, of.words) && !machinery.MatchString(c.Name)
}

// in returns the only container of a pod that runs the program; false: none does, or several.
func (of *program) in(p *evidence.Pod) (name string, ok bool) {
	for _, c := range p.Containers {
		if !of.runs(p, c) {
			continue
		}
		if name != "" {
			return "", false
		}
		name = c.Name
	}
	return name, name != ""
}
