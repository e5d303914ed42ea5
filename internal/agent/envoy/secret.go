package envoy

import (
	"encoding/json"
	"fmt"
)

// Secrets come to Envoy as files in one directory, which it watches: write a new file
// beside the old one and rename it. Certificate and key are in one file, so that Envoy
// never sees one without the other.
const (
	SecretFile = "workload.json" // the workload's certificate and key
	RootsFile  = "roots.json"    // whom it trusts
	SecretName = "workload"
	RootsName  = "roots"
)

// NoSecret is the content of either file before there is a secret. Envoy 1.40 does not
// start without the files ("paths must refer to an existing path"); with these it starts
// while the certificate is still asked for, and goes on when it comes. Until then it logs
// one warning a file, "Missing SDS resources".
const NoSecret = `{"resources": []}`

// fileSecret is where Envoy finds a secret. It watches the directory, because a file
// that is replaced by rename is another file.
func fileSecret(name, dir, file string) map[string]any {
	return map[string]any{"name": name, "sds_config": map[string]any{
		"resource_api_version": "V3",
		"path_config_source":   map[string]any{"path": dir + "/" + file, "watched_directory": map[string]any{"path": dir}},
	}}
}

// An inline is a file's content inside another. JSON of protobuf writes bytes as base64,
// which is what []byte is.
type inline struct {
	Bytes []byte `json:"inline_bytes"`
}

// Secret is the content of [SecretFile]: chain and key are PEM.
func Secret(chain, key []byte) ([]byte, error) {
	return resource(SecretName, "tls_certificate", map[string]any{"certificate_chain": inline{chain}, "private_key": inline{key}})
}

// Roots is the content of [RootsFile].
func Roots(pem []byte) ([]byte, error) {
	return resource(RootsName, "validation_context", map[string]any{"trusted_ca": inline{pem}})
}

func resource(name, kind string, value any) ([]byte, error) {
	out, err := json.Marshal(map[string]any{"resources": []any{map[string]any{
		"@type": typeURL + "envoy.extensions.transport_sockets.tls.v3.Secret", "name": name, kind: value,
	}}})
	if err != nil {
		return nil, fmt.Errorf("writing secret %s: %w", name, err)
	}
	return out, nil
}
