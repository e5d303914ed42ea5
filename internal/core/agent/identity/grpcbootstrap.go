package identity

import (
	"encoding/json"
	"path/filepath"
)

// BootstrapFile in [Options.OutputDir] configures gRPC clients that use no proxy. An application
// names it in its variable GRPC_XDS_BOOTSTRAP.
const BootstrapFile = "grpc-bootstrap.json"

// A GRPCNode is the part of the bootstrap file that describes the pod and its control plane. If it
// is zero, no file is written.
type GRPCNode struct {
	ID     string // xDS node ID of the client
	Server string // host:port of the xDS server
}

// bootstrap returns the content of the file, which refers to the certificate files in dir.
// https://github.com/grpc/proposal/blob/master/A27-xds-global-load-balancing.md
func (n GRPCNode) bootstrap(dir string) ([]byte, error) {
	// interval at which clients read the certificate files again
	const refresh = "60s"
	config := map[string]string{
		"certificate_file": filepath.Join(dir, ChainFile), "private_key_file": filepath.Join(dir, KeyFile),
		"ca_certificate_file": filepath.Join(dir, RootFile), "refresh_interval": refresh,
	}
	return json.MarshalIndent(map[string]any{
		"xds_servers": []any{map[string]any{
			"server_uri": n.Server, "server_features": []string{"xds_v3"},
			"channel_creds": []any{map[string]any{"type": "tls", "config": config}},
		}},
		"node":                  map[string]string{"id": n.ID},
		"certificate_providers": map[string]any{"default": map[string]any{"plugin_name": "file_watcher", "config": config}},
	}, "", "  ")
}
