package cluster

import (
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"text/template"

	"outrider.dev/test/cluster/internal/node"
	"outrider.dev/test/cluster/internal/pki"
)

//go:embed conf
var conf embed.FS

var templates = template.Must(template.New("").Option("missingkey=error").ParseFS(conf, "conf/*"))

// writeConfig writes all that the programs of the cluster read: keys and
// certificates, a configuration file each, and file, which names the rest.
func writeConfig(c node.Config, file string, o Options) error {
	// Logs of the cluster before would be taken for those of this one.
	if err := os.RemoveAll(filepath.Join(c.Dir, "log")); err != nil {
		return err
	}
	for _, dir := range []string{"conf", "log/pods", "pki"} {
		if err := os.MkdirAll(filepath.Join(c.Dir, dir), 0o755); err != nil {
			return err
		}
	}
	values := map[string]any{
		"Dir": c.Dir, "Group": c.Group, "ProxyMode": o.ProxyMode, "KubeletLog": o.KubeletLog, "Features": o.Features, "PauseImage": pauseImage, "CNIPlugins": node.CNIPlugins, "CNIConfig": node.CNIConfig, "NRI": o.Runtime == containerd2,
		"Node": node.Name, "Address": node.Address, "Containerd": node.Containerd, "Domain": node.Domain,
		"PodRange": node.PodRange, "PodBridge": node.PodBridge, "ServiceRange": node.ServiceRange, "DNSService": node.DNSService,
	}
	for _, f := range []struct{ name, target string }{
		{"containerd.toml", "containerd.toml"},
		{"cni.conflist", "cni.conflist"},
		{"kubelet.yaml", "kubelet.yaml"},
		{"kube-proxy.yaml", "kube-proxy.yaml"},
		{"Corefile", "Corefile"},
	} {
		if err := render(f.name, c.Conf(f.target), values); err != nil {
			return fmt.Errorf("writing %s: %w", f.target, err)
		}
	}
	if err := writeCertificates(c); err != nil {
		return fmt.Errorf("making certificates: %w", err)
	}
	text, err := json.MarshalIndent(c, "", "\t")
	if err != nil {
		return err
	}
	return os.WriteFile(file, text, 0o644)
}

func render(name, target string, values map[string]any) error {
	f, err := os.Create(target)
	if err != nil {
		return err
	}
	return errors.Join(templates.ExecuteTemplate(f, name, values), f.Close())
}

// writeCertificates makes an identity for each program. The names and groups are
// those that the API server's built-in roles are bound to.
func writeCertificates(c node.Config) error {
	const kubelet = "system:node:" + node.Name
	ca, err := pki.New(c.PKI(""))
	if err != nil {
		return err
	}
	// any order: each certificate is a file of its own.
	for file, id := range map[string]pki.Identity{
		"apiserver": {Name: "kube-apiserver", Hosts: []string{
			"kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc." + node.Domain,
			"localhost", "127.0.0.1", node.Address, node.APIService,
		}},
		"kubelet-server":       {Name: kubelet, Groups: []string{"system:nodes"}, Hosts: []string{node.Name, node.Address}},
		"apiserver-to-kubelet": {Name: "kube-apiserver-to-kubelet", Groups: []string{"system:masters"}},
	} {
		if err := ca.Issue(file, id); err != nil {
			return err
		}
	}
	// any order: likewise.
	for file, id := range map[string]pki.Identity{
		"kubelet":                 {Name: kubelet, Groups: []string{"system:nodes"}},
		"kube-controller-manager": {Name: "system:kube-controller-manager"},
		"kube-scheduler":          {Name: "system:kube-scheduler"},
		"kube-proxy":              {Name: "system:kube-proxy"},
		"coredns":                 {Name: "coredns"},
	} {
		if err := ca.IssueClient(file, c.PKI(file+".kubeconfig"), node.API, id); err != nil {
			return err
		}
	}
	admin := pki.Identity{Name: "admin", Groups: []string{"system:masters"}}
	if err := ca.IssueClient("admin", c.Kubeconfig(), node.API, admin); err != nil {
		return err
	}
	return ca.IssueKey("tokens") // signs the tokens of service accounts
}
