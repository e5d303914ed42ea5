package envoy

import (
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/base/telemetry"
)

// Names in the bootstrap to which other parts refer:
const (
	// ControlPlaneCluster is the cluster of the control plane, which Envoy reaches through
	// [Options.Relay]. The name is Istio's.
	ControlPlaneCluster = "xds-grpc"
	// PassthroughCluster sends a connection to its original destination. The name is Istio's.
	PassthroughCluster = "PassthroughCluster"

	metrics = "prometheus_stats" // the cluster of the admin interface, and the listener that exposes a part of it
	typeURL = "type.googleapis.com/"
)

// Names of Envoy's secrets, and of the cluster through which the agent serves them
// ([Options.Secrets]). Envoy must not read the secrets from files: it takes an inotify
// instance for each watched file, a user has 128 of them per node for all processes, and Envoy
// aborts if none is left.
const (
	SecretName     = contract.WorkloadSecret // the certificate and its key
	RootsName      = contract.RootsSecret    // the trusted roots
	SecretsCluster = contract.SecretsCluster
)

// An object is a message of Envoy's API as JSON. It is a map, since go-control-plane's types would
// be more than half of the agent's binary. The tests check the result with `envoy --mode validate`.
type object = map[string]any

// Bootstrap returns Envoy's bootstrap as JSON: Envoy takes twice as long to read a large one in
// YAML.
func (o Options) Bootstrap() ([]byte, error) {
	if err := o.Check(); err != nil {
		return nil, err
	}
	all, err := o.merged()
	if err != nil {
		return nil, err
	}
	out, err := json.Marshal(all)
	if err != nil {
		return nil, fmt.Errorf("writing Envoy's bootstrap: %w", err)
	}
	return out, nil
}

// base is the bootstrap without [Options.Extra].
func (o Options) base() object {
	o = o.withDefaults()
	static := object{"clusters": []any{
		object{"name": PassthroughCluster, "type": "ORIGINAL_DST", "lb_policy": "CLUSTER_PROVIDED", "connect_timeout": duration(contract.DirectConnectTimeout)},
		// Keep-alives detect a dead stream to the control plane through the relay.
		local(ControlPlaneCluster, o.Relay, object{"connection_keepalive": object{"interval": "5s", "timeout": "5s"}}),
	}}
	add := func(list string, v object) {
		all, _ := static[list].([]any)
		static[list] = append(all, v)
	}
	if o.Secrets != "" {
		add("clusters", local(SecretsCluster, o.Secrets, object{}))
	}
	admin := o.adminAddress()
	if !o.NoPrometheus {
		add("clusters", object{"name": metrics, "type": "STATIC", "connect_timeout": "1s", "load_assignment": assignment(metrics, admin)})
		add("listeners", o.prometheus())
	}
	if o.Admin.Socket != "" {
		admin = object{"pipe": object{"path": o.Admin.Socket, "mode": 0o600}}
	}
	node := object{"id": o.Node.ID, "cluster": o.Node.Cluster}
	if len(o.Node.Metadata) > 0 {
		node["metadata"] = o.Node.Metadata
	}
	// No initial fetch timeout: a proxy without its configuration must not become ready.
	fromADS := object{"ads": object{}, "resource_api_version": "V3", "initial_fetch_timeout": "0s"}
	return object{
		"node":             node,
		"admin":            object{"address": admin, "ignore_global_conn_limit": true},
		"static_resources": static,
		"dynamic_resources": object{
			"ads_config": object{
				// On-demand discovery needs the delta variant.
				"api_type": "DELTA_GRPC", "transport_api_version": "V3", "set_node_on_first_message_only": true,
				"grpc_services": []any{object{"envoy_grpc": object{
					"cluster_name": ControlPlaneCluster,
					"retry_policy": object{"retry_back_off": object{ // short, since the relay makes the pauses
						"base_interval": duration(contract.LocalRetryBase), "max_interval": duration(contract.ControlPlaneRetryMax),
					}},
				}}},
			},
			"lds_config": fromADS,
			"cds_config": fromADS,
		},
		"stats_config": o.Stats.config(),
		"layered_runtime": object{"layers": []any{
			object{"name": "outrider", "static_layer": object{
				// The largest regular expression in a route. Envoy's default of 100 rejects common
				// ones; this is Istio's value.
				"re2.max_program_size.error_level": 32768,
				// When an internal listener closes a connection, it sends a FIN. With an RST, a complete
				// response that ends with the connection (HTTP/1.0) would seem to be cut.
				"envoy.reloadable_features.enable_send_rst_on_user_space_socket": false,
			}},
			object{"name": "admin", "admin_layer": object{}},
		}},
		"overload_manager": object{"refresh_interval": "0.25s", "resource_monitors": []any{
			extension("envoy.resource_monitors.global_downstream_max_connections",
				"envoy.extensions.resource_monitors.downstream_connections.v3.DownstreamConnectionsConfig",
				object{"max_active_downstream_connections": 1<<31 - 1}), // no limit; without this setting Envoy logs a warning
		}},
		// Requests for a service with routes go through internal listeners, which the control plane
		// sends. Envoy loads the extension for them only at its start.
		"bootstrap_extensions": []any{
			extension("envoy.bootstrap.internal_listener", "envoy.extensions.bootstrap.internal_listener.v3.InternalListener", nil),
		},
	}
}

// extension configures a part of Envoy that Envoy looks up by its type.
func extension(name, kind string, config object) object {
	typed := object{"@type": typeURL + kind}
	for key, value := range config {
		typed[key] = value
	}
	return object{"name": name, "typed_config": typed}
}

func socketAddress(host string, port uint16) object {
	return object{"socket_address": object{"address": host, "port_value": port}}
}

func (o Options) adminAddress() object {
	if o.Admin.Socket != "" {
		return object{"pipe": object{"path": o.Admin.Socket}}
	}
	return socketAddress(o.Family.loopback().String(), o.Admin.Port)
}

func assignment(cluster string, address object) object {
	return object{"cluster_name": cluster, "endpoints": []any{object{"lb_endpoints": []any{object{"endpoint": object{"address": address}}}}}}
}

// duration formats d for Envoy's JSON.
func duration(d time.Duration) string {
	return strconv.FormatFloat(d.Seconds(), 'f', -1, 64) + "s"
}

// local is a cluster for a Unix socket of the agent, which speaks only HTTP/2.
func local(name, socket string, options object) object {
	const http = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"
	return object{
		"name": name, "type": "STATIC", "connect_timeout": "1s",
		"typed_extension_protocol_options": object{http: object{"@type": typeURL + http, "explicit_http_config": object{"http2_protocol_options": options}}},
		"load_assignment":                  assignment(name, object{"pipe": object{"path": socket}}),
	}
}

// prometheus is a listener that exposes one path of the admin interface.
func (o Options) prometheus() object {
	address := object{"address": "0.0.0.0", "port_value": o.Prometheus}
	if o.Family != IPv4 {
		address["address"] = "::"
	}
	if o.Family == Dual {
		address["ipv4_compat"] = true
	}
	if o.PrometheusLocal {
		address = object{"address": o.Family.loopback().String(), "port_value": o.Prometheus}
	}
	route := object{"match": object{"prefix": "/stats/prometheus"}, "route": object{"cluster": metrics}}
	hcm := extension("envoy.filters.network.http_connection_manager", "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager", object{
		"stat_prefix":  "stats",
		"route_config": object{"virtual_hosts": []any{object{"name": "backend", "domains": []any{"*"}, "routes": []any{route}}}},
		"http_filters": []any{extension("envoy.filters.http.router", "envoy.extensions.filters.http.router.v3.Router", nil)},
	})
	return object{
		"name": metrics, "address": object{"socket_address": address}, "ignore_global_conn_limit": true,
		"filter_chains": []any{object{"filters": []any{hcm}}},
	}
}

// required are the statistics that the agent and outrider's own tools read. cluster_manager must
// stay: the pausing of CDS once depended on its statistics (envoyproxy/envoy #28179).
var required = Stats{
	Prefixes: []string{
		"cluster_manager.", "listener_manager.", "server.", "control_plane.",
		"cluster." + ControlPlaneCluster + ".", "main_thread.", "overload.",
		"reporter=", "component", "istio", // statistics of Istio's filters, if Envoy contains them
		// Versions and groups of the mutual TLS that clients use, and their certificates that were refused.
		"listener.0.0.0.0_15006.ssl.", "listener.[__]_15006.ssl.", "listener.127.0.0.1_15016.ssl.", telemetry.OldTLS + ".",
	},
	Suffixes: []string{
		"downstream_cx_active", "downstream_pre_cx_active", // open connections
		"downstream_rq_active",     // requests in flight
		"http2.pending_send_bytes", // bytes that wait for a window of the peer and are in no socket's queue
		"rbac.allowed", "rbac.denied", "shadow_allowed", "shadow_denied",
	},
}

// tags turn parts of a statistic's name into labels. Envoy's default list is longer, and each entry
// is a regular expression that Envoy runs on each new name.
var tags = []struct{ name, regex string }{
	{"cluster_name", `^cluster\.((.+?(\..+?\.svc\.cluster\.local)?)\.)`},
	{"tcp_prefix", `^tcp\.((.*?)\.)\w+?$`},
	{"response_code", `_rq(_(\d{3}))$`},
	{"response_code_class", `_rq(_(\dxx))$`},
	{"http_conn_manager_listener_prefix", `^listener(?=\.).*?\.http\.(((?:[_.[:digit:]]*|[_\[\]aAbBcCdDeEfF[:digit:]]*))\.)`},
	{"http_conn_manager_prefix", `^http\.(((?:[_.[:digit:]]*|[_\[\]aAbBcCdDeEfF[:digit:]]*))\.)`},
	{"listener_address", `^listener\.(((?:[_.[:digit:]]*|[_\[\]aAbBcCdDeEfF[:digit:]]*))\.)`},
}

func (s Stats) config() object {
	var labels, patterns []any
	for _, t := range tags {
		labels = append(labels, object{"tag_name": t.name, "regex": t.regex})
	}
	add := func(kind string, lists ...[]string) {
		for _, list := range lists {
			for _, p := range list {
				patterns = append(patterns, object{kind: p})
			}
		}
	}
	add("prefix", required.Prefixes, s.Prefixes)
	add("suffix", required.Suffixes, s.Suffixes)
	for _, p := range s.Regexps {
		patterns = append(patterns, object{"safe_regex": object{"regex": p}})
	}
	return object{
		"use_all_default_tags": false, "stats_tags": labels,
		"stats_matcher": object{"inclusion_list": object{"patterns": patterns}},
	}
}
