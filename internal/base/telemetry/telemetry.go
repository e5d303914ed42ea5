// Package telemetry contains the settings of a mesh's access logs, traces and request metrics, in two forms: as
// in Istio's MeshConfig ([Mesh]), and checked, for the configuration of proxies ([Settings]). It also defines the
// labels of a proxy's request metrics ([Workload], [Service]).
//
// The zero Settings turn everything off. The checks accept only what Envoy 1.40 accepts, because if Envoy
// rejected a format, no listener of any proxy could be updated any more.
package telemetry

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Settings are the checked telemetry settings of a mesh.
type Settings struct {
	AccessLog AccessLog
	Tracing   Tracing
	Metrics   bool // count requests and connections, under Istio's names
}

// An AccessLog is the format of the access log, which each proxy writes to its standard output. If it is on,
// exactly one of the fields is set.
type AccessLog struct {
	Text string         // ends with a newline
	JSON map[string]any // formats, or objects of formats, by name
}

// On reports whether access logging is on.
func (a AccessLog) On() bool { return a.Text != "" || a.JSON != nil }

// Tracing describes the collector to which proxies send spans by OTLP. Without a Host, tracing is off.
type Tracing struct {
	Host     string // a service, any other DNS name, or an address
	Port     uint16
	Path     string  // for OTLP over HTTP; empty: gRPC
	Sampling float64 // percentage of requests to trace, of those for which the client has not decided
}

// On reports whether tracing is on.
func (t Tracing) On() bool { return t.Host != "" }

// Authority returns the host and port of the collector.
func (t Tracing) Authority() string { return net.JoinHostPort(t.Host, strconv.Itoa(int(t.Port))) }

// DefaultSampling is Istio's default of [Tracing].Sampling, in percent.
const DefaultSampling = 1

// A Mesh contains the fields of Istio's MeshConfig that are about telemetry.
type Mesh struct {
	AccessLogFile     string     `json:"accessLogFile"`
	AccessLogFormat   string     `json:"accessLogFormat"`
	AccessLogEncoding string     `json:"accessLogEncoding"`
	Providers         []Provider `json:"extensionProviders"`
	Defaults          struct {
		Tracing []string `json:"tracing"`
		Metrics []string `json:"metrics"`
	} `json:"defaultProviders"`
}

// A Provider is one of Istio's extension providers. Only the kind opentelemetry is supported.
type Provider struct {
	Name          string `json:"name"`
	OpenTelemetry *struct {
		Service string `json:"service"`
		Port    uint32 `json:"port"`
		HTTP    *struct {
			Path string `json:"path"`
		} `json:"http"`
	} `json:"opentelemetry"`
}

// Over returns a copy of base, in which the fields that m sets have the values of m.
func (m Mesh) Over(base Mesh) Mesh {
	for _, f := range []struct{ to, from *string }{
		{&base.AccessLogFile, &m.AccessLogFile}, {&base.AccessLogFormat, &m.AccessLogFormat}, {&base.AccessLogEncoding, &m.AccessLogEncoding},
	} {
		if *f.from != "" {
			*f.to = *f.from
		}
	}
	for _, l := range []struct{ to, from *[]string }{{&base.Defaults.Tracing, &m.Defaults.Tracing}, {&base.Defaults.Metrics, &m.Defaults.Metrics}} {
		if *l.from != nil {
			*l.to = *l.from
		}
	}
	if m.Providers != nil {
		base.Providers = m.Providers
	}
	return base
}

// Settings checks the fields and returns the settings. sampling is the percentage in ProxyConfig, or nil if it is
// not set. The error contains the errors of all fields.
func (m Mesh) Settings(sampling *float64) (Settings, error) {
	var s Settings
	var errs []error
	var err error
	if s.AccessLog, err = m.accessLog(); err != nil {
		errs = append(errs, err)
	}
	if s.Tracing, err = m.tracing(sampling); err != nil {
		errs = append(errs, err)
	}
	for i, name := range m.Defaults.Metrics {
		if name != "prometheus" {
			errs = append(errs, fmt.Errorf("defaultProviders.metrics[%d]: %q: want prometheus, the only one", i, name))
		}
		s.Metrics = true
	}
	return s, errors.Join(errs...)
}

func (m Mesh) accessLog() (AccessLog, error) {
	switch m.AccessLogFile {
	case "":
		return AccessLog{}, nil
	case "/dev/stdout":
	default:
		return AccessLog{}, fmt.Errorf("accessLogFile: %q: want /dev/stdout; a file would fill the disk of its pod", m.AccessLogFile)
	}
	switch m.AccessLogEncoding {
	case "", "TEXT":
		return textLog(m.AccessLogFormat)
	case "JSON":
		return jsonLog(m.AccessLogFormat)
	}
	return AccessLog{}, fmt.Errorf("accessLogEncoding: %q: want TEXT or JSON", m.AccessLogEncoding)
}

const formatField = "accessLogFormat: "

func textLog(format string) (AccessLog, error) {
	if format == "" {
		return AccessLog{Text: defaultText}, nil
	}
	if err := checkFormat(format); err != nil {
		return AccessLog{}, fmt.Errorf(formatField+"%w", err)
	}
	return AccessLog{Text: strings.TrimSuffix(format, "\n") + "\n"}, nil
}

func jsonLog(format string) (AccessLog, error) {
	if format == "" {
		return AccessLog{JSON: defaultJSON()}, nil
	}
	var object map[string]any
	d := json.NewDecoder(bytes.NewReader([]byte(format)))
	if err := d.Decode(&object); err != nil || object == nil || d.More() {
		return AccessLog{}, errors.New(formatField + "want an object in JSON, with a format for each name, because accessLogEncoding is JSON")
	}
	return AccessLog{JSON: object}, checkObject(formatField, object)
}

// checkObject checks the formats in an object of a JSON log.
func checkObject(where string, object map[string]any) error {
	names := make([]string, 0, len(object))
	for name := range object { // any order: the errors are sorted
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		switch v := object[name].(type) {
		case string:
			if err := checkFormat(v); err != nil {
				return fmt.Errorf("%s%q: %w", where, name, err)
			}
		case map[string]any:
			if err := checkObject(where+strconv.Quote(name)+": ", v); err != nil {
				return err
			}
		default:
			return fmt.Errorf("%s%q: want a format, in quotes, or an object", where, name)
		}
	}
	return nil
}

func (m Mesh) tracing(sampling *float64) (Tracing, error) {
	switch len(m.Defaults.Tracing) {
	case 0:
		return Tracing{}, nil
	case 1:
	default:
		return Tracing{}, errors.New("defaultProviders.tracing: want one name, since a proxy has one tracer")
	}
	name := m.Defaults.Tracing[0]
	i := slices.IndexFunc(m.Providers, func(p Provider) bool { return p.Name == name })
	if i < 0 {
		return Tracing{}, fmt.Errorf("defaultProviders.tracing: %q: want the name of one of the extensionProviders", name)
	}
	where := fmt.Sprintf("extensionProviders[%d]", i)
	p := m.Providers[i].OpenTelemetry
	if p == nil {
		return Tracing{}, fmt.Errorf("%s: %q: want opentelemetry, the only kind that traces are sent to", where, name)
	}
	where += ".opentelemetry"
	t := Tracing{Host: p.Service, Port: uint16(p.Port), Sampling: DefaultSampling}
	if _, host, ok := strings.Cut(p.Service, "/"); ok {
		t.Host = host // Istio's NAMESPACE/HOST
	}
	switch {
	case !validHost(t.Host):
		return Tracing{}, fmt.Errorf("%s.service: %q: want the host of a service, such as otel-collector.observability.svc.cluster.local", where, p.Service)
	case p.Port == 0 || p.Port > 65535:
		return Tracing{}, fmt.Errorf("%s.port: %d: want a port, such as 4317", where, p.Port)
	}
	if p.HTTP != nil {
		if t.Path = p.HTTP.Path; t.Path == "" {
			t.Path = "/v1/traces"
		}
		if !pathForm.MatchString(t.Path) {
			return Tracing{}, fmt.Errorf("%s.http.path: %q: want a path, such as /v1/traces", where, t.Path)
		}
	}
	if sampling != nil {
		if err := CheckSampling(*sampling); err != nil {
			return Tracing{}, fmt.Errorf("defaultConfig.tracing.sampling: %w", err)
		}
		t.Sampling = *sampling
	}
	return t, nil
}

// CheckSampling returns an error unless percent is from 0 to 100.
func CheckSampling(percent float64) error {
	if !(percent >= 0 && percent <= 100) { // also refuses NaN
		return fmt.Errorf("%v: want a percentage, from 0 to 100", percent)
	}
	return nil
}

var (
	hostForm = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?$`)
	pathForm = regexp.MustCompile(`^/[!-~]*$`)
)

func validHost(s string) bool {
	return len(s) <= 253 && (hostForm.MatchString(s) || net.ParseIP(s) != nil)
}

// pathWithoutQuery is the operator for the path in the default formats. They omit the query, because it may
// contain tokens and personal data, and contain only the headers that Istio logs by default. A custom format may
// log more.
const pathWithoutQuery = "%PATH(NQ:ORIG_OR_PATH)%"

// defaultText is Istio's default format with two differences: the path has no query, and the cluster is shown by
// its statistics name, because in Outrider this identifies the service. See
// https://istio.io/latest/docs/tasks/observability/logs/access-log/.
const defaultText = `[%START_TIME%] "%REQ(:METHOD)% ` + pathWithoutQuery + ` %PROTOCOL%" %RESPONSE_CODE% %RESPONSE_FLAGS% %RESPONSE_CODE_DETAILS% ` +
	`%CONNECTION_TERMINATION_DETAILS% "%UPSTREAM_TRANSPORT_FAILURE_REASON%" %BYTES_RECEIVED% %BYTES_SENT% %DURATION% ` +
	`%RESP(X-ENVOY-UPSTREAM-SERVICE-TIME)% "%REQ(X-FORWARDED-FOR)%" "%REQ(USER-AGENT)%" "%REQ(X-REQUEST-ID)%" "%REQ(:AUTHORITY)%" ` +
	`"%UPSTREAM_HOST%" %UPSTREAM_CLUSTER% %UPSTREAM_LOCAL_ADDRESS% %DOWNSTREAM_LOCAL_ADDRESS% %DOWNSTREAM_REMOTE_ADDRESS% ` +
	"%REQUESTED_SERVER_NAME% %ROUTE_NAME%\n"

// defaultJSON returns the default JSON format: the operators of defaultText, under Istio's names.
func defaultJSON() map[string]any {
	return map[string]any{
		"start_time": "%START_TIME%", "method": "%REQ(:METHOD)%", "path": pathWithoutQuery, "protocol": "%PROTOCOL%",
		"response_code": "%RESPONSE_CODE%", "response_flags": "%RESPONSE_FLAGS%", "response_code_details": "%RESPONSE_CODE_DETAILS%",
		"connection_termination_details":    "%CONNECTION_TERMINATION_DETAILS%",
		"upstream_transport_failure_reason": "%UPSTREAM_TRANSPORT_FAILURE_REASON%",
		"bytes_received":                    "%BYTES_RECEIVED%", "bytes_sent": "%BYTES_SENT%", "duration": "%DURATION%",
		"upstream_service_time": "%RESP(X-ENVOY-UPSTREAM-SERVICE-TIME)%", "x_forwarded_for": "%REQ(X-FORWARDED-FOR)%",
		"user_agent": "%REQ(USER-AGENT)%", "request_id": "%REQ(X-REQUEST-ID)%", "authority": "%REQ(:AUTHORITY)%",
		"upstream_host": "%UPSTREAM_HOST%", "upstream_cluster": "%UPSTREAM_CLUSTER%", "upstream_local_address": "%UPSTREAM_LOCAL_ADDRESS%",
		"downstream_local_address": "%DOWNSTREAM_LOCAL_ADDRESS%", "downstream_remote_address": "%DOWNSTREAM_REMOTE_ADDRESS%",
		"requested_server_name": "%REQUESTED_SERVER_NAME%", "route_name": "%ROUTE_NAME%",
	}
}

// maxFormat is the maximum length of a format in bytes. It is limited because each listener of each proxy
// contains the format.
const maxFormat = 16 << 10

// operator matches an operator of a format, such as %REQ(X-A):10%: a name, optional arguments, and an optional
// length.
var operator = regexp.MustCompile(`%([A-Z0-9_]*)(\([^()%]*\))?(:[0-9]{1,5})?%`)

// checkFormat returns an error for a format that Envoy might not accept: a single unknown operator would make
// Envoy reject the whole listener.
func checkFormat(format string) error {
	if len(format) > maxFormat || !utf8.ValidString(format) || strings.Contains(format, "\x00") {
		return fmt.Errorf("want at most %d bytes of UTF-8", maxFormat)
	}
	rest := format
	for {
		i := strings.IndexByte(rest, '%')
		if i < 0 {
			return nil
		}
		rest = rest[i:]
		m := operator.FindStringSubmatchIndex(rest)
		if m == nil || m[0] != 0 {
			return fmt.Errorf("%q: want an operator of Envoy between two of %%, such as %%RESPONSE_CODE%%, and %%%% for the character", rest[:min(len(rest), 40)])
		}
		name, args := rest[m[2]:m[3]], ""
		if m[4] >= 0 {
			args = rest[m[4]:m[5]]
		}
		if err := checkOperator(name, args, m[6] >= 0, m[1]); err != nil {
			return fmt.Errorf("%s: %w", rest[:m[1]], err)
		}
		rest = rest[m[1]:]
	}
}

func checkOperator(name, args string, cut bool, length int) error {
	if name == "" && length == 2 {
		return nil // %%
	}
	form, known := operators[name]
	switch {
	case !known:
		return errors.New("not an operator that is taken here (docs/telemetry.md lists them)")
	case form == nil && (args != "" || cut):
		return errors.New("it takes no argument")
	case form != nil && !form.MatchString(args):
		return fmt.Errorf("want an argument of the form %s", strings.Trim(form.String(), "^$"))
	case cut && form != headerName:
		return errors.New("only a header can be cut")
	}
	return nil
}

var (
	headerName = regexp.MustCompile(`^\([:A-Za-z0-9_-]+(\?:?[A-Za-z0-9_-]+)?\)$`)
	timeForm   = regexp.MustCompile(`^(\(%?[A-Za-z0-9 :.+/_-]*\))?$`)
	pathArgs   = regexp.MustCompile(`^\((NQ|WQ)(:(ORIG|PATH|ORIG_OR_PATH))?\)$`)
	envName    = regexp.MustCompile(`^\([A-Za-z_][A-Za-z0-9_]*\)$`)
	grpcForm   = regexp.MustCompile(`^(\((CAMEL_STRING|SNAKE_STRING|NUMBER)\))?$`)
)

// operators maps the supported operators of Envoy to the form of their arguments; nil means no arguments.
var operators = func() map[string]*regexp.Regexp {
	out := map[string]*regexp.Regexp{
		"REQ": headerName, "RESP": headerName, "TRAILER": headerName, "START_TIME": timeForm, "PATH": pathArgs, "ENVIRONMENT": envName, "GRPC_STATUS": grpcForm,
	}
	for name := range strings.FieldsSeq(`
		PROTOCOL RESPONSE_CODE RESPONSE_CODE_DETAILS RESPONSE_FLAGS RESPONSE_FLAGS_LONG CONNECTION_TERMINATION_DETAILS CONNECTION_ID STREAM_ID
		UPSTREAM_TRANSPORT_FAILURE_REASON DOWNSTREAM_TRANSPORT_FAILURE_REASON BYTES_RECEIVED BYTES_SENT
		UPSTREAM_WIRE_BYTES_SENT UPSTREAM_WIRE_BYTES_RECEIVED DOWNSTREAM_WIRE_BYTES_SENT DOWNSTREAM_WIRE_BYTES_RECEIVED
		DURATION REQUEST_DURATION RESPONSE_DURATION RESPONSE_TX_DURATION REQUEST_TX_DURATION
		UPSTREAM_HOST UPSTREAM_CLUSTER UPSTREAM_CLUSTER_RAW UPSTREAM_LOCAL_ADDRESS UPSTREAM_REMOTE_ADDRESS UPSTREAM_REQUEST_ATTEMPT_COUNT
		UPSTREAM_TLS_VERSION UPSTREAM_TLS_CIPHER UPSTREAM_PEER_URI_SAN UPSTREAM_PEER_SUBJECT
		DOWNSTREAM_LOCAL_ADDRESS DOWNSTREAM_LOCAL_PORT DOWNSTREAM_LOCAL_ADDRESS_WITHOUT_PORT
		DOWNSTREAM_REMOTE_ADDRESS DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT DOWNSTREAM_DIRECT_REMOTE_ADDRESS DOWNSTREAM_DIRECT_REMOTE_ADDRESS_WITHOUT_PORT
		DOWNSTREAM_TLS_VERSION DOWNSTREAM_TLS_CIPHER DOWNSTREAM_PEER_URI_SAN DOWNSTREAM_PEER_SUBJECT DOWNSTREAM_LOCAL_URI_SAN
		REQUESTED_SERVER_NAME ROUTE_NAME VIRTUAL_CLUSTER_NAME FILTER_CHAIN_NAME HOSTNAME GRPC_STATUS_NUMBER TRACE_ID ACCESS_LOG_TYPE UNIQUE_ID`) {
		out[name] = nil
	}
	return out
}()
