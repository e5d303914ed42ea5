package lint

import (
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"outrider.dev/internal/pod/podspec"
	"outrider.dev/startup"
)

// initNeedsNetwork: an init container connects while connections are captured and the
// proxy does not run yet.
func initNeedsNetwork(s subject, b *builder) {
	if !s.captured() || s.kind() == startup.Sidecar {
		return
	}
	captured := s.injected // ours comes first of all
	p := s.plan.Expand()
	for _, m := range s.members() {
		if podspec.OfMesh(m.Name) {
			captured = captured || m.Name != s.proxy
			continue
		}
		field, evidence, needs := m.needsNetwork()
		if m.kind == startup.Plain || !captured || !needs || slices.ContainsFunc(s.bypasses(), func(b podspec.Bypass) bool { return b.Container == m.Name }) ||
			slices.ContainsFunc(p.Edges, func(e startup.Edge) bool { return e.From == s.proxy && e.To == m.Name }) {
			continue
		}
		c := clue{code: "init-needs-network", title: fmt.Sprintf("%s connects to others, and runs before %s does", m.Name, s.proxy), field: field, evidence: evidence,
			why:    "its connections are redirected to a proxy that starts only after all init containers have ended: they are refused, or wait, and the pod stays in Init",
			do:     fmt.Sprintf("let %s wait for %s, which makes the proxy a sidecar that starts first (Kubernetes 1.29 and later)%s", m.Name, s.proxy, withOtherMesh(s.proxy)),
			source: "istio/istio#11130, #36681; kubelet v1.34.4 computeInitContainerActions"}
		if s.injected && s.on >= 29 {
			c.fix = s.requesting(&s.Pod, s.edges([]string{m.Name}))
		}
		b.add(c)
	}
}

// bypasses are the containers whose connections are not captured, because of their user or group.
func (s *subject) bypasses() []podspec.Bypass {
	i := slices.IndexFunc(podspec.Meshes, func(m podspec.Mesh) bool { return m.Proxy == s.proxy })
	if i < 0 {
		return nil
	}
	user := podspec.Meshes[i].User
	return podspec.Bypasses(&s.Pod, user, user)
}

// clients are programs that need a network.
var clients = []string{"curl", "wget", "nc", "ncat", "git", "psql", "pg_isready", "mysql", "mysqladmin", "redis-cli", "mongosh", "kubectl", "helm", "aws", "gcloud",
	"gsutil", "az", "ping", "nslookup", "dig", "apk", "apt-get", "pip", "npm", "flyway", "liquibase", "alembic", "goose", "dbmate", "migrate", "wait-for-it.sh", "wait-for", "dockerize"}

var (
	address  = regexp.MustCompile(`\b[a-z][a-z0-9+.-]*://[^\s"']+`)
	loopback = regexp.MustCompile(`://([^/@\s]*@)?(localhost|127\.0\.0\.1|\[::1\])`)
	wordsOf  = regexp.MustCompile(`[^\s;&|()"'` + "`" + `]+`)
)

// needsNetwork reports whether a container looks like a client, and by what.
func (m member) needsNetwork() (path, string, bool) {
	for i, word := range m.argv() {
		field := m.field.plus("command", i)
		if i >= len(m.Command) {
			field = m.field.plus("args", i-len(m.Command))
		}
		if a := address.FindString(word); a != "" && !loopback.MatchString(a) && !strings.HasPrefix(a, "file:") {
			return field, a, true
		}
		for _, w := range wordsOf.FindAllString(word, -1) {
			if slices.Contains(clients, filepath.Base(w)) && !onlyLocal(word) {
				return field, w, true
			}
		}
	}
	for i, e := range m.Env {
		if a := address.FindString(e.Value); a != "" && !loopback.MatchString(a) && !strings.HasPrefix(a, "file:") {
			return m.field.plus("env", i, "value"), a, true
		}
		if isAddressOf(e) {
			return m.field.plus("env", i, "name"), e.Name, true
		}
	}
	return nil, "", false
}

// onlyLocal reports whether a script connects to this pod only.
func onlyLocal(script string) bool {
	return strings.Contains(script, "localhost") || strings.Contains(script, "127.0.0.1") || strings.Contains(script, "[::1]")
}

// isAddressOf reports whether a variable holds the address of a server.
func isAddressOf(e corev1.EnvVar) bool {
	if e.Value == "" && e.ValueFrom == nil || strings.Contains(e.Value, "localhost") || strings.Contains(e.Value, "127.0.0.1") {
		return false
	}
	name := strings.ToUpper(e.Name)
	return slices.ContainsFunc([]string{"DATABASE_URL", "DB_HOST", "PGHOST", "MYSQL_HOST", "REDIS_HOST", "VAULT_ADDR"}, func(n string) bool { return strings.HasSuffix(name, n) })
}
