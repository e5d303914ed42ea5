package pki

import (
	"crypto/ecdsa"
	"encoding/base64"
	"fmt"
)

const kubeconfig = `apiVersion: v1
kind: Config
clusters:
- name: test
  cluster:
    server: %q
    certificate-authority-data: %s
users:
- name: %[3]q
  user:
    client-certificate-data: %[4]s
    client-key-data: %[5]s
contexts:
- name: test
  context: {cluster: test, user: %[3]q}
current-context: test
`

func newKubeconfig(server, user string, ca, cert []byte, key *ecdsa.PrivateKey) []byte {
	b64 := base64.StdEncoding.EncodeToString
	return fmt.Appendf(nil, kubeconfig, server, b64(certPEM(ca)), user, b64(certPEM(cert)), b64(keyPEM(key)))
}
