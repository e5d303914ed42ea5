package envoy

import "encoding/json"

// What follows are the parts of Envoy's bootstrap that we write, in the words of its
// API. Plain structs instead of go-control-plane: that would be more than half of the
// agent's binary. `envoy --mode validate` in the tests says whether they are right.

type bootstrap struct {
	Node       node             `json:"node"`
	Admin      admin            `json:"admin"`
	Static     static           `json:"static_resources"`
	Dynamic    dynamic          `json:"dynamic_resources"`
	Stats      statsConfig      `json:"stats_config"`
	Runtime    layeredRuntime   `json:"layered_runtime"`
	Overload   overload         `json:"overload_manager"`
	Extensions []map[string]any `json:"bootstrap_extensions"`
}

type node struct {
	ID       string         `json:"id"`
	Cluster  string         `json:"cluster"`
	Locality *locality      `json:"locality,omitempty"`
	Metadata map[string]any `json:"metadata,omitempty"`
}

type locality struct {
	Region  string `json:"region,omitempty"`
	Zone    string `json:"zone,omitempty"`
	SubZone string `json:"sub_zone,omitempty"`
}

type admin struct {
	Address             address `json:"address"`
	IgnoreConnectionCap bool    `json:"ignore_global_conn_limit"`
}

type address struct {
	Socket *socketAddress `json:"socket_address,omitempty"`
	Pipe   *pipe          `json:"pipe,omitempty"`
}

type socketAddress struct {
	Address    string `json:"address"`
	Port       uint16 `json:"port_value"`
	IPv4Compat bool   `json:"ipv4_compat,omitempty"`
}

type pipe struct {
	Path string `json:"path"`
	Mode uint32 `json:"mode,omitempty"`
}

type static struct {
	Clusters  []cluster  `json:"clusters"`
	Listeners []listener `json:"listeners,omitempty"`
}

type cluster struct {
	Name           string                    `json:"name"`
	Type           string                    `json:"type"`
	LBPolicy       string                    `json:"lb_policy,omitempty"`
	ConnectTimeout string                    `json:"connect_timeout"`
	DNSFamily      string                    `json:"dns_lookup_family,omitempty"`
	DNSRefresh     string                    `json:"dns_refresh_rate,omitempty"`
	DNSFailure     *backOff                  `json:"dns_failure_refresh_rate,omitempty"`
	Protocols      map[string]map[string]any `json:"typed_extension_protocol_options,omitempty"`
	Assignment     *assignment               `json:"load_assignment,omitempty"`
	Transport      *extension                `json:"transport_socket,omitempty"`
	Upstream       map[string]any            `json:"upstream_connection_options,omitempty"`
}

type assignment struct {
	Cluster   string          `json:"cluster_name"`
	Endpoints []localityGroup `json:"endpoints"`
}

type localityGroup struct {
	LB []lbEndpoint `json:"lb_endpoints"`
}

type lbEndpoint struct {
	Endpoint endpoint `json:"endpoint"`
}

type endpoint struct {
	Address address `json:"address"`
}

// An extension is anything that Envoy finds by its type.
type extension struct {
	Name   string         `json:"name"`
	Config map[string]any `json:"typed_config"`
}

type listener struct {
	Name                string        `json:"name"`
	Address             address       `json:"address"`
	IgnoreConnectionCap bool          `json:"ignore_global_conn_limit"`
	Chains              []filterChain `json:"filter_chains"`
}

type filterChain struct {
	Filters []extension `json:"filters"`
}

type dynamic struct {
	ADS apiSource    `json:"ads_config"`
	LDS configSource `json:"lds_config"`
	CDS configSource `json:"cds_config"`
}

type apiSource struct {
	Type         string        `json:"api_type"`
	Version      string        `json:"transport_api_version"`
	NodeOnce     bool          `json:"set_node_on_first_message_only"`
	GRPCServices []grpcService `json:"grpc_services"`
}

type grpcService struct {
	Envoy envoyGRPC `json:"envoy_grpc"`
}

type envoyGRPC struct {
	Cluster string `json:"cluster_name"`
	Retry   struct {
		BackOff backOff `json:"retry_back_off"`
	} `json:"retry_policy"`
}

type backOff struct {
	Base string `json:"base_interval"`
	Max  string `json:"max_interval"`
}

type configSource struct {
	ADS          *struct{}  `json:"ads,omitempty"`
	API          *apiSource `json:"api_config_source,omitempty"`
	Version      string     `json:"resource_api_version"`
	FetchTimeout string     `json:"initial_fetch_timeout"`
}

type statsConfig struct {
	DefaultTags bool          `json:"use_all_default_tags"`
	Tags        []statsTag    `json:"stats_tags"`
	Matcher     *statsMatcher `json:"stats_matcher,omitempty"`
}

type statsTag struct {
	Name  string `json:"tag_name"`
	Regex string `json:"regex"`
}

type statsMatcher struct {
	Inclusion struct {
		Patterns []stringMatcher `json:"patterns"`
	} `json:"inclusion_list"`
}

type stringMatcher struct {
	Exact  string     `json:"exact,omitempty"`
	Prefix string     `json:"prefix,omitempty"`
	Suffix string     `json:"suffix,omitempty"`
	Regex  *safeRegex `json:"safe_regex,omitempty"`
}

type safeRegex struct {
	Regex string `json:"regex"`
}

type layeredRuntime struct {
	Layers []layer `json:"layers"`
}

type layer struct {
	Name   string         `json:"name"`
	Static map[string]any `json:"static_layer,omitempty"`
	Admin  *struct{}      `json:"admin_layer,omitempty"`
}

type overload struct {
	Refresh  string           `json:"refresh_interval"`
	Monitors []extension      `json:"resource_monitors"`
	Actions  []overloadAction `json:"actions,omitempty"`
}

type overloadAction struct {
	Name     string            `json:"name"`
	Triggers []overloadTrigger `json:"triggers"`
}

type overloadTrigger struct {
	Name      string `json:"name"`
	Threshold struct {
		Value json.Number `json:"value"`
	} `json:"threshold"`
}
