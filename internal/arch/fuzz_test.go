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

// targets maps every fuzz target to the input that it covers.
var targets = map[string]string{
	// From the network: unauthenticated callers.
	"internal/core/controlplane/webhook FuzzBody":                       "reviews of pods",
	"internal/core/controlplane/conns FuzzGate":                         "turns of addresses at the processors and the memory for requests",
	"internal/core/controlplane/ca FuzzCSR":                             "requests for certificates",
	"internal/core/controlplane/ca FuzzVerify":                          "tokens",
	"internal/core/controlplane/ca FuzzParseIdentity":                   "identities in certificates",
	"internal/core/controlplane/ca FuzzIdentityCheckAgreesWithGoSPIFFE": "the same, against SPIFFE's library",
	"internal/base/wire FuzzCertificates":                               "messages of the certificate service",
	"internal/base/wire FuzzPEM":                                        "certificates and keys",
	"internal/base/wire FuzzFields":                                     "protobuf",
	"internal/base/wire FuzzAway":                                       "what agents respond with without a control plane",
	"internal/core/agent/relay FuzzFrames":                              "HTTP/2 between Envoy and the control plane",
	"internal/core/agent/relay FuzzHold":                                "what an Envoy that leaves gets of the control plane's bytes",
	"internal/core/agent/relay FuzzMessages":                            "discovery requests and responses",
	"internal/core/agent/relay FuzzOpening":                             "Envoy's first request",
	"internal/base/wire FuzzNames":                                      "messages of the name service",
	"internal/base/wire FuzzUnframe":                                    "gRPC's frames",
	"internal/base/wire FuzzReadMessage":                                "gRPC's frames, in a stream",
	"internal/base/wire FuzzVerdict":                                    "gRPC's status",
	"internal/base/wire FuzzHealthStatus":                               "answers of gRPC's health service",
	"internal/core/xds FuzzDelta":                                       "requests of proxies, delta",
	"internal/core/xds FuzzStateOfTheWorld":                             "requests of proxies, state of the world",
	"internal/core/xds FuzzPrewarmCache":                                "what workloads used",
	"internal/core/mesh/objects FuzzAuthorizationPolicy":                "policies of clients that are let in",
	"internal/core/xds/rbac FuzzMatch":                                  "paths and hosts in policies, as expressions",
	"internal/core/mesh/foreign FuzzRead":                               "objects of kinds that are ignored",
	"internal/core/xds FuzzParseNodeID":                                 "identifiers of proxies",
	"internal/core/xds/resource FuzzNames":                              "names of resources",
	"internal/core/xds/names FuzzParse":                                 "the same, as they are parsed",
	"internal/core/agent/status FuzzEndpoints":                          "requests to a pod's status ports",
	"internal/core/agent/status FuzzRequestNames":                       "statistics of Envoy, as they are shown",
	"internal/base/telemetry FuzzFormat":                                "formats of access logs",
	"internal/core/agent/status FuzzGateways":                           "the kernel's routes, for the node's address",
	"internal/core/agent/dns FuzzQuestions":                             "DNS queries of the pod's apps",
	"internal/core/agent/dns FuzzAnswers":                               "DNS answers of upstream servers",
	"internal/core/pod/lookup FuzzDocument":                             "manifests and indexes of registries",
	"internal/core/pod/lookup FuzzConfiguration":                        "configurations of images of registries",
	"cmd/outrider FuzzProxyStatus":                                      "answers of a control plane",
	"internal/base/mask FuzzMask":                                       "texts and objects with secrets",
	"cmd/outrider-agent FuzzGroups":                                     "groups of a user, in the root stage's flags",
	"internal/core/agent/identity FuzzAnswer":                           "answers of the certificate service",
	"internal/core/agent/identity FuzzDiscoveryRequest":                 "requests of Envoy for secrets",
	// From users: files and flags.
	"internal/core/controlplane/files FuzzManifest":     "a folder of manifests, and objects of internal/core/mesh/objects",
	"internal/core/pod/lookup FuzzCredentials":          "Docker's config.json",
	"internal/doctor/evidence FuzzInstead":              "answers of kubectl in place of a log",
	"internal/doctor/evidence/timestamp FuzzFind":       "times in lines of logs",
	"internal/doctor/evidence/described FuzzRead":       "what kubectl prints for people: descriptions and tables",
	"internal/doctor/evidence/pasted FuzzRead":          "texts in which people put what they copied",
	"internal/doctor/evidence/pasted FuzzNames":         "names of logs, and headings above them",
	"internal/doctor/evidence/attribution FuzzOf":       "programs by the form of their lines, and the times of logs",
	"internal/doctor/evidence/gather FuzzObjects":       "pods, events, owners and journals",
	"internal/doctor/evidence/gather FuzzArchive":       "archives, and the files in them",
	"internal/doctor/evidence/gather FuzzLog":           "logs and their sections",
	"internal/doctor/diagnose/page FuzzHTML":            "what logs and pods say, in a page",
	"internal/doctor/diagnose/calls FuzzDestination":    "what a line of a log says was called",
	"internal/doctor/diagnose/witness FuzzText":         "texts beside a pod",
	"internal/doctor/evidence/why FuzzFind":             "what a log says about the end of its program",
	"internal/doctor/diagnose/facts FuzzAttempt":        "lines of a proxy's access log",
	"internal/doctor/diagnose FuzzMessages":             "messages of events, and lines about ports",
	"internal/doctor/diagnose/remedies FuzzReleaseOf":   "versions in the names of images",
	"internal/doctor/diagnose/capturescope FuzzCapture": "settings of capture in pods of any mesh",
	"internal/doctor/lint FuzzLint":                     "manifests, linted and fixed",
	"internal/base/manifest FuzzSmallChange":            "manifests, edited",
	"internal/base/manifest/limits FuzzParse":           "YAML that repeats itself",
	"internal/base/manifest FuzzSplit":                  "documents of a file",
	"internal/core/pod/podrun FuzzRead":                 "pods and workloads",
	"internal/core/pod/podfile FuzzRewrite":             "manifests, injected",
	"internal/core/pod/request FuzzEdges":               "annotations of dependencies",
	"internal/core/pod/shell FuzzStatements":            "shell scripts in commands",
	"internal/core/pod/shell FuzzCalls":                 "programs that a script runs",
	"internal/core/pod/inject FuzzPod":                  "pods, injected",
	"internal/core/pod/inject FuzzAnnotations":          "annotations of injection",
	"internal/core/pod/inject FuzzValues":               "values of Istio's charts, and --set",
	"internal/core/pod/inject FuzzMeshConfig":           "mesh configurations",
	"internal/core/agent/config FuzzRead":               "the agent's configuration",
	"internal/doctor/simulate FuzzBehaviour":            "behaviours of simulate, also of internal/doctor/scenario",
	"internal/doctor/scenario FuzzReplay":               "recordings of verify that simulate replays",
	"internal/core/pod/kubelet FuzzStep":                "events of the model of a kubelet",
	"internal/lab/localpod FuzzReaders":                 "ConfigMaps and $(NAME)",
	"internal/base/cli/visible FuzzPlain":               "text for a terminal",
	"startup FuzzDistance":                              "misspelt words",
	"startup FuzzParse":                                 "plans",
	"internal/base/contract FuzzNodeWork":               "what a node does for a pod, as an annotation",
	"internal/core/node/captures FuzzParse":             "flags of a capture in a pod's annotation",
	"internal/core/node/socket FuzzQuestion":            "questions to a node's daemon",
	"internal/core/node/cni FuzzConf":                   "what a runtime hands to the CNI plugin",
	"internal/core/node/kubenode FuzzTaints":            "taints of a Node",
	"internal/core/node/validator FuzzState":            "a runtime's configuration",
	"internal/core/node/cniconf FuzzEdit":               "network configurations of a node",
	"internal/base/contract FuzzGate":                   "the gate's command line",
	"internal/core/agent/gate FuzzParseProbe":           "the gate's probes",
	"internal/core/agent/gate FuzzParseAfter":           "the gate's edges",
	"internal/core/agent/envoy FuzzBootstrap":           "extra configuration of Envoy",
	"internal/core/agent/status FuzzParseProbes":        "probes of the app",
	"internal/core/agent/status FuzzParseTargets":       "the app's ports for metrics",
	"internal/core/capture FuzzFlags":                   "flags of capture",
	"internal/core/capture FuzzPorts":                   "lists of ports",
	"internal/core/capture/trace FuzzQuery":             "connections of rules --explain",
	// From the kernel, and from files that another process of Outrider wrote.
	"internal/core/capture/nftables FuzzAnswer":         "netlink's answers",
	"internal/core/node/watch FuzzMessages":             "netlink's events",
	"internal/core/capture/nftables FuzzDecodeRule":     "rules of nftables",
	"internal/core/capture/nftables FuzzDecodeSet":      "sets of nftables",
	"internal/core/capture/iptables FuzzDecodeEntries":  "legacy tables",
	"internal/core/capture/ipset FuzzDecodeSet":         "sets of ipset",
	"internal/core/capture/iptables FuzzParse":          "rules of iptables-save",
	"internal/core/capture/setup FuzzParseEntry":        "routing rules",
	"internal/core/capture/setup FuzzHolder":            "the list of locks",
	"internal/core/agent/sockets FuzzAnswer":            "sock_diag's answers",
	"internal/core/agent/sockets FuzzReadTable":         "/proc/net/tcp",
	"internal/core/agent/supervise FuzzParseStartTicks": "/proc/PID/stat",
	"internal/core/agent/readiness FuzzRead":            "Envoy's statistics",
	"internal/core/agent/envoy FuzzParseLine":           "Envoy's log",
	"internal/core/agent/dns FuzzConf":                  "resolv.conf",
	"internal/core/agent/state FuzzDecode":              "states of gates",
	"internal/core/agent/identity FuzzStored":           "certificates that were kept",
	"internal/core/agent/proxy FuzzStageRecord":         "the record of the stage as root",
	"internal/core/controlplane/ca FuzzUsedTokens":      "used tokens",
}

// elsewhere lists packages with parsers but without a fuzz target, and why: another package's target covers them,
// or they parse no foreign input.
var elsewhere = map[string]string{
	"internal/core/controlplane":          "a flag of three words",
	"internal/core/controlplane/debugapi": "cmd/outrider FuzzProxyStatus",
	"internal/core/mesh/objects":          "internal/core/controlplane/files FuzzManifest",
	"internal/core/pod/inject/settings":   "internal/core/pod/inject FuzzValues",
	"internal/doctor/scenario":            "internal/doctor/simulate FuzzBehaviour",
	"build/house":                         "files of this project alone",
	"build/images":                        "flags, by package flag",
	"internal/base/cli":                   "numbers of flags, by package strconv",
}

// parses matches the names of functions that parse foreign input.
var parses = regexp.MustCompile(`^([Pp]arse|[Dd]ecode|Unmarshal)([A-Z]|$)`)

// Each package with a parser has a fuzz target or is in elsewhere, and each fuzz target is in targets.
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
			if rel != "." && !slices.Contains([]string{"build", "cmd", "internal", "startup"}, top) || d.Name() == "testdata" {
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
