package config

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// pod contains the variables of every injected pod.
var pod = []string{"POD_NAME=app-1", "POD_NAMESPACE=shop", "SERVICE_ACCOUNT=app", "INSTANCE_IP=10.0.0.7"}

func files(content map[string]string) func(string) ([]byte, error) {
	return func(name string) ([]byte, error) {
		text, ok := content[name]
		if !ok {
			return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
		}
		return []byte(text), nil
	}
}

// like returns the default configuration of an injected pod after a change.
func like(change func(*Config)) Config {
	c := Default()
	c.Pod.Name, c.Pod.Namespace, c.Pod.ServiceAccount = "app-1", "shop", "app"
	c.Pod.Addresses = []netip.Addr{netip.MustParseAddr("10.0.0.7")}
	c.Pod.Domain = "shop.svc.cluster.local"
	c.Pod.Metadata = map[string]any{"NAME": "app-1", "NAMESPACE": "shop", "SERVICE_ACCOUNT": "app"}
	c.ControlPlane.CA = c.ControlPlane.Address
	c.Envoy.Concurrency = 2
	if change != nil {
		change(&c)
	}
	return c
}

func TestRead(t *testing.T) {
	tests := map[string]struct {
		flags map[string]string
		env   []string
		files map[string]string
		want  Config
	}{
		"a pod with its identity alone gets the defaults": {
			want: like(nil),
		},
		"the mesh's file, PROXY_CONFIG, the annotation and a flag: a later one wins": {
			files: map[string]string{
				"/etc/outrider/config/mesh":     "trustDomain: corp\ndefaultConfig:\n  concurrency: 3\n  terminationDrainDuration: 7s\n  drainDuration: 9s\n  proxyAdminPort: 15999\n",
				"/etc/outrider/pod/annotations": `proxy.istio.io/config="{drainDuration: 11s, concurrency: 5}"` + "\n",
			},
			env:   []string{`PROXY_CONFIG={"concurrency":4,"drainDuration":"10s"}`},
			flags: map[string]string{"concurrency": "6"},
			want: like(func(c *Config) {
				c.Pod.TrustDomain = "corp"
				c.Envoy.Concurrency = 6
				c.Envoy.DrainTime = 11 * time.Second
				c.Stop.Drain = 7 * time.Second
				c.Ports.Admin = 15999
			}),
		},
		"a flag of concurrency 0 leaves it to the other settings, and the limit counts last": {
			flags: map[string]string{"concurrency": "0"},
			env:   []string{"ISTIO_CPU_LIMIT=8"},
			want:  like(func(c *Config) { c.Envoy.Concurrency, c.Envoy.CPUs = 8, 8 }),
		},
		"a number wins over the limit": {
			env:  []string{"ISTIO_CPU_LIMIT=3", "PROXY_CONFIG={concurrency: 1}"},
			want: like(func(c *Config) { c.Envoy.Concurrency, c.Envoy.CPUs = 1, 3 }),
		},
		"concurrency 0 is all processors": {
			env:  []string{"ISTIO_CPU_LIMIT=3", "PROXY_CONFIG={concurrency: 0}"},
			want: like(func(c *Config) { c.Envoy.Concurrency, c.Envoy.CPUs = min(runtime.NumCPU(), 1024), 3 }),
		},
		"ECDSA wins over the size of an RSA key": {
			env:  []string{"ECC_SIGNATURE_ALGORITHM=ECDSA", "WORKLOAD_RSA_KEY_SIZE=2048"},
			want: like(nil),
		},
		"no grace period is the kubelet's minimum": {
			env: []string{"OUTRIDER_GRACE=0s"},
			want: like(func(c *Config) {
				c.Stop.Grace = 2 * time.Second
				c.Notes = []string{"the grace period is 0s; the kubelet gives 2s at least",
					"terminationDrainDuration is 5s, but the pod's grace period ends after 2s: the proxy leaves then"}
			}),
		},
		"metadata of Istio's form goes into the node": {
			env: []string{"ISTIO_META_CLUSTER_ID=one", `ISTIO_METAJSON_LABELS={"app":"x"}`},
			want: like(func(c *Config) {
				c.Pod.Metadata["CLUSTER_ID"] = "one"
				c.Pod.Metadata["LABELS"] = map[string]any{"app": "x"}
			}),
		},
		"proxyMetadata is variables, and the container's own overrule it": {
			files: map[string]string{"/etc/outrider/config/mesh": "defaultConfig: {proxyMetadata: {MINIMUM_DRAIN_DURATION: 9s}}"},
			env:   []string{`PROXY_CONFIG={"proxyMetadata":{"SECRET_TTL":"1h","MINIMUM_DRAIN_DURATION":"2s"}}`, "SECRET_TTL=2h"},
			want: like(func(c *Config) {
				c.Certificate.Lifetime, c.Stop.Minimum = 2*time.Hour, 2*time.Second
			}),
		},
		"Istio's log level may hold components": {
			flags: map[string]string{"proxyLogLevel": "info,misc:error", "proxyComponentLogLevel": "upstream:debug"},
			want: like(func(c *Config) {
				c.Envoy.Level = "info"
				c.Envoy.Components = map[string]string{"misc": "error", "upstream": "debug"}
			}),
		},
		"the user's own bootstrap, in YAML": {
			env:   []string{"ISTIO_BOOTSTRAP_OVERRIDE=/boot.yaml"},
			files: map[string]string{"/boot.yaml": "admin:\n  profile_path: /tmp/p\n"},
			want:  like(func(c *Config) { c.Envoy.Extra = []byte(`{"admin":{"profile_path":"/tmp/p"}}`) }),
		},
		"the names in the control plane's certificate": {
			flags: map[string]string{"control-plane": "[fd00::1]:15012"},
			env:   []string{"ISTIOD_SAN=spiffe://td/cp, cp.example"},
			want: like(func(c *Config) {
				c.ControlPlane.Address, c.ControlPlane.CA = "[fd00::1]:15012", "[fd00::1]:15012"
				c.ControlPlane.Names = []string{"spiffe://td/cp", "cp.example"}
			}),
		},
		"an address without TLS needs no name": {
			flags: map[string]string{"control-plane": "10.0.0.1:15010"},
			env:   []string{"PROXY_CONFIG={controlPlaneAuthPolicy: NONE}"},
			want: like(func(c *Config) {
				c.ControlPlane.Address, c.ControlPlane.CA, c.ControlPlane.Plaintext = "10.0.0.1:15010", "10.0.0.1:15010", true
			}),
		},
		"a setting without effect gets a note": {
			flags: map[string]string{"stsPort": "15463", "templateFile": ""},
			env:   []string{"PROXY_CONFIG={tracing: {sampling: 1, zipkin: {}}, colour: red, image: {imageType: debug}}", "CA_PROVIDER=Citadel"},
			want: like(func(c *Config) {
				c.Envoy.Sampling = "1"
				c.Notes = []string{
					"variable PROXY_CONFIG: colour: no such setting is known; it has no effect",
					"variable PROXY_CONFIG: tracing.zipkin has no effect: spans go to the opentelemetry provider of meshConfig.defaultProviders.tracing",
					"variable CA_PROVIDER has no effect: certificates are requested by Istio's own service, which others offer too",
					"--stsPort has no effect: there is no token exchange",
				}
			}),
		},
		"what is misspelt or not the agent's gets a note": {
			files: map[string]string{"/etc/outrider/config/mesh": "trustDomain: td\nenableTracing: true\naccessLogFile: x\ndefaultConfig: {concurency: 2, image: {imagetype: a}, proxyStatsMatcher: {prefixes: [a]}}"},
			want: like(func(c *Config) {
				c.Pod.TrustDomain = "td"
				c.Notes = []string{
					"/etc/outrider/config/mesh: the agent reads defaultConfig and trustDomain alone; without effect here: accessLogFile, enableTracing",
					"/etc/outrider/config/mesh: defaultConfig: concurency: no such setting is known (did you mean concurrency?); it has no effect",
					"/etc/outrider/config/mesh: defaultConfig: image.imagetype: no such setting is known (did you mean imageType?); it has no effect",
					"/etc/outrider/config/mesh: defaultConfig: proxyStatsMatcher.prefixes: no such setting is known; it has no effect",
				}
			}),
		},
		"a grace period shorter than the drain gets a note": {
			flags: map[string]string{"grace": "3s"},
			want: like(func(c *Config) {
				c.Stop.Grace = 3 * time.Second
				c.Notes = []string{"terminationDrainDuration is 5s, but the pod's grace period ends after 3s: the proxy leaves then"}
			}),
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := Read(Inputs{Flags: tt.flags, Environ: append(pod[:len(pod):len(pod)], tt.env...), ReadFile: files(tt.files)})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got, cmpopts.EquateComparable(netip.Addr{})); diff != "" {
				t.Errorf("Read (-want +got):\n%s", diff)
			}
		})
	}
}

func TestReadRefuses(t *testing.T) {
	tests := map[string]struct {
		flags map[string]string
		env   []string
		files map[string]string
		want  string
	}{
		"a time without a unit":         {env: []string{"OUTRIDER_GRACE=24"}, want: `variable OUTRIDER_GRACE: "24" cannot be used; want a time that is not negative, for example 5s`},
		"a short life":                  {env: []string{"SECRET_TTL=1ms"}, want: `variable SECRET_TTL: "1ms" cannot be used; want a time of 1s or more`},
		"a part of a second":            {env: []string{"PROXY_CONFIG={drainDuration: 1500ms}"}, want: `variable PROXY_CONFIG: drainDuration: "1500ms" cannot be used; want whole seconds, 1s or more`},
		"no drain time":                 {files: map[string]string{"/etc/outrider/pod/annotations": `proxy.istio.io/config="drainDuration: 0s"`}, want: `annotation proxy.istio.io/config: drainDuration: "0s" cannot be used`},
		"too many threads":              {flags: map[string]string{"concurrency": "5000"}, want: `--concurrency: "5000" cannot be used; want a number from 1 to 1024`},
		"a limit past all":              {env: []string{"ISTIO_CPU_LIMIT=5000"}, want: `variable ISTIO_CPU_LIMIT: "5000" cannot be used; want a number from 1 to 1024`},
		"proofs too often":              {env: []string{"OUTRIDER_CAPTURE_PROOF=99ms"}, want: `variable OUTRIDER_CAPTURE_PROOF: "99ms" cannot be used; want a time from 100ms to 10m, for example 30s`},
		"another family":                {env: []string{"OUTRIDER_FAMILIES=ip"}, want: `variable OUTRIDER_FAMILIES: "ip" cannot be used; want auto, ipv4, ipv6 or dual`},
		"proofs too rarely":             {env: []string{"OUTRIDER_CAPTURE_PROOF=601s"}, want: "want a time from 100ms to 10m"},
		"a mode that is none":           {env: []string{"ISTIO_META_INTERCEPTION_MODE=tproxy"}, want: `variable ISTIO_META_INTERCEPTION_MODE: "tproxy" cannot be used; want REDIRECT, TPROXY or NONE`},
		"a mode that is a number":       {env: []string{"ISTIO_METAJSON_INTERCEPTION_MODE=7"}, want: `"7" cannot be used; want REDIRECT, TPROXY or NONE`},
		"a mode in a ProxyConfig":       {env: []string{"PROXY_CONFIG={interceptionMode: tproxy}"}, want: `PROXY_CONFIG: interceptionMode: "tproxy" cannot be used`},
		"a small key":                   {env: []string{"WORKLOAD_RSA_KEY_SIZE=7"}, want: `variable WORKLOAD_RSA_KEY_SIZE: "7" cannot be used; want 2048`},
		"a large key":                   {env: []string{"WORKLOAD_RSA_KEY_SIZE=4096"}, want: `variable WORKLOAD_RSA_KEY_SIZE: "4096" cannot be used; want 2048`},
		"an expression that is none":    {env: []string{"PROXY_CONFIG={proxyStatsMatcher: {inclusionRegexps: ['a(']}}"}, want: `proxyStatsMatcher: inclusionRegexps: "a(" cannot be used; want an expression of RE2`},
		"an empty statistic":            {env: []string{"PROXY_CONFIG={proxyStatsMatcher: {inclusionPrefixes: ['']}}"}, want: `proxyStatsMatcher: inclusionPrefixes: "" cannot be used`},
		"a component that is none":      {flags: map[string]string{"proxyComponentLogLevel": "MISC:error"}, want: `--proxyComponentLogLevel: "MISC:error" cannot be used; want component:level`},
		"an annotation's level":         {files: map[string]string{"/etc/outrider/pod/annotations": `sidecar.istio.io/logLevel="loud"`}, want: `annotation sidecar.istio.io/logLevel: "loud" cannot be used`},
		"the agent's level":             {flags: map[string]string{"log-level": "loud"}, want: `--log-level: "loud" cannot be used; want one of debug, info, warn, error`},
		"no renewal":                    {env: []string{"SECRET_GRACE_PERIOD_RATIO=0"}, want: `variable SECRET_GRACE_PERIOD_RATIO: "0" cannot be used; want more than 0`},
		"a jitter past the life":        {env: []string{"SECRET_GRACE_PERIOD_RATIO_JITTER=0.6"}, want: `variable SECRET_GRACE_PERIOD_RATIO_JITTER: "0.6" cannot be used; want less than 0.5`},
		"a level that is none":          {flags: map[string]string{"proxyLogLevel": "loud"}, want: `--proxyLogLevel: "loud" cannot be used; want one of trace`},
		"an address without a port":     {flags: map[string]string{"control-plane": "outriderd"}, want: `discoveryAddress: "outriderd" cannot be used; want host:port`},
		"an address with a zone":        {flags: map[string]string{"control-plane": "[fe80::1%eth0]:1"}, want: `discoveryAddress: "[fe80::1%eth0]:1" cannot be used; want host:port`},
		"a host with a slash":           {flags: map[string]string{"control-plane": "x/y:1"}, want: `discoveryAddress: "x/y:1" cannot be used; want host:port`},
		"a name with a colon":           {flags: map[string]string{"control-plane": "[x:y]:1"}, want: `discoveryAddress: "[x:y]:1" cannot be used; want host:port`},
		"a name that is too long":       {flags: map[string]string{"control-plane": strings.Repeat("x", 254) + ":1"}, want: `x:1" cannot be used; want host:port`},
		"port 0":                        {env: []string{"CA_ADDR=x:0"}, want: `variable CA_ADDR: "x:0" cannot be used; want host:port`},
		"an address without a name":     {flags: map[string]string{"control-plane": "10.0.0.1:1"}, want: `variable ISTIOD_SAN: "" cannot be used; want the SPIFFE URI or DNS name in the control plane's certificate, since 10.0.0.1 is not a name`},
		"two users of one port":         {env: []string{"PROXY_CONFIG={statusPort: 15021}"}, want: `the readiness port: "15021" cannot be used; want a port that is not also that of statusPort`},
		"a list where a value belongs":  {env: []string{"PROXY_CONFIG={concurrency: [1]}"}, want: `PROXY_CONFIG: concurrency: "an object or a list" cannot be used; want one value`},
		"no YAML":                       {env: []string{"PROXY_CONFIG={"}, want: `variable PROXY_CONFIG: `},
		"a bootstrap that is a list":    {env: []string{"ISTIO_BOOTSTRAP_OVERRIDE=/b"}, files: map[string]string{"/b": "[1]"}, want: `want an object of Envoy's bootstrap`},
		"a bootstrap that is not there": {env: []string{"ISTIO_BOOTSTRAP_OVERRIDE=/b"}, want: `variable ISTIO_BOOTSTRAP_OVERRIDE: "/b" cannot be used; want a file that can be read`},
		"annotations of another form":   {files: map[string]string{"/etc/outrider/pod/annotations": "a: b"}, want: "line 1: not a key with a quoted value"},
		"metadata that is not JSON":     {env: []string{"ISTIO_METAJSON_X={"}, want: `variable ISTIO_METAJSON_X: "{" cannot be used; want JSON`},
		"a share past 1":                {env: []string{"SECRET_GRACE_PERIOD_RATIO=1.5"}, want: "want a number from 0 to 1"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := Read(Inputs{Flags: tt.flags, Environ: append(pod[:len(pod):len(pod)], tt.env...), ReadFile: files(tt.files)})
			var e *Error
			if !errors.As(err, &e) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("Read: %v\nwant %q", err, tt.want)
			}
		})
	}
}

func TestReadReportsAllThatIsMissing(t *testing.T) {
	_, err := Read(Inputs{ReadFile: files(nil)})
	for _, want := range []string{"POD_NAME", "POD_NAMESPACE", "SERVICE_ACCOUNT"} {
		if err == nil || !strings.Contains(err.Error(), "variable "+want) {
			t.Errorf("Read without anything: %v, want it to name %s", err, want)
		}
	}
}

func TestErrorsHaveOneOrder(t *testing.T) {
	in := Inputs{
		Flags:    map[string]string{"control-plane": "outriderd"},
		Environ:  []string{`PROXY_CONFIG={proxyStatsMatcher: {inclusionPrefixes: [''], inclusionSuffixes: [''], inclusionRegexps: ['']}}`},
		ReadFile: files(nil),
	}
	_, first := Read(in)
	for range 50 {
		if _, err := Read(in); err.Error() != first.Error() {
			t.Fatalf("Read: %v\nthe first time: %v", err, first)
		}
	}
}

func FuzzRead(f *testing.F) {
	f.Add("{concurrency: 2}", `a="b"`, "SECRET_TTL", "5s")
	f.Add("{proxyMetadata: {A: b}}", "proxy.istio.io/config=\"{}\"\n", "ISTIO_METAJSON_X", "[]")
	f.Add("defaultConfig: {}", "", "DNS_PROXY_ADDR", "localhost:53")
	f.Add("", "=`no name`", "A", "b")
	f.Fuzz(func(t *testing.T, proxy, annotations, name, value string) {
		env := append(pod[:len(pod):len(pod)], "PROXY_CONFIG="+proxy, name+"="+value)
		c, err := Read(Inputs{Environ: env, ReadFile: files(map[string]string{
			"/etc/outrider/pod/annotations": annotations, "/etc/outrider/config/mesh": proxy})})
		if err == nil && (c.Work == "" || c.Ports.Admin == 0 || c.Stop.Grace < 0) {
			t.Errorf("Read accepts %+v", c)
		}
		// The function Changes must not panic on the same annotations in a running pod.
		now, _ := Annotations([]byte(annotations))
		runs := like(nil)
		for _, change := range append(Changes(Taken(runs, c), c, nil, now), Changes(Taken(runs, c), c, now, nil)...) {
			if change.Refused == "" {
				t.Errorf("%+v is not taken", change)
			}
		}
	})
}

// A variable of proxyMetadata that nothing reads gets a note; 1,500 such variables get a bounded
// number of notes.
func TestUnknownVariablesOfProxyMetadata(t *testing.T) {
	notes := func(metadata string) []string {
		c, err := Read(Inputs{Environ: []string{"POD_NAME=a", "POD_NAMESPACE=b", "SERVICE_ACCOUNT=c", "INSTANCE_IP=192.0.2.1", "GODEBUG=x", "PROXY_CONFIG={proxyMetadata: {" + metadata + "}}"},
			ReadFile: func(string) ([]byte, error) { return nil, fs.ErrNotExist }})
		if err != nil {
			t.Fatal(err)
		}
		return c.Notes
	}
	got := notes("FOO: a, EXIT_ON_ZERO_ACTIVE_CONNECTION: true, ISTIO_META_DNS_CAPTUR: true, ISTIO_METAJSON_LABELS: '{}', ISTIO_META_NETWORK: n, SECRET_TTL: 9h, ISTIO_DELTA_XDS: true")
	want := []string{
		"variable ISTIO_DELTA_XDS has no effect: Envoy subscribes by delta xDS",
		"variable EXIT_ON_ZERO_ACTIVE_CONNECTION is not known (did you mean EXIT_ON_ZERO_ACTIVE_CONNECTIONS?); it is set in the container, and has no other effect here",
		"variable FOO is not known; it is set in the container, and has no other effect here",
		"variable ISTIO_METAJSON_LABELS is in the node's metadata alone: outriderd does not read it",
		"variable ISTIO_META_DNS_CAPTUR is in the node's metadata alone: outriderd does not read it (did you mean ISTIO_META_DNS_CAPTURE?)",
	}
	if !slices.Equal(got, want) {
		t.Errorf("%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	var many []string
	for i := range 1500 {
		many = append(many, fmt.Sprintf("V%d: a", i))
	}
	if got := notes(strings.Join(many, ", ")); len(got) != mostUnknown+1 || got[mostUnknown] != "more than 50 variables of proxyMetadata are not known" {
		t.Errorf("%d notes: %q", len(got), got[len(got)-1])
	}
}

func TestTheAgentsVersionIsInTheNode(t *testing.T) {
	got, err := Read(Inputs{Environ: pod, ReadFile: files(nil), Version: "v1.2.3"})
	if err != nil || got.Pod.Metadata["OUTRIDER_VERSION"] != "v1.2.3" {
		t.Errorf("%v, %v", got.Pod.Metadata, err)
	}
}
