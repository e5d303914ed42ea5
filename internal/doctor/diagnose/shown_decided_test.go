package diagnose

import (
	"strings"
	"testing"
)

// A race that the evidence shows is decided, and one that it does not show is not.
func TestDecidedRaces(t *testing.T) {
	kuma := func(proxy string) string {
		return "pod kuma.io/sidecar-injected=true kuma.io/transparent-proxying=enabled\nkuma-init init args=--redirect-outbound-port,15001,--redirect-inbound-port,15006,--kuma-dp-user,5678,--redirect-inbound=true,--ip-family-mode,ipv4 run=0-0:0\napp run=5-6:1 waits\nkuma-sidecar image=kumahq/kuma-dp:2.7.1 args=run " + proxy
	}
	appMesh := func(ignored, started string) string {
		return "pod\nproxyinit init image=x/aws-appmesh-proxy-route-manager:v7 env=APPMESH_START_ENABLED=1,APPMESH_IGNORE_UID=1337,APPMESH_ENVOY_EGRESS_PORT=15001,APPMESH_EGRESS_IGNORED_IP=" + ignored + " run=0-0:0\napp run=5-6:1 then=30\nenvoy image=x/aws-appmesh-envoy:v1.27 then=" + started
	}
	const python = "INFO:app:starting\nTraceback (most recent call last):\n  File \"/app/x.py\", line 3, in <module>\nConnectionRefusedError: [Errno 111] Connection refused: 10.96.3.3:6566/tcp\n"
	const golang = "2026-03-02T10:00:05.700Z ERROR dial tcp 10.96.3.3:8080: connect: connection refused\n"
	const seed = "2026-03-02T10:00:05.391902Z ERROR store: seed 10.0.112.9:3000: Connection refused (os error 111)\nthread 'main' panicked at src/main.rs:48:10:\nfill: Io(Os { code: 111, kind: ConnectionRefused, message: \"Connection refused\" })\n"
	two := func(app, file, proxy string) map[string]string {
		return map[string]string{"app.previous.log": app, file: proxy}
	}
	all(t, map[string]input{
		"Kuma starts Envoy later":              {kuma("then=4"), two(python, "kuma-sidecar.log", "2026-03-02T10:00:04.100Z\tINFO\tkuma-dp.run\tfetching bootstrap configuration\n2026-03-02T10:00:07.902Z\tINFO\tkuma-dp.run.envoy\tstarting Envoy\t{\"path\": \"/usr/bin/envoy\"}\n"), "found startup-race@app", "likely startup-race|certain startup-race", "proxy-not-ready"},
		"Kuma, a line of Envoy without a zone": {kuma("then=4"), two(python, "kuma-sidecar.log", "2026-03-02T10:00:04.100Z\tINFO\tkuma-dp.run\tfetching bootstrap configuration\n2026-03-02T10:00:06.902Z\tINFO\tkuma-dp.run.envoy\tstarting Envoy\t{\"path\": \"/usr/bin/envoy\"}\n[2026-03-02 10:00:07.644][28][info][main] [source/server/server.cc:934] starting main dispatch loop\n"), "found startup-race@app", "certain startup-race", "zones fit"},
		"Kuma, Envoy two hours east":           {kuma("then=4"), two(python, "kuma-sidecar.log", "2026-03-02T10:00:04.100Z\tINFO\tkuma-dp.run\tfetching bootstrap configuration\n2026-03-02T10:00:06.902Z\tINFO\tkuma-dp.run.envoy\tspawned\n[2026-03-02 12:00:07.644][28][info][main] [source/server/server.cc:934] starting main dispatch loop\n"), "found startup-race@app", "certain startup-race", "zones fit"},
		"Istio's agent starts Envoy later":     {mesh("app run=5-6:1 waits", "then=2"), two(python, "istio-proxy.log", "2026-03-02T10:00:02.600000Z\tinfo\tProxy role\tips=[10.1.0.7] type=sidecar\n2026-03-02T10:00:08.100000Z\tinfo\tEnvoy command: [-c etc/istio/proxy/envoy-rev.json --drain-time-s 45]\n"), "found startup-race@app", "likely startup-race|certain startup-race", ""},
		"Envoy initializes later":              {mesh("app run=5-6:1 waits", "then=2"), two(golang, "istio-proxy.log", "2026-03-02T10:00:07.600000Z\tinfo\tenvoy main external/envoy/source/server/server.cc:412\tinitializing epoch 0 (base id=0, hot restart version=11.104)\tthread=14\n"), "found startup-race@app", "certain startup-race", ""},
		"consul-dataplane's Envoy, later":      {"pod consul.hashicorp.com/transparent-proxy-status=enabled\nconsul-connect-inject-init init args=-redirect-traffic-config run=0-0:0\napp run=5-6:1 waits\nconsul-dataplane then=2", two(golang, "consul-dataplane.log", "2026-03-02T10:00:03.100Z [INFO]  consul-dataplane: connected to Consul server\n2026-03-02T10:00:07.100Z [INFO]  envoy.main(14) starting main dispatch loop\n"), "found startup-race@app", "startup-race", ""},
		"App Mesh, an address is named":        {appMesh("169.254.169.254", "6"), two(seed, "envoy.log", "[2026-03-02 10:00:07.011][1][info] [AGENT] Starting App Mesh agent\n[2026-03-02 10:00:08.344][17][info][config] all dependencies initialized. starting workers\n"), "found startup-race@app", "likely startup-race|certain startup-race", ""},
		"App Mesh, without its log":            {appMesh("169.254.169.254", "7"), log(seed), "found startup-race@app", "likely startup-race|certain startup-race", ""},
		"an unzoned log, ready later":          {mesh("app run=5-6:1 waits", "then=2"), two(python, "istio-proxy.log", "[2026-03-02 10:00:02.300][1][info][main] begins\n[2026-03-02 10:00:08.344][17][info][config] all dependencies initialized. starting workers\n"), "found startup-race@app", "likely startup-race", ""},
		"both families":                        {strings.Replace(kuma("then=4"), ",ipv4", ",dualstack,--max-retries,4,--iptables-logs", 1), two(golang, "kuma-sidecar.log", "2026-03-02T10:00:07.902Z\tINFO\tkuma-dp.run.envoy\tstarting Envoy\t{\"path\": \"/usr/bin/envoy\"}\n"), "found startup-race@app", "likely startup-race|certain startup-race", ""},

		"Envoy ran before":                           {kuma("then=1"), two(golang, "kuma-sidecar.log", "2026-03-02T10:00:01.902Z\tINFO\tkuma-dp.run.envoy\tstarting Envoy\t{\"path\": \"/usr/bin/envoy\"}\n[2026-03-02 10:00:03.644][28][info][config] all dependencies initialized. starting workers\n"), "", "", "startup-race"},
		"the zones give another order":               {mesh("app run=5-6:1 waits", "then=2"), two("10:00:05 dial tcp 10.96.3.3:8080: connect: connection refused\n", "istio-proxy.log", "2026-03-02T10:00:05.100000Z\tinfo\tEnvoy proxy is ready\n"), "", "", "certain startup-race"},
		"App Mesh, an ignored address":               {appMesh("10.0.112.9", "7"), log(seed), "found dependency-down@app", "", "startup-race"},
		"App Mesh, a name that may be ignored":       {appMesh("10.0.112.9", "7"), log("2026-03-02T10:00:05.391902Z ERROR store: seed store.shop:3000: Connection refused (os error 111)\n"), "undecided startup-race@app", "", ""},
		"a flag that is not known":                   {strings.Replace(kuma("then=4"), ",ipv4", ",ipv4,--leave-alone,10.0.0.0/8", 1), two(golang, "kuma-sidecar.log", "2026-03-02T10:00:07.902Z\tINFO\tkuma-dp.run.envoy\tstarting Envoy\t{}\n"), "", "", "certain startup-race"},
		"a new epoch of Envoy":                       {mesh("app run=65-66:1 waits", "then=2"), two("2026-03-02T10:01:05.700Z ERROR dial tcp 10.96.3.3:8080: connect: connection refused\n", "istio-proxy.log", "2026-03-02T10:00:02.600000Z\tinfo\tinitializing epoch 0 (base id=0)\n2026-03-02T10:00:04.600000Z\tinfo\tEnvoy proxy is ready\n2026-03-02T10:02:07.600000Z\tinfo\tinitializing epoch 1 (base id=0)\n"), "", "", "startup-race"},
		"Envoy was ready":                            {mesh("app run=5-6:1 waits", "then=2"), two(golang, "istio-proxy.log", "2026-03-02T10:00:02.600000Z\tinfo\tEnvoy command: [-c x]\n2026-03-02T10:00:04.600000Z\tinfo\tEnvoy proxy is ready\n"), "", "", "startup-race"},
		"a call to the pod itself":                   {kuma("then=4"), two(strings.Replace(golang, "10.96.3.3", "127.0.0.1", 1), "kuma-sidecar.log", "2026-03-02T10:00:07.902Z\tINFO\tkuma-dp.run.envoy\tstarting Envoy\t{}\n"), "found sibling-down@app", "", "startup-race"},
		"a hint at Envoy in another sentence":        {mesh("app run=65-66:1 waits", "then=2"), two("2026-03-02T10:01:05.700Z ERROR dial tcp 10.96.3.3:8080: connect: connection refused\n", "istio-proxy.log", "2026-03-02T10:00:02.600000Z\tinfo\tStatus server has started\n2026-03-02T10:01:07.600000Z\tinfo\thealth: waiting for starting Envoy to answer\n"), "", "", "certain startup-race"},
		"a native sidecar with a probe, a later run": {"pod\n" + iptables + "istio-proxy native probe then=1\napp run=3-6:1 then=30 restarts=4", log(golang), "", "", "startup-race"},
		"a refusal just after it was ready":          {mesh("app then=5", "then=3"), map[string]string{"app.log": golang + "2026-03-02T10:00:09.600Z ERROR dial tcp 10.96.3.3:8080: connect: connection refused\n", "istio-proxy.log": "2026-03-02T10:00:09.100000Z\tinfo\tEnvoy proxy is ready\n"}, "found startup-race@app", "", ""},
		"a refusal long after it was ready":          {mesh("app then=5", "then=3"), map[string]string{"app.log": golang + "2026-03-02T10:00:19.600Z ERROR dial tcp 10.96.3.3:8080: connect: connection refused\n", "istio-proxy.log": "2026-03-02T10:00:09.100000Z\tinfo\tEnvoy proxy is ready\n"}, "", "", "(?:likely|certain) startup-race"},
	})
}
