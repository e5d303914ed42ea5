package node

import "strings"

// A component is one program of the cluster.
type component struct {
	name string // name of the program and of its log
	args []string
}

// volumePlugins is the kubelet's directory for volume plugins, which stays empty. The kubelet would create the
// default directory at its start, on the machine.
const volumePlugins = "/var/lib/kubelet/plugins"

func etcd(Config) component {
	const clients, peers = "http://127.0.0.1:2379", "http://127.0.0.1:2380"
	return component{"etcd", []string{
		"etcd",
		"--data-dir=" + ownDir + "/etcd", // in memory, so that no request waits for a disk and no file is left behind
		"--unsafe-no-fsync",
		"--listen-client-urls=" + clients, "--advertise-client-urls=" + clients,
		"--listen-peer-urls=" + peers, "--initial-advertise-peer-urls=" + peers,
		"--initial-cluster=default=" + peers,
	}}
}

func containerd(c Config) component {
	return component{"containerd", []string{"containerd", "--config", c.Conf("containerd.toml")}}
}

func apiServer(c Config) component {
	return component{"kube-apiserver", append([]string{
		"kube-apiserver",
		"--etcd-servers=http://127.0.0.1:2379",
		"--advertise-address=" + Address, "--secure-port=6443",
		"--token-auth-file=" + c.PKI("tokens.csv"),
		"--client-ca-file=" + c.PKI("apiserver.crt"), // no client has a certificate of this CA, but the controllers that publish it only start if it is set
		"--tls-cert-file=" + c.PKI("apiserver.crt"), "--tls-private-key-file=" + c.PKI("apiserver.key"),
		"--service-cluster-ip-range=" + ServiceRange,
		"--service-account-issuer=https://kubernetes.default.svc." + Domain,
		"--service-account-key-file=" + c.PKI("accounts.key"), "--service-account-signing-key-file=" + c.PKI("accounts.key"),
		"--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction",
		"--allow-privileged=true",
		"--kubelet-preferred-address-types=InternalIP", // the name of the node does not resolve
		"--profiling=false",
	}, switched(c)...)}
}

// switched returns the API server's flags that enable features and APIs which are off by default.
func switched(c Config) (out []string) {
	for flag, names := range map[string][]string{"--feature-gates=": c.Features, "--runtime-config=": c.APIs} { // any order: flags
		if len(names) > 0 {
			out = append(out, flag+strings.Join(names, "=true,")+"=true")
		}
	}
	return out
}

func controllerManager(c Config) component {
	return component{"kube-controller-manager", []string{
		"kube-controller-manager",
		"--kubeconfig=" + c.PKI("kube-controller-manager.kubeconfig"),
		"--leader-elect=false", "--profiling=false",
		"--use-service-account-credentials=true",
		"--service-account-private-key-file=" + c.PKI("accounts.key"), "--root-ca-file=" + c.PKI("apiserver.crt"),
		"--flex-volume-plugin-dir=" + volumePlugins,
		// Each of some forty controllers requests a token at its start. With the default of 20
		// requests per second the default service account would be created seconds later.
		"--kube-api-qps=500", "--kube-api-burst=1000",
	}}
}

func scheduler(c Config) component {
	return component{"kube-scheduler", []string{
		"kube-scheduler",
		"--kubeconfig=" + c.PKI("kube-scheduler.kubeconfig"),
		"--leader-elect=false", "--profiling=false",
	}}
}

func kubelet(c Config) component {
	return component{"kubelet", []string{
		"kubelet",
		"--config=" + c.Conf("kubelet.yaml"), "--kubeconfig=" + c.PKI("kubelet.kubeconfig"),
		"--node-ip=" + Address, "--hostname-override=" + Name,
		// By default the kubelet keeps one dead container. Right after a second crash the status still
		// names the container that was removed, so that "kubectl logs --previous" fails.
		"--maximum-dead-containers-per-container=3",
	}}
}

func kubeProxy(c Config) component {
	return component{"kube-proxy", []string{"kube-proxy", "--config=" + c.Conf("kube-proxy.yaml")}}
}

func coreDNS(c Config) component {
	return component{"coredns", []string{c.CoreDNS, "-conf", c.Conf("Corefile")}}
}
