package kube

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const kubeconfig = `
apiVersion: v1
kind: Config
current-context: c
contexts: [{name: c, context: {cluster: c, user: u}}]
clusters: [{name: c, cluster: {server: "https://api.example:6443"}}]
users: [{name: u, user: {token: secret}}]
`

func TestHowAClusterIsReached(t *testing.T) {
	t.Setenv("HOME", t.TempDir())
	t.Setenv("KUBECONFIG", "")
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	write := func(text string) string {
		file := filepath.Join(t.TempDir(), "config")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	for name, tt := range map[string]struct{ file, err string }{
		"a kubeconfig":                {write(kubeconfig), ""},
		"none of that name":           {"/nowhere/config", "kubeconfig: stat /nowhere/config: no such file or directory"},
		"no YAML":                     {write("{"), "kubeconfig: error loading config file"},
		"a context that is not there": {write(strings.ReplaceAll(kubeconfig, "current-context: c", "current-context: d")), "context was not found for specified context: d"},
		"a certificate that is missing": {write(strings.ReplaceAll(kubeconfig, "token: secret", "client-certificate: /nowhere/cert, client-key: /nowhere/key")),
			"unable to read client-cert /nowhere/cert"},
	} {
		t.Run(name, func(t *testing.T) {
			c, err := Connect(Options{Kubeconfig: tt.file})
			switch {
			case tt.err == "" && (err != nil || c.Server() != "https://api.example:6443"):
				t.Errorf("%v, %v", c, err)
			case tt.err != "" && (err == nil || !strings.Contains(err.Error(), tt.err) || strings.Contains(err.Error(), "secret")):
				t.Errorf("%v; want %q", err, tt.err)
			}
		})
	}
	if _, err := Connect(Options{}); err == nil || !strings.Contains(err.Error(), "no cluster: ") {
		t.Errorf("without a kubeconfig: %v", err)
	}
	t.Setenv("KUBECONFIG", write(kubeconfig))
	if c, err := Connect(Options{}); err != nil || c.Server() != "https://api.example:6443" {
		t.Errorf("with $KUBECONFIG: %v, %v", c, err)
	}
}
