package podspec

import (
	"path"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"outrider.dev/internal/core/pod/knownproxy"
	"outrider.dev/internal/core/pod/shell"
	"outrider.dev/startup"
)

// servers maps names of programs and images that run until they get a signal (proxies, databases, and agents that people
// run next to an app) to the TCP ports on which they listen unless they are told otherwise.
var servers = map[string][]int{
	"cloud-sql-proxy": {3306, 5432, 1433}, "cloud_sql_proxy": nil, "gce-proxy": nil, "alloydb-auth-proxy": {5432}, "pgbouncer": {6432, 5432},
	"envoy": nil, "nginx": nil, "nginx-unprivileged": nil, "haproxy": nil, "oauth2-proxy": {4180}, "traefik": nil, "caddy": nil, "httpd": nil, "registry": {5000},
	"redis": {6379}, "redis-server": {6379}, "valkey": {6379}, "valkey-server": {6379}, "postgres": {5432}, "mysqld": {3306}, "mysql": {3306}, "mariadb": {3306}, "mariadbd": {3306}, "mongod": {27017}, "mongo": {27017},
	"rabbitmq": {5672}, "rabbitmq-server": {5672}, "memcached": {11211}, "nats-server": {4222}, "etcd": {2379}, "localstack": {4566}, "buildkitd": {1234},
	"dockerd": {2375, 2376}, "dockerd-entrypoint.sh": {2375, 2376},
	"fluent-bit": nil, "fluentd": {24224}, "filebeat": nil, "promtail": nil, "vector": nil, "telegraf": nil, "statsd-exporter": nil, "statsd_exporter": nil,
	"opentelemetry-collector": {4317, 4318}, "opentelemetry-collector-contrib": {4317, 4318}, "opentelemetry-collector-k8s": {4317, 4318}, "otelcol": {4317, 4318}, "otelcol-contrib": {4317, 4318}, "otel-agent": nil,
	"daprd": {3500, 50001}, "consul-dataplane": nil, "pilot-agent": nil, "linkerd2-proxy": nil, "kuma-dp": nil, "pause": nil,
}

// serverOf returns the name in servers of the program that a container runs, or of the image if the pod sets no program.
// It is empty if the container is no known server.
func serverOf(c *corev1.Container) string {
	argv := argvOf(c)
	name := ImageName(c.Image)
	if len(c.Command) == 0 && (len(argv) == 0 || strings.HasPrefix(argv[0], "-") || strings.Contains(argv[0], ":")) {
		if name == "docker" && strings.Contains(c.Image, "dind") {
			name = "dockerd"
		}
	} else {
		calls := shell.Calls(argv)
		if len(calls) == 0 {
			return ""
		}
		last := calls[len(calls)-1] // the program that the script runs last
		if name = last.Program; !last.Final || slices.ContainsFunc(last.Args, func(a string) bool { return slices.Contains(noServer, a) }) {
			return ""
		}
	}
	if _, is := servers[name]; !is {
		return ""
	}
	return name
}

// noServer lists arguments with which a server does something else and ends.
var noServer = []string{"--version", "version", "--help", "wait", "shutdown"}

// IsServer reports whether a container is known to run until it gets a signal. It is recognised by its program,
// or by the image if the pod sets no program.
func IsServer(c *corev1.Container) bool { return serverOf(c) != "" }

// helperNames are parts of names and images of containers that usually serve others and do not end by themselves.
var helperNames = []string{"proxy", "sidecar", "agent", "fluent", "filebeat", "promtail", "vector", "collector", "otel", "otc-", "exporter", "statsd", "dind", "docker", "vault", "envoy", "daprd", "pgbouncer", "log-"}

// Serves reports whether a container serves others and does not end by itself, and whether that is certain: by its program,
// as a known proxy, or because its command has no end.
func Serves(c *corev1.Container) (is, certain bool) {
	if knownproxy.IsProxy(c) || knownproxy.OfMesh(c.Name) || IsServer(c) || shell.Endless(argvOf(c)) {
		return true, true
	}
	text := strings.ToLower(c.Name + " " + ImageName(c.Image))
	return slices.ContainsFunc(helperNames, func(part string) bool { return strings.Contains(text, part) }), false
}

// Declares reports whether a container declares a port, of whatever protocol.
func Declares(c *corev1.Container, port int) bool {
	return slices.ContainsFunc(c.Ports, func(p corev1.ContainerPort) bool { return int(p.ContainerPort) == port })
}

// ListensOn reports whether a container listens on a TCP port: it declares the port or has a probe of it, or it serves
// others and its command line names the port, or names none and the port is the usual one of its program.
func ListensOn(c *corev1.Container, port int) bool {
	if Declares(c, port) {
		return true
	}
	for _, p := range []*corev1.Probe{c.ReadinessProbe, c.StartupProbe, c.LivenessProbe} {
		if p != nil && (p.HTTPGet != nil && PortNumber(c, p.HTTPGet.Port) == port || p.TCPSocket != nil && PortNumber(c, p.TCPSocket.Port) == port) {
			return true
		}
	}
	if is, _ := Serves(c); !is {
		return false
	}
	number, named := strconv.Itoa(port), false
	for _, word := range argvOf(c) {
		named = named || strings.Contains(word, "port") || strings.Contains(word, "tcp:")
		if slices.Contains(strings.FieldsFunc(word, func(r rune) bool { return r < '0' || r > '9' }), number) {
			return true
		}
	}
	return !named && slices.Contains(servers[serverOf(c)], port)
}

// Socket returns the unix socket on which a container listens, or the folder of its sockets, which ends with a slash; empty
// if none is known. Sources: dockerd --help; Cloud SQL Auth Proxy --help of versions 1 and 2.
func Socket(c *corev1.Container) string {
	server := serverOf(c)
	if _, docker := strings.CutPrefix(server, "dockerd"); docker {
		for _, word := range argvOf(c) {
			if _, at, ok := strings.Cut(word, "unix://"); ok {
				return at
			}
		}
		return "/var/run/docker.sock"
	}
	if !slices.Contains(ofCloud, server) {
		return ""
	}
	argv := argvOf(c)
	for i, word := range argv {
		option, value, joined := strings.Cut(strings.TrimLeft(word, "-"), "=")
		if !joined && i+1 < len(argv) {
			value = argv[i+1]
		}
		if slices.Contains([]string{"unix-socket", "u", "dir"}, option) && strings.HasPrefix(word, "-") && path.IsAbs(value) {
			return strings.TrimRight(value, "/") + "/"
		}
	}
	return ""
}

// ofCloud has the servers that listen on TCP unless they are told to listen on unix sockets.
var ofCloud = []string{"cloud-sql-proxy", "cloud_sql_proxy", "gce-proxy", "alloydb-auth-proxy"}

// HasSocket reports whether the program of a container listens on TCP or on unix sockets, as its flags say.
func HasSocket(c *corev1.Container) bool { return slices.Contains(ofCloud, serverOf(c)) }

// quits lists texts in a command line, a hook or a variable that show that a container ends a proxy beside it. The words of
// one entry need not be next to each other.
var quits = []string{"quitquitquit", "ISTIO_QUIT_API", "scuttle", "envoy-preflight", "linkerd-await --shutdown", "linkerd-await -S", ":4191/shutdown", "cloud-sql-proxy shutdown", "/v1.0/shutdown", "graceful_shutdown"}

// killers are the programs that send a signal.
var killers = []string{"kill", "pkill", "killall", "killall5"}

// proxyNames are parts of names of programs and images that can be ended by a request.
var proxyNames = []string{"proxy", "envoy", "pilot-agent", "kuma-dp", "dapr"}

// QuitsProxy reports whether a container ends a proxy beside it by a request.
func QuitsProxy(c *corev1.Container) bool {
	text := allText(c)
	return slices.ContainsFunc(quits, func(q string) bool {
		first, rest, _ := strings.Cut(q, " ")
		return strings.Contains(text, first) && strings.Contains(text, rest)
	})
}

// requests are the texts in quits of a request by which a script ends a proxy beside it, at that moment.
var requests = []string{"quitquitquit", ":4191/shutdown", "/v1.0/shutdown", "cloud-sql-proxy shutdown", "graceful_shutdown"}

// silent are programs that make no call of their own.
var silent = strings.Fields(": [ break cat cd date done echo exit export false fi kill ls printf return rm set sleep sync test touch trap true unset wait")

// AfterQuit returns the first statement of a container's script that comes after the one by which the script ends a proxy
// beside it and that may make a call; empty: there is none, or none is known.
func AfterQuit(c *corev1.Container) string {
	script, is := shell.ScriptOf(argvOf(c))
	if !is {
		return ""
	}
	asked, before := false, ""
	for _, s := range shell.Statements(script.Text) {
		words := s.Program()
		if len(words) == 0 {
			continue
		}
		text := strings.Join(words, " ")
		switch {
		case words[0] == "trap" || strings.HasPrefix(text, "function ") || strings.Contains(words[0], "()"):
			// it runs later
		case slices.ContainsFunc(requests, func(q string) bool { return strings.Contains(text, q) }):
			asked = true
		case asked && before != "||" && !slices.Contains(silent, path.Base(words[0])):
			return text
		}
		before = s.Then
	}
	return ""
}

// allText joins the command line, the hooks and the environment of a container.
func allText(c *corev1.Container) string {
	words := slices.Clone(argvOf(c))
	if l := c.Lifecycle; l != nil {
		for _, h := range []*corev1.LifecycleHandler{l.PostStart, l.PreStop} {
			if h != nil && h.Exec != nil {
				words = append(words, h.Exec.Command...)
			}
			if h != nil && h.HTTPGet != nil {
				words = append(words, h.HTTPGet.Path)
			}
		}
	}
	for _, e := range c.Env {
		words = append(words, e.Name+"="+e.Value)
	}
	return strings.Join(words, " ")
}

// EndedByOthers reports whether something in the pod ends a regular container that serves others when they have ended: its
// gate, a limit of its own command, a request (if it is a proxy), or a signal in a shared process namespace.
func EndedByOthers(pod *corev1.Pod, c *corev1.Container) bool {
	if len(HelperOf(c)) > 0 || slices.ContainsFunc(argvOf(c), func(w string) bool { return path.Base(w) == "timeout" }) {
		return true
	}
	text := c.Name + " " + ImageName(c.Image) + " " + serverOf(c)
	isProxy := slices.ContainsFunc(proxyNames, func(part string) bool { return strings.Contains(text, part) })
	shared := pod.Spec.ShareProcessNamespace != nil && *pod.Spec.ShareProcessNamespace || pod.Spec.HostPID
	for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			if o := &list[i]; o.Name != c.Name && (isProxy && QuitsProxy(o) || shared && sendsSignal(o)) {
				return true
			}
		}
	}
	return false
}

// sendsSignal reports whether a container runs a program that sends a signal.
func sendsSignal(c *corev1.Container) bool {
	isWord := func(r rune) bool {
		return r == '_' || r == '-' || r == '.' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z'
	}
	words := strings.FieldsFunc(allText(c), func(r rune) bool { return !isWord(r) })
	return slices.ContainsFunc(words, func(w string) bool { return slices.Contains(killers, w) })
}

// RunsOn reports whether a regular container does not end although the pod should complete and the work of its other
// containers is done: it serves others, or the kubelet restarts it whenever it ends, and nothing ends it. In a pod of a Job
// (kind is the kind of the object with the pod) a readiness probe shows a server, too.
func RunsOn(pod *corev1.Pod, kind string, c *corev1.Container) bool {
	if policy := pod.Spec.RestartPolicy; policy != corev1.RestartPolicyNever && policy != corev1.RestartPolicyOnFailure || len(pod.Spec.Containers) < 2 {
		return false
	}
	_, serves := Serves(c)
	probed := c.ReadinessProbe != nil && (kind == "Job" || kind == "CronJob")
	return (serves || probed || RestartedAlways(c)) && !EndedByOthers(pod, c)
}

// RestartedAlways reports whether a container has a restart policy of its own by which the kubelet restarts it whenever it
// ends. That makes a sidecar of an init container only.
func RestartedAlways(c *corev1.Container) bool {
	return restart("", c.RestartPolicy) == startup.Always && c.RestartPolicy != nil
}
