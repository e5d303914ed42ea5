package mesh

import (
	"fmt"
	"net"

	"outrider.dev/internal/base/contract"
)

// A plain is a handwritten configuration of an Envoy with one listener and one cluster, with mutual TLS, and without
// anything that only a mesh needs. It forwards HTTP requests.
type plain struct {
	to     string // address of the cluster
	client bool   // it is the proxy of a client, which connects by TLS; default: of a server, which accepts TLS
	bytes  bool   // it forwards bytes

	common, context string // put into the common part of the TLS context, and into the rest; each member ends with a comma
	stats           string // more patterns of statistics; each begins with a comma
}

// config returns the configuration, for the field static of a pod.
func (e plain) config(certificates, admin string) string {
	socket := func(direction, more string) string {
		return fmt.Sprintf(`, "transport_socket": {"name": "tls", "typed_config": {"@type": "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.%sTlsContext", %s%s
			"common_tls_context": {%s
			"tls_certificate_sds_secret_configs": [{"name": "workload", "sds_config": {"path_config_source": {"path": "%[5]s/workload.json"}}}],
			"validation_context_sds_secret_config": {"name": "roots", "sds_config": {"path_config_source": {"path": "%[5]s/roots.json"}}}}}}`, direction, more, e.context, e.common, certificates)
	}
	host, number, _ := net.SplitHostPort(e.to)
	listener, other, port := "virtualInbound", "virtualOutbound", contract.InboundPort
	inbound, outbound := socket("Downstream", `"require_client_certificate": true, `), ""
	if e.client {
		listener, other, port = other, listener, contract.OutboundPort
		inbound, outbound = "", socket("Upstream", "")
	}
	filter := `{"name": "http", "typed_config": {"@type": "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
		"stat_prefix": "http", "route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [{"match": {"prefix": "/"}, "route": {"cluster": "to", "timeout": "0s"}}]}]},
		"http_filters": [{"name": "envoy.filters.http.router", "typed_config": {"@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"}}]}}`
	if e.bytes {
		filter = `{"name": "tcp", "typed_config": {"@type": "type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy", "stat_prefix": "tcp", "cluster": "to"}}`
	}
	return fmt.Sprintf(`{"node": {"id": "plain", "cluster": "plain"}, "admin": {"address": {"pipe": {"path": "%s"}}},
		"stats_config": {"stats_matcher": {"inclusion_list": {"patterns": [{"prefix": "server."}%s]}}},
		"static_resources": {"listeners": [
			{"name": "%s", "address": {"socket_address": {"address": "0.0.0.0", "port_value": 19999}}, "filter_chains": [{}]},
			{"name": "%s", "address": {"socket_address": {"address": "0.0.0.0", "port_value": %d}}, "filter_chains": [{"filters": [%s]%s}]}],
		"clusters": [{"name": "to", "type": "STATIC", "load_assignment": {"cluster_name": "to", "endpoints": [{"lb_endpoints": [{"endpoint":
			{"address": {"socket_address": {"address": "%s", "port_value": %s}}}}]}]}%s}]}}`, admin, e.stats, other, listener, port, filter, inbound, host, number, outbound)
}
