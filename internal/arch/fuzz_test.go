package arch

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// targets are all fuzz targets, by the input that they cover.
var targets = map[string]string{
	// From the network, of callers that are not known.
	"internal/controlplane FuzzHTTP":                               "requests to outriderd's metrics and debug port",
	"internal/controlplane/webhook FuzzBody":                       "reviews of pods",
	"internal/controlplane/conns FuzzGate":                         "turns of addresses at the processors and the memory for requests",
	"internal/controlplane/ca FuzzCSR":                             "requests for certificates",
	"internal/controlplane/ca FuzzVerify":                          "tokens",
	"internal/controlplane/ca FuzzParseIdentity":                   "identities in certificates",
	"internal/controlplane/ca FuzzIdentityCheckAgreesWithGoSPIFFE": "the same, against SPIFFE's library",
	"internal/wire FuzzCertificates":                               "messages of the certificate service",
	"internal/wire FuzzPEM":                                        "certificates and keys",
	"internal/wire FuzzFields":                                     "protobuf",
	"internal/wire FuzzAway":                                       "what agents respond with without a control plane",
	"internal/agent/relay FuzzFrames":                              "HTTP/2 between Envoy and the control plane",
	"internal/agent/relay FuzzMessages":                            "discovery requests and responses",
	"internal/agent/relay FuzzOpening":                             "Envoy's first request",
	"internal/agent/relay FuzzStore":                               "the file of what Envoy accepted",
	"internal/wire FuzzNames":                                      "messages of the name service",
	"internal/wire FuzzUnframe":                                    "gRPC's frames",
	"internal/wire FuzzReadMessage":                                "gRPC's frames, in a stream",
	"internal/wire FuzzVerdict":                                    "gRPC's status",
	"internal/wire FuzzHealthStatus":                               "answers of gRPC's health service",
	"internal/xds FuzzDelta":                                       "requests of proxies, delta",
	"internal/xds FuzzStateOfTheWorld":                             "requests of proxies, state of the world",
	"internal/xds FuzzPrewarmCache":                                "what workloads used",
	"internal/mesh/objects FuzzAuthorizationPolicy":                "policies of clients that are let in",
	"internal/mesh FuzzIgnored":                                    "objects of kinds that are ignored",
	"internal/xds FuzzParseNodeID":                                 "identifiers of proxies",
	"internal/xds/resource FuzzNames":                              "names of resources",
	"internal/agent/status FuzzEndpoints":                          "requests to a pod's status ports",
	"internal/agent/status FuzzRequestNames":                       "statistics of Envoy, as they are shown",
	"internal/telemetry FuzzFormat":                                "formats of access logs",
	"internal/agent/status FuzzGateways":                           "the kernel's routes, for the node's address",
	"internal/agent/dns FuzzQuestions":                             "DNS queries of the pod's apps",
	"internal/agent/dns FuzzAnswers":                               "DNS answers of upstream servers",
	"internal/image/lookup FuzzDocument":                           "manifests and indexes of registries",
	"internal/image/lookup FuzzConfiguration":                      "configurations of images of registries",
	"cmd/outrider FuzzProxyStatus":                                 "answers of a control plane",
	"internal/mask FuzzMask":                                       "texts and objects with secrets",
	"cmd/outrider-agent FuzzGroups":                                "groups of a user, in the root stage's flags",
	"internal/agent/identity FuzzAnswer":                           "answers of the certificate service",
	"internal/agent/identity FuzzDiscoveryRequest":                 "requests of Envoy for secrets",
	// From people: files and flags.
	"internal/controlplane/files FuzzManifest": "a folder of manifests, and objects of internal/mesh/objects",
	"internal/image FuzzImage":                 "names in images that are written",
	"internal/image/lookup FuzzCredentials":    "Docker's config.json",
	"internal/evidence/timestamp FuzzFind":     "times in lines of logs",
	"internal/evidence FuzzObjects":            "pods, events, owners and journals",
	"internal/evidence FuzzArchive":            "archives, and the files in them",
	"internal/evidence FuzzLog":                "logs and their sections",
	"internal/evidence FuzzMatch":              "patterns and lines",
	"internal/diagnose/page FuzzHTML":          "what logs and pods say, in a page",
	"internal/diagnose FuzzDestination":        "what a line of a log says was called",
	"internal/diagnose FuzzCapture":            "settings of capture in pods of any mesh",
	"internal/lint FuzzLint":                   "manifests, linted and fixed",
	"internal/manifest FuzzSmallChange":        "manifests, edited",
	"internal/manifest/limits FuzzParse":       "YAML that repeats itself",
	"internal/manifest FuzzSplit":              "documents of a file",
	"internal/pod/podspec FuzzRead":            "pods and workloads",
	"internal/pod/podspec FuzzRewrite":         "manifests, injected",
	"internal/pod/podspec FuzzStatements":      "shell scripts in commands",
	"internal/pod/podspec FuzzCalls":           "programs that a script runs",
	"internal/pod/podspec FuzzEdges":           "annotations of dependencies",
	"internal/pod/inject FuzzPod":              "pods, injected",
	"internal/pod/inject FuzzAnnotations":      "annotations of injection",
	"internal/pod/inject FuzzValues":           "values of Istio's charts, and --set",
	"internal/pod/inject FuzzMeshConfig":       "mesh configurations",
	"internal/agent/config FuzzRead":           "the agent's configuration",
	"internal/model/simulate FuzzBehaviour":    "behaviours of simulate, also of internal/model/scenario",
	"internal/model/scenario FuzzReplay":       "recordings of verify that simulate replays",
	"internal/model/kubelet FuzzStep":          "events of the model of a kubelet",
	"internal/run/localpod FuzzReaders":        "ConfigMaps, mounts, $(NAME) and answers of probes",
	"internal/cli/visible FuzzPlain":           "text for a terminal",
	"startup FuzzDistance":                     "misspelt words",
	"startup FuzzParse":                        "plans",
	"internal/contract FuzzNodeWork":           "what a node does for a pod, as an annotation",
	"internal/node/captures FuzzParse":         "flags of a capture in a pod's annotation",
	"internal/node/socket FuzzQuestion":        "questions to a node's daemon",
	"internal/node/cni FuzzConf":               "what a runtime hands to the CNI plugin",
	"internal/node/kubenode FuzzTaints":        "taints of a Node",
	"internal/node/validator FuzzState":        "a runtime's configuration",
	"internal/node/cniconf FuzzEdit":           "network configurations of a node",
	"internal/contract FuzzGate":               "the gate's command line",
	"internal/agent/gate FuzzParseProbe":       "the gate's probes",
	"internal/agent/gate FuzzParseAfter":       "the gate's edges",
	"internal/agent/standby FuzzReadHeader":    "headers of the PROXY protocol",
	"internal/agent/envoy FuzzBootstrap":       "extra configuration of Envoy",
	"internal/agent/status FuzzParseProbes":    "probes of the app",
	"internal/agent/status FuzzParseTargets":   "the app's ports for metrics",
	"internal/capture FuzzFlags":               "flags of capture",
	"internal/capture FuzzPorts":               "lists of ports",
	"internal/capture FuzzQuery":               "connections of rules --explain",
	// From the kernel, and from files that a process of ours wrote.
	"internal/capture/nftables FuzzAnswer":         "netlink's answers",
	"internal/capture/nftables FuzzDecodeRule":     "rules of nftables",
	"internal/capture/nftables FuzzDecodeSet":      "sets of nftables",
	"internal/capture/iptables FuzzDecodeEntries":  "legacy tables",
	"internal/capture/iptables FuzzDecodeSet":      "sets of ipset",
	"internal/capture/iptables FuzzParse":          "rules of iptables-save",
	"internal/capture/setup FuzzParseEntry":        "routing rules",
	"internal/capture/setup FuzzHolder":            "the list of locks",
	"internal/agent/sockets FuzzAnswer":            "sock_diag's answers",
	"internal/agent/sockets FuzzReadTable":         "/proc/net/tcp",
	"internal/agent/supervise FuzzParseStartTicks": "/proc/PID/stat",
	"internal/agent/readiness FuzzRead":            "Envoy's statistics",
	"internal/agent/envoy FuzzParseLine":           "Envoy's log",
	"internal/agent/dns FuzzConf":                  "resolv.conf",
	"internal/agent/state FuzzDecode":              "states of gates",
	"internal/agent/identity FuzzStored":           "certificates that were kept",
	"internal/agent/proxy FuzzStageRecord":         "the record of the stage as root",
	"internal/controlplane/ca FuzzUsedTokens":      "used tokens",
}

// elsewhere are packages whose parsers are covered by a target of another package, or read
// nothing of others.
var elsewhere = map[string]string{
	"internal/controlplane/debugapi": "cmd/outrider FuzzProxyStatus",
	"internal/mesh/objects":          "internal/controlplane/files FuzzManifest",
	"internal/model/scenario":        "internal/model/simulate FuzzBehaviour",
	"internal/cli":                   "numbers of flags, by package strconv",
}

// parses is the name of a function that reads what others wrote.
var parses = regexp.MustCompile(`^([Pp]arse|[Dd]ecode|Unmarshal)([A-Z]|$)`)

// Each parser has a fuzz target, and each target says what it covers.
func TestWhateverParsesHasAFuzzTarget(t *testing.T) {
	root := filepath.Join("..", "..")
	found, parsers := map[string]bool{}, map[string]string{}
	err := filepath.WalkDir(root, func(file string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, file)
		if err != nil {
			return err
		}
		if d.IsDir() {
			top, _, _ := strings.Cut(filepath.ToSlash(rel), "/")
			if rel != "." && !slices.Contains([]string{"cmd", "internal", "startup"}, top) || d.Name() == "testdata" {
				return fs.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(file, ".go") {
			return nil
		}
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		pkg := filepath.ToSlash(filepath.Dir(rel))
		for _, d := range f.Decls {
			fn, ok := d.(*ast.FuncDecl)
			switch {
			case !ok:
			case strings.HasSuffix(file, "_test.go") && strings.HasPrefix(fn.Name.Name, "Fuzz"):
				found[pkg+" "+fn.Name.Name] = true
			case !strings.HasSuffix(file, "_test.go") && parses.MatchString(fn.Name.Name):
				parsers[pkg] = fn.Name.Name
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(root, "internal")); err != nil || len(found) < 50 {
		t.Fatalf("only %d targets: the test looks in the wrong place", len(found))
	}
	for _, target := range slices.Sorted(maps.Keys(found)) {
		if targets[target] == "" {
			t.Errorf("%s is not in the list of targets: say what it covers", target)
		}
	}
	for _, target := range slices.Sorted(maps.Keys(targets)) {
		if !found[target] {
			t.Errorf("%s is in the list of targets, and not there", target)
		}
	}
	for _, pkg := range slices.Sorted(maps.Keys(parsers)) {
		own := slices.ContainsFunc(slices.Collect(maps.Keys(found)), func(target string) bool { return strings.HasPrefix(target, pkg+" ") })
		if by := elsewhere[pkg]; !own && by == "" {
			t.Errorf("%s has %s and no fuzz target", pkg, parsers[pkg])
		}
	}
}
