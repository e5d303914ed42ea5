package calls

import (
	"bytes"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"outrider.dev/internal/doctor"
	"outrider.dev/internal/doctor/evidence"
)

// A family is a kind of server whose clients write errors without an address. The environment of the container has it.
type family struct {
	says  *regexp.Regexp // the words of its clients, in lower case
	names []string       // parts of the names of variables that have its address
	port  uint16         // where such a server listens, unless it is set to another port
}

// families has the kinds of servers; the first whose words a line has counts.
var families = []family{
	{regexp.MustCompile(`\[2002\]|mysql|mariadb|communications link failure`), []string{"MYSQL", "MARIADB", "DB", "DATABASE", "DATASOURCE"}, 3306},
	{regexp.MustCompile(`psycopg|postgres|pgsql|\bpq:|\bpg::|\[08006\]|npgsql|dbname=`), []string{"PG", "POSTGRES", "DB", "DATABASE", "DATASOURCE"}, 5432},
	{regexp.MustCompile(`redis|lettuce|jedis`), []string{"REDIS", "CACHE"}, 6379},
	{regexp.MustCompile(`amqp|rabbit|\bpika\b`), []string{"AMQP", "RABBIT", "BROKER"}, 5672},
	{regexp.MustCompile(`mongo`), []string{"MONGO", "DB", "DATABASE"}, 27017},
	{regexp.MustCompile(`kafka`), []string{"KAFKA", "BROKER", "BOOTSTRAP"}, 9092},
	{regexp.MustCompile(`memcache`), []string{"MEMCACHE", "CACHE"}, 11211},
	{regexp.MustCompile(`ldap`), []string{"LDAP"}, 389},
	{regexp.MustCompile(`nacos`), []string{"NACOS"}, 8848},
	{regexp.MustCompile(`elastic|opensearch`), []string{"ELASTIC", "OPENSEARCH", "ES_"}, 9200},
	{regexp.MustCompile(`dapr`), []string{"DAPR"}, 3500},
}

// telemetry are parts of the names of variables whose address a program calls beside its work: it does not end without it.
var telemetry = []string{"OTEL", "STATSD", "JAEGER", "ZIPKIN", "DD_", "DATADOG", "SENTRY", "METRICS", "PYROSCOPE", "NO_PROXY", "SYSLOG"}

// hosts match the names of variables that have a host, whose port is in a variable of its own.
var hosts = regexp.MustCompile(`^(.*?)_?(?:HOSTNAME|HOST|ADDRESS|ADDR|SERVER|SERVICE)$`)

// familyOf returns the kind of server whose client wrote a line; false if the line does not tell.
func familyOf(line []byte) (family, bool) {
	lower := bytes.ToLower(line)
	if i := slices.IndexFunc(families, func(f family) bool { return f.says.Match(lower) }); i >= 0 {
		return families[i], true
	}
	return family{}, false
}

// fromEnvironment returns the destination that the environment of a container has for a call of which the log names none,
// and a quote of the variable. It returns nil if there is none, or more than one.
func fromEnvironment(p *evidence.Pod, container string, kind family, secrets bool) (doctor.Destination, *evidence.Quote) {
	spec := p.Spec(container)
	if spec == nil {
		return doctor.Destination{}, nil
	}
	hidden := p.Omitted.Spec || len(spec.EnvFrom) > 0 // another variable may have another address
	var to doctor.Destination
	var of corev1.EnvVar
	for _, e := range spec.Env {
		name := strings.ToUpper(e.Name)
		if slices.ContainsFunc(telemetry, func(t string) bool { return strings.Contains(name, t) }) ||
			len(kind.names) > 0 && !slices.ContainsFunc(kind.names, func(n string) bool { return strings.Contains(name, n) }) {
			continue
		}
		hidden = hidden || e.ValueFrom != nil && kind.port == 0
		d, is := inVariable(e, spec.Env, kind.port)
		if !is {
			continue
		}
		if to.Known() && d != to {
			return doctor.Destination{}, nil
		}
		to, of = d, e
	}
	if !to.Known() || hidden && kind.port == 0 {
		return doctor.Destination{}, nil
	}
	return to, &evidence.Quote{Source: p.Source, Text: evidence.Show(fmt.Appendf(nil, "the environment of %s has %s=%s", container, of.Name, of.Value), secrets)}
}

// inVariable returns the destination in a variable: a URL, an address with its port, or a host whose port is in another
// variable or is usual.
func inVariable(e corev1.EnvVar, all []corev1.EnvVar, usual uint16) (doctor.Destination, bool) {
	for _, found := range endpoints(escapes.Replace(e.Value)) {
		if found.Port > 0 {
			return found.Destination, true
		}
	}
	m := hosts.FindStringSubmatch(strings.ToUpper(e.Name))
	if m == nil || e.Value == "" || strings.ContainsAny(e.Value, "/ ,;=$") {
		return doctor.Destination{}, false
	}
	d := doctor.Destination{Host: strings.ToLower(e.Value), Port: usual}
	for _, o := range all {
		if rest, is := strings.CutPrefix(strings.ToUpper(o.Name), m[1]); is && strings.Trim(rest, "_") == "PORT" {
			n, err := strconv.ParseUint(o.Value, 10, 16)
			if err != nil {
				return doctor.Destination{}, false
			}
			d.Port = uint16(n)
		}
	}
	return d, d.Port > 0
}
