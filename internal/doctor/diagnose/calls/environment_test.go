package calls

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"outrider.dev/internal/doctor/evidence"
)

// A call of which the log names no destination has that of the environment, if only one variable fits.
func TestFromEnvironment(t *testing.T) {
	const pdo, plain = "SQLSTATE[HY000] [2002] Connection refused", "connect: Connection refused"
	for name, c := range map[string]struct {
		line string
		env  []string // name, value
		want string
	}{
		"host and port":                 {pdo, []string{"DB_HOST", "10.40.12.9", "DB_PORT", "3307"}, "10.40.12.9:3307"},
		"host alone":                    {pdo, []string{"DB_HOST", "shop-db", "LOG_LEVEL", "info"}, "shop-db:3306"},
		"of another kind of server":     {pdo, []string{"REDIS_HOST", "cache"}, ""},
		"two kinds of servers":          {pdo, []string{"DB_HOST", "db", "REDIS_URL", "redis://cache:6379/0"}, "db:3306"},
		"two of that kind":              {pdo, []string{"DB_HOST", "db", "MYSQL_HOST", "other"}, ""},
		"two of that kind, one address": {pdo, []string{"DB_HOST", "db", "MYSQL_HOST", "db"}, "db:3306"},
		"any URL":                       {plain, []string{"CONFIG_URL", "http://config:8888/"}, "config:8888"},
		"two URLs":                      {plain, []string{"CONFIG_URL", "http://config:8888/", "PRICES_URL", "http://prices/"}, ""},
		"telemetry":                     {plain, []string{"OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4317", "DD_AGENT_HOST", "10.0.0.1"}, ""},
		"a host without a port":         {plain, []string{"DB_HOST", "db"}, ""},
		"a port that is none":           {pdo, []string{"DB_HOST", "db", "DB_PORT", "$(PORT)"}, ""},
		"a value from elsewhere":        {plain, []string{"CONFIG_URL", "http://config:8888/", "OTHER", "\x00"}, ""},
		"of that kind from elsewhere":   {pdo, []string{"DB_HOST", "db", "API_KEY", "\x00"}, "db:3306"},
		"no environment":                {plain, nil, ""},
	} {
		spec := corev1.Container{Name: "web"}
		for i := 0; i < len(c.env); i += 2 {
			e := corev1.EnvVar{Name: c.env[i], Value: c.env[i+1]}
			if e.Value == "\x00" {
				e.Value, e.ValueFrom = "", &corev1.EnvVarSource{}
			}
			spec.Env = append(spec.Env, e)
		}
		p := &evidence.Pod{Object: &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{spec}}}}
		to, _, is := presume(p, "web", nil, evidence.Hit{Line: evidence.Line{Text: []byte(c.line)}}, false)
		if got := to.String(); is != (c.want != "") || is && got != c.want {
			t.Errorf("%s: %s %t, want %q", name, got, is, c.want)
		}
	}
}

// The quote of a variable shows no secret.
func TestEnvironmentShowsNoSecrets(t *testing.T) {
	p := &evidence.Pod{Object: &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Env: []corev1.EnvVar{{Name: "DATABASE_URL", Value: "postgres://u:hunter2-in-a-url@db:5432/x"}}}}}}}
	_, q := fromEnvironment(p, "web", family{}, false)
	if q == nil || q.Text != "the environment of web has DATABASE_URL=postgres://(masked)@db:5432/x" {
		t.Errorf("%+v", q)
	}
}
