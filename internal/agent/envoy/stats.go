package envoy

// required are the statistics that the agent and outrider's own tools read. "Do not
// exclude cluster_manager": the pausing of CDS once depended on its statistics
// (envoyproxy/envoy #28179).
var required = struct{ prefixes, suffixes []string }{
	prefixes: []string{
		"cluster_manager.", "listener_manager.", "server.", "control_plane.",
		"cluster." + ControlPlaneCluster + ".", "main_thread.", "overload.",
		"reporter=", "component", "istio", // the statistics of Istio's filters, where Envoy has them
	},
	suffixes: []string{
		"downstream_cx_active", // how many connections a drain still waits for
		"rbac.allowed", "rbac.denied", "shadow_allowed", "shadow_denied",
	},
}

// tags turn parts of a statistic's name into labels. Envoy's default set is longer, and
// each is a regular expression run on each new name.
var tags = []statsTag{
	{"cluster_name", `^cluster\.((.+?(\..+?\.svc\.cluster\.local)?)\.)`},
	{"tcp_prefix", `^tcp\.((.*?)\.)\w+?$`},
	{"response_code", `_rq(_(\d{3}))$`},
	{"response_code_class", `_rq(_(\dxx))$`},
	{"http_conn_manager_listener_prefix", `^listener(?=\.).*?\.http\.(((?:[_.[:digit:]]*|[_\[\]aAbBcCdDeEfF[:digit:]]*))\.)`},
	{"http_conn_manager_prefix", `^http\.(((?:[_.[:digit:]]*|[_\[\]aAbBcCdDeEfF[:digit:]]*))\.)`},
	{"listener_address", `^listener\.(((?:[_.[:digit:]]*|[_\[\]aAbBcCdDeEfF[:digit:]]*))\.)`},
}

func statsOf(s Stats) statsConfig {
	out := statsConfig{Tags: tags}
	if s.All {
		return out
	}
	m := &statsMatcher{}
	add := func(p stringMatcher) { m.Inclusion.Patterns = append(m.Inclusion.Patterns, p) }
	for _, list := range [][]string{required.prefixes, s.Prefixes} {
		for _, p := range list {
			add(stringMatcher{Prefix: p})
		}
	}
	for _, list := range [][]string{required.suffixes, s.Suffixes} {
		for _, p := range list {
			add(stringMatcher{Suffix: p})
		}
	}
	for _, p := range s.Regexps {
		add(stringMatcher{Regex: &safeRegex{p}})
	}
	out.Matcher = m
	return out
}
