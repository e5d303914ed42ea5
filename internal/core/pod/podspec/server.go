package podspec

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"outrider.dev/internal/core/pod/shell"
)

// servers lists names of programs and images that run until they get a signal: proxies, databases, and agents
// that people run next to an app.
var servers = []string{"cloud-sql-proxy", "cloud_sql_proxy", "gce-proxy", "alloydb-auth-proxy", "pgbouncer", "envoy", "nginx", "nginx-unprivileged", "haproxy", "oauth2-proxy",
	"redis", "redis-server", "valkey", "postgres", "mysqld", "mariadb", "mongod", "mongo", "rabbitmq", "memcached", "dockerd",
	"fluent-bit", "fluentd", "filebeat", "promtail", "vector", "telegraf", "statsd-exporter", "opentelemetry-collector", "opentelemetry-collector-contrib", "otelcol", "otel-agent",
	"daprd", "consul-dataplane", "pilot-agent", "linkerd2-proxy", "kuma-dp"}

// IsServer reports whether a container is known to run until it gets a signal. It is recognised by its program,
// or by the image if the pod sets no program.
func IsServer(c *corev1.Container) bool {
	argv := argvOf(c)
	if len(c.Command) == 0 && (len(argv) == 0 || strings.HasPrefix(argv[0], "-") || strings.Contains(argv[0], ":")) {
		return slices.Contains(servers, ImageName(c.Image)) || ImageName(c.Image) == "docker" && strings.HasSuffix(c.Image, "dind")
	}
	calls := shell.Calls(argv)
	if len(calls) == 0 {
		return false
	}
	last := calls[len(calls)-1] // the program that the script runs last
	return last.Final && slices.Contains(servers, last.Program) && !slices.Contains(last.Args, "--version")
}
