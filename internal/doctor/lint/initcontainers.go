package lint

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"outrider.dev/internal/core/pod/knownproxy"
	"outrider.dev/internal/core/pod/podspec"
	"outrider.dev/internal/core/pod/shell"
	"outrider.dev/startup"
)

// initNeedsNetwork finds init containers that connect to other pods or hosts when connections are already captured,
// but the proxy does not run yet.
func initNeedsNetwork(s subject, b *builder) {
	for _, name := range s.cutOff() {
		m, ok := s.member(name)
		if !ok {
			continue
		}
		field, evidence, needs := m.needsNetwork()
		if !needs || slices.ContainsFunc(s.bypasses(), func(b podspec.Bypass) bool { return b.Container == name }) {
			continue
		}
		c := clue{code: "init-needs-network", title: fmt.Sprintf("%s connects to others, and runs before %s does", m.Name, s.proxy), field: field, evidence: evidence,
			why:    "its connections are redirected to a proxy that starts only after all init containers have ended: they are refused, or wait, and the pod stays in Init",
			do:     fmt.Sprintf("let %s wait for %s, which makes the proxy a sidecar that starts first (Kubernetes 1.29 and later)%s", m.Name, s.proxy, s.withOtherMesh(s.proxy)),
			source: "istio/istio#11130, #36681; kubelet v1.34.4 computeInitContainerActions"}
		if s.proxy == istioProxy {
			c.do = "with Istio alone: annotate sidecar.istio.io/nativeSidecar: \"true\" (Kubernetes 1.29 and later) and inject again, or exclude the address (traffic.sidecar.istio.io/excludeOutboundIPRanges)"
		}
		if s.injected && s.on >= 29 {
			c.fix = s.requesting(&s.Pod, s.edges([]string{m.Name}))
		}
		b.add(c)
	}
}

// cutOff returns the init containers that have no network: in the injected pod, they run after the container that
// writes the capture rules, and before the proxy.
func (s *subject) cutOff() []string {
	if !s.captured() {
		return nil
	}
	var out []string
	captured := false
	p := s.run.Expand()
	for _, c := range s.asRun().Spec.InitContainers {
		switch {
		case c.Name == s.proxy:
			return out // all containers after this one start when the proxy runs
		case knownproxy.OfMesh(c.Name):
			captured = true
		case captured && !slices.ContainsFunc(p.Edges, func(e startup.Edge) bool { return e.From == s.proxy && e.To == c.Name }):
			out = append(out, c.Name)
		}
	}
	return out
}

// bypasses returns the containers that run as the proxy's user or group, so that their connections are not captured.
func (s *subject) bypasses() []podspec.Bypass {
	mesh, known := knownproxy.MeshOf(s.proxy)
	if !known {
		return nil
	}
	return podspec.Bypasses(&s.Pod, mesh.User, mesh.User)
}

// clients maps client programs to the subcommands that connect to a server. nil means that each call connects.
var clients = map[string][]string{
	"curl": nil, "wget": nil, "nc": nil, "ncat": nil, "ping": nil, "nslookup": nil, "dig": nil,
	"git":  {"clone", "fetch", "pull", "push", "ls-remote", "submodule"},
	"psql": nil, "pg_isready": nil, "mysql": nil, "mysqladmin": nil, "redis-cli": nil, "mongosh": nil,
	"kubectl": nil, "helm": {"install", "upgrade", "pull", "repo", "dependency"}, "aws": nil, "gcloud": nil, "gsutil": nil, "az": nil,
	"apk": {"add", "update", "upgrade"}, "apt-get": {"install", "update", "upgrade"}, "pip": {"install", "download"}, "npm": {"install", "ci", "update"},
	"flyway": nil, "liquibase": nil, "alembic": nil, "goose": nil, "dbmate": nil, "migrate": nil,
}

// databaseClients lists clients that connect to a local socket if their arguments name no host.
var databaseClients = []string{"psql", "pg_isready", "mysql", "mysqladmin", "redis-cli", "mongosh"}

// offline lists programs that never connect to a server.
var offline = []string{"echo", "printf", "sed", "awk", "cat", "cp", "mv", "rm", "mkdir", "chown", "chmod", "ln", "tee", "tar", "test", "[", "true", ":", "export", "set", "grep",
	"touch", "find", "sysctl", "ls", "install", "openssl", "keytool", "envsubst", "sleep", "cd", "exit", "date", "id", "ulimit", "unzip", "gzip", "base64", "busybox", "setcap", "mount", "modprobe",
	"hostname", "uname", "whoami", "wc", "head", "tail", "cut", "tr", "sort", "command", "trap", "read", "break", "continue", "let", "expr"}

var (
	address  = regexp.MustCompile(`\b[a-z][a-z0-9+.-]*://[^\s"']+`)
	database = regexp.MustCompile(`\b(postgres|postgresql|mysql|mariadb|mongodb|mongodb\+srv|redis|rediss|amqp|amqps|kafka|nats)://`)
)

// needsNetwork reports whether a container looks like a client. field and evidence show why: a word of its command
// or, if the programs of the command are not known, a variable of its environment.
func (m member) needsNetwork() (field path, evidence string, needs bool) {
	argv := podspec.CommandLine(m.Container)
	calls := shell.Calls(argv)
	known := len(calls) > 0
	for _, c := range calls {
		if text, connects := connectsTo(c, m.env()); connects {
			return m.wordAt(c.Word), text, true
		}
		known = known && (slices.Contains(offline, c.Program) || isClient(c.Program))
	}
	if known {
		return nil, "", false
	}
	for i, e := range m.Env {
		if a := address.FindString(e.Value); a != "" && database.MatchString(a) && !shell.IsLocal(a) {
			return m.field.plus("env", i, "value"), a, true
		}
		if isAddressOf(e) {
			return m.field.plus("env", i, "name"), e.Name, true
		}
	}
	return nil, "", false
}

// offline reports whether all programs of the container's command line never connect to a server.
func (m member) offline() bool {
	calls := shell.Calls(podspec.BehindGate(m.Container))
	return len(calls) > 0 && !slices.ContainsFunc(calls, func(c shell.Call) bool { return !slices.Contains(offline, c.Program) })
}

// wordAt returns the field of word i of the command line, an element of command or args. If the program is in the
// image and not in the pod spec, word 0 is in no element; wordAt then returns args.
func (m member) wordAt(i int) path {
	switch {
	case i < len(m.Command):
		return m.field.plus("command", i)
	case len(m.Command) == 0 && i == 0 && podspec.CommandLine(m.Container)[0] != m.argv()[0]:
		return m.field.plus("args")
	}
	return m.field.plus("args", i-len(m.Command))
}

func (m member) env() []string {
	var out []string
	for _, e := range m.Env {
		out = append(out, e.Name)
	}
	return out
}

func isClient(program string) bool {
	_, is := clients[program]
	return is || slices.Contains(addressWaits, program)
}

// connectsTo reports whether a call connects to another pod or host, and returns the word that shows it.
func connectsTo(c shell.Call, env []string) (string, bool) {
	text := strings.Join(c.Args, " ")
	if slices.Contains(offline, c.Program) || shell.IsLocal(text) {
		return "", false
	}
	for _, word := range c.Args {
		if a := address.FindString(word); a != "" && !strings.HasPrefix(a, "file:") && !strings.HasPrefix(a, "unix:") {
			return a, true
		}
	}
	subcommands := clients[c.Program]
	switch {
	case !isClient(c.Program), len(c.Args) == 0, slices.ContainsFunc(c.Args, func(a string) bool { return a == "--version" || a == "--help" || a == "--client" }):
		return "", false
	case subcommands != nil && !slices.ContainsFunc(c.Args, func(a string) bool { return slices.Contains(subcommands, a) }):
		return "", false
	case slices.Contains([]string{"nc", "ncat"}, c.Program) && slices.ContainsFunc(c.Args, func(a string) bool { return listens.MatchString(a) }):
		return "", false
	case slices.Contains(databaseClients, c.Program):
		named := slices.ContainsFunc(c.Args, func(a string) bool { return strings.HasPrefix(a, "-h") || strings.HasPrefix(a, "--host") })
		return c.Program, named || slices.Contains(env, "PGHOST") || slices.Contains(env, "MYSQL_HOST")
	}
	return c.Program, true
}

var listens = regexp.MustCompile(`^-[a-z]*l`)

// isAddressOf reports whether a variable contains the address of a server, by its name.
func isAddressOf(e corev1.EnvVar) bool {
	if e.Value == "" && e.ValueFrom == nil || shell.IsLocal(e.Value) || strings.HasPrefix(e.Value, "/") {
		return false
	}
	name := strings.ToUpper(e.Name)
	return slices.ContainsFunc([]string{"DATABASE_URL", "DB_HOST", "PGHOST", "MYSQL_HOST", "REDIS_HOST", "VAULT_ADDR"}, func(n string) bool { return strings.HasSuffix(name, n) })
}
