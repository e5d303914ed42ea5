package identity

import (
	"encoding/json"
	"path/filepath"
)

// BootstrapFile is the configuration of gRPC clients without a proxy, in [Options.OutputDir]: an
// application names it in its variable GRPC_XDS_BOOTSTRAP.
const BootstrapFile = "grpc-bootstrap.json"

// A GRPCNode is what a gRPC client of this pod needs to know of the control plane. The zero
// value: no bootstrap is written.
type GRPCNode struct {
	ID     string // of the client
	Server string // of configuration: host:port
}

// bootstrap returns the file, which refers to the certificate's files in dir.
// https://github.com/grpc/proposal/blob/master/A27-xds-global-load-balancing.md
func (n GRPCNode) bootstrap(dir string) ([]byte, error) {
	// Files that are renewed are read again so often.
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
