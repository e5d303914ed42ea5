package cluster

import (
	"crypto/rand"
	"embed"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"text/template"

	certutil "k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"

	"outrider.dev/test/cluster/internal/node"
)

//go:embed conf
var conf embed.FS

var templates = template.Must(template.New("").Option("missingkey=error").ParseFS(conf, "conf/*"))

// writeConfig writes all files that the programs of the cluster read: identities, a configuration file for each
// program, and a file with the configuration c for package node, at the path file.
func writeConfig(c node.Config, file string, o Options) error {
	// Remove the logs of a previous cluster, which would look like logs of this one.
	if err := os.RemoveAll(filepath.Join(c.Dir, "log")); err != nil {
		return err
	}
	for _, dir := range []string{"conf", "log/pods", "pki"} {
		if err := os.MkdirAll(filepath.Join(c.Dir, dir), 0o755); err != nil {
			return err
		}
	}
	values := map[string]any{
		"Dir": c.Dir, "Group": c.Group, "KubeletLog": o.KubeletLog, "Features": o.Features, "PauseImage": pauseImage, "CNIPlugins": node.CNIPlugins, "CNIConfig": node.CNIConfig, "NRI": o.Runtime == containerd2,
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
	if err := writeIdentities(c); err != nil {
		return fmt.Errorf("making identities: %w", err)
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

// writeIdentities makes the API server's self-signed certificate, and a token for each program,
// with the names and groups to which the API server's built-in roles are bound.
func writeIdentities(c node.Config) error {
	cert, key, err := certutil.GenerateSelfSignedCertKey("kubernetes", []net.IP{{127, 0, 0, 1}, net.ParseIP(node.Address), net.ParseIP(node.APIService)},
		[]string{"kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc." + node.Domain, "localhost"})
	if err != nil {
		return err
	}
	accounts, err := keyutil.MakeEllipticPrivateKeyPEM() // the key that signs the tokens of service accounts
	if err != nil {
		return err
	}
	var tokens strings.Builder
	for _, id := range []struct{ file, name, groups string }{
		{c.Kubeconfig(), "admin", "system:masters"},
		{c.PKI("kubelet.kubeconfig"), "system:node:" + node.Name, "system:nodes"},
		{c.PKI("kube-controller-manager.kubeconfig"), "system:kube-controller-manager", ""},
		{c.PKI("kube-scheduler.kubeconfig"), "system:kube-scheduler", ""},
		{c.PKI("kube-proxy.kubeconfig"), "system:kube-proxy", ""},
		{c.PKI("coredns.kubeconfig"), "coredns", ""},
	} {
		token := rand.Text()
		fmt.Fprintf(&tokens, "%s,%s,%[2]s,%s\n", token, id.name, id.groups)
		values := map[string]any{"Server": node.API, "CA": base64.StdEncoding.EncodeToString(cert), "User": id.name, "Token": token}
		if err := render("kubeconfig", id.file, values); err != nil {
			return err
		}
		if id.name == "admin" {
			err = os.WriteFile(c.PKI("admin.token"), []byte(token), 0o600)
		}
		if err != nil {
			return err
		}
	}
	return errors.Join(os.WriteFile(c.PKI("apiserver.crt"), cert, 0o644), os.WriteFile(c.PKI("apiserver.key"), key, 0o600),
		os.WriteFile(c.PKI("accounts.key"), accounts, 0o600), os.WriteFile(c.PKI("tokens.csv"), []byte(tokens.String()), 0o600))
}
