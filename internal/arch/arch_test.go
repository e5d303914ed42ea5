package arch

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "outrider.dev"

// The field's libraries, by what they are for.
const (
	cobra     = "github.com/spf13/cobra"
	pflag     = "github.com/spf13/pflag"
	nftables  = "github.com/google/nftables"
	netlink   = "github.com/mdlayher/netlink"
	rtnetlink = "github.com/vishvananda/netlink"
	sys       = "golang.org/x/sys"
	yaml      = "go.yaml.in/yaml/v3"
	grpc      = "google.golang.org/grpc"
	protobuf  = "google.golang.org/protobuf"
	xds       = "github.com/envoyproxy/go-control-plane/envoy"
	prom      = "github.com/prometheus/client_golang/prometheus"
)

// arrows are what a package may import besides the standard library: packages of
// ours by their path in the module, others by a prefix. A package that is not here
// has no place yet: give it one, and think about its arrows.
var arrows = map[string][]string{
	"startup":                {},
	"charts":                 {},
	"internal/contract":      {},
	"internal/telemetry":     {},
	"internal/model/kubelet": {"startup"},

	"internal/pod/podspec": {"startup", "internal/model/kubelet", "internal/manifest", "mvdan.cc/sh/v3/syntax", "k8s.io/api", "k8s.io/apimachinery", "sigs.k8s.io/json", yaml},

	"internal/model/simulate": {"internal/model/kubelet", "internal/model/chart", "internal/model/gates", "startup"},
	"internal/model/chart":    {"internal/cli/visible", "startup"},
	"internal/model/gates":    {"internal/model/kubelet", "startup"},
	"internal/run/outside":    {"internal/diagnose", "internal/evidence", "internal/model/kubelet", "internal/run/localpod", "k8s.io/api", "k8s.io/apimachinery"},
	"internal/run/demo":       {"internal/manifest", "internal/diagnose", "internal/lint/finding", "internal/run/outside", "internal/model/kubelet", "internal/run/localpod", "internal/pod/podspec", "internal/model/chart", "startup", "k8s.io/api", "k8s.io/apimachinery"},
	"internal/run/localpod": {"internal/manifest", "internal/agent/state", "github.com/fsnotify/fsnotify", "internal/model/kubelet", "internal/pod/podspec", "startup", "k8s.io/api", "k8s.io/apimachinery",
		"github.com/fsnotify/fsnotify", rtnetlink, sys},
	"internal/model/verify": {"internal/model/kubelet", "internal/model/gates", "startup"},

	"internal/agent/config":           {"internal/manifest/limits", "startup", "internal/telemetry", yaml},
	"internal/xds":                    {"golang.org/x/time/rate", "internal/contract", "internal/wire", grpc, protobuf, xds, "google.golang.org/genproto/googleapis/rpc"},
	"internal/xds/resource":           {"internal/contract", "internal/telemetry", "internal/wire", "internal/mesh", "internal/xds", xds, protobuf},
	"internal/wire":                   {sys},
	"internal/agent/dns":              {"internal/wire", "golang.org/x/net/dns/dnsmessage"},
	"internal/lint/finding":           {"internal/cli/visible"},
	"internal/lint":                   {"internal/lint/finding", "internal/manifest", "internal/pod/inject", "internal/mesh", "internal/mesh/objects", "internal/pod/podspec", "startup", "github.com/rogpeppe/go-internal/diff", "k8s.io/api", "k8s.io/apimachinery", yaml},
	"internal/pod/inject":             {"internal/manifest", "startup", "internal/capture", "internal/contract", "internal/pod/podspec", "internal/agent/config", "internal/telemetry", "github.com/distribution/reference", "helm.sh/helm/v3/pkg/strvals", "k8s.io/api", "k8s.io/apimachinery", "sigs.k8s.io/json", "sigs.k8s.io/yaml"},
	"internal/manifest/limits":        {yaml},
	"internal/manifest":               {"internal/manifest/limits", "github.com/rogpeppe/go-internal/diff", "sigs.k8s.io/yaml", yaml},
	"internal/controlplane/webhook":   {"internal/contract", "internal/controlplane/conns", "internal/pod/inject", "internal/pod/podspec", "k8s.io/api", "k8s.io/apimachinery", "sigs.k8s.io/json"},
	"internal/controlplane/kube":      {"internal/contract", "internal/controlplane/ca", "internal/mesh", "internal/mesh/objects", "k8s.io/api", "k8s.io/apimachinery", "k8s.io/client-go", "k8s.io/klog/v2", "k8s.io/utils/clock", "k8s.io/utils/ptr", "sigs.k8s.io/gateway-api"},
	"internal/controlplane/diagnoser": {"internal/contract", "internal/diagnose", "internal/evidence", "golang.org/x/time/rate", "k8s.io/api", "k8s.io/apimachinery", "k8s.io/client-go"},
	"internal/controlplane/conns":     {"internal/wire", grpc, "golang.org/x/net/http2", "golang.org/x/sys/unix", "golang.org/x/time/rate"},
	"internal/controlplane": {"internal/controlplane/conns", "internal/controlplane/diagnoser", "internal/image/lookup", "internal/controlplane/kube", "internal/controlplane/webhook", "internal/pod/inject", "internal/telemetry", "internal/wire", "internal/controlplane/files", "internal/controlplane/ca", "internal/mesh", "internal/xds", "internal/xds/resource",
		grpc, "github.com/oklog/run", prom, xds},
	"internal/mesh":               {"internal/contract", "internal/telemetry"},
	"internal/mesh/objects":       {"internal/contract", "internal/mesh", "internal/manifest", "startup", "k8s.io/api", "k8s.io/apimachinery", "k8s.io/utils/ptr", "sigs.k8s.io/json", "sigs.k8s.io/gateway-api"},
	"internal/controlplane/files": {"internal/manifest", "internal/mesh", "internal/mesh/objects", "github.com/fsnotify/fsnotify", yaml},

	"internal/controlplane/ca": {"internal/contract", "internal/wire", sys, grpc, protobuf, "github.com/spiffe/go-spiffe/v2/spiffeid", "github.com/go-jose/go-jose/v4"},
	"internal/agent/identity":  {"internal/contract", "internal/wire"},

	"internal/agent/readiness": {"internal/agent/envoy", "internal/agent/sockets", sys},
	"internal/agent/sockets":   {netlink, sys},
	"internal/agent/status":    {"internal/agent/readiness", "internal/telemetry", "internal/wire", sys},
	"internal/agent/proxy": {"internal/capture", "internal/agent/config", "internal/agent/dns", "internal/wire", "internal/agent/envoy", "internal/agent/identity", "internal/agent/relay", sys,
		"internal/agent/readiness", "internal/agent/sockets", "internal/agent/standby", "internal/agent/state", "internal/agent/status", "internal/agent/supervise", "internal/telemetry", "startup"},
	"internal/agent/state":     {"startup", sys},
	"internal/agent/gate":      {"startup", "internal/wire", "internal/cli/visible", "internal/agent/state", "internal/agent/supervise", sys},
	"internal/agent/envoy":     {sys},
	"internal/agent/relay":     {"internal/wire", "internal/contract", sys},
	"internal/agent/standby":   {"internal/agent/sockets", sys},
	"internal/agent/supervise": {sys},

	"internal/capture":          {"internal/contract"},
	"internal/capture/netlink":  {sys},
	"internal/capture/nftables": {"internal/capture", "internal/capture/netlink", nftables, sys},
	"internal/capture/iptables": {"internal/capture", "internal/capture/nftables", netlink, sys},
	"internal/capture/setup":    {"internal/capture", "internal/capture/iptables", "internal/capture/netlink", "internal/capture/nftables", sys},

	// What runs on a node: neither Kubernetes' libraries nor gRPC's.
	"internal/node/nri":       {"internal/contract", "github.com/containerd/nri/pkg"},
	"internal/node/states":    {sys},
	"internal/node/hostfile":  {},
	"internal/node/captures":  {"internal/capture", pflag, sys},
	"internal/node/socket":    {sys},
	"internal/node/cni":       {"internal/contract", "internal/node/socket", "github.com/containernetworking/cni/pkg"},
	"internal/node/cniconf":   {"github.com/fsnotify/fsnotify", sys},
	"internal/node/kubenode":  {"internal/contract"},
	"internal/node/validator": {"internal/contract", "github.com/BurntSushi/toml"},
	"internal/node/daemon":    {"internal/contract", "internal/node/captures", "internal/node/cni", "internal/node/cniconf", "internal/node/hostfile", "internal/node/kubenode", "internal/node/nri", "internal/node/socket", "internal/node/states", "internal/node/validator", "github.com/fsnotify/fsnotify", "github.com/oklog/run", sys},
	"cmd/outrider-node":       {"internal/cli", "internal/contract", "internal/node/cni", "internal/node/daemon", "internal/node/kubenode", "internal/node/nri", cobra},

	"internal/image/lookup": {"internal/pod/inject", "github.com/distribution/reference", "github.com/google/go-containerregistry/pkg", "github.com/opencontainers/go-digest", "github.com/opencontainers/image-spec/specs-go/v1", pflag},

	"internal/image":       {"github.com/google/go-containerregistry/pkg"},
	"build/images":         {"build/commands", "build/parts", "internal/contract", "internal/image"},
	"build/parts":          {"github.com/CycloneDX/cyclonedx-go"},
	"build/release":        {"build/commands", "build/parts"},
	"build/commands":       {"build/gobuild"},
	"build/gobuild":        {},
	"build/tiers":          {},
	"build/house":          {"golang.org/x/tools/go/packages"},
	"build/commands/cmd":   {"build/commands"},
	"internal/arch":        {},
	"internal/cli":         {"internal/capture", "internal/cli/visible", cobra, pflag, sys},
	"internal/cli/visible": {},

	"internal/pod/plan":              {"internal/model/gates", "internal/model/kubelet", "internal/pod/podspec", "startup"},
	"internal/pod/offline":           {"internal/manifest", "internal/pod/inject", "internal/pod/podspec", "github.com/rogpeppe/go-internal/diff", "k8s.io/api", "sigs.k8s.io/yaml"},
	"internal/model/scenario":        {"internal/model/chart", "internal/model/gates", "internal/model/kubelet", "internal/model/simulate", "internal/model/verify", "internal/pod/plan", "internal/pod/podspec", "startup"},
	"internal/lint/source":           {"internal/cli", "internal/lint", "internal/mesh", "internal/pod/podspec", "k8s.io/apimachinery", "sigs.k8s.io/yaml"},
	"internal/controlplane/debugapi": {"internal/contract"},
	"internal/view":                  {"internal/manifest", "internal/diagnose", "internal/codes", "internal/controlplane/ca", "internal/report", "internal/check", "internal/podupgrade", "internal/cli", "internal/controlplane/debugapi", "internal/lint", "internal/lint/finding", "internal/model/chart", "internal/model/scenario", "internal/model/verify", "internal/pod/plan", "internal/pod/podspec", "internal/run/localpod", "internal/cli/visible", "sigs.k8s.io/yaml", "startup"},

	// The way of a person to a cluster: Helm's SDK is here alone.
	"internal/kubeclient": {"github.com/spf13/pflag", "k8s.io/api", "k8s.io/apimachinery", "k8s.io/cli-runtime/pkg/genericclioptions", "k8s.io/client-go", "k8s.io/klog/v2"},
	"internal/replicas":   {"internal/contract", "internal/controlplane/debugapi", "internal/kubeclient", "k8s.io/api", "k8s.io/apimachinery", "k8s.io/client-go"},
	"internal/check":      {"internal/lint/finding", "internal/replicas", "internal/contract", "internal/controlplane/debugapi", "internal/kubeclient", "internal/mesh", "internal/mesh/objects", "internal/pod/inject", "k8s.io/api", "k8s.io/apimachinery", "k8s.io/client-go"},
	"internal/report":     {"github.com/spf13/pflag", "internal/check", "internal/cli", "internal/contract", "internal/controlplane/debugapi", "internal/kubeclient", "internal/pod/inject", "internal/pod/offline", "internal/pod/plan", "internal/pod/podspec", "internal/capture", "internal/manifest", "internal/replicas", "startup", "k8s.io/api", "k8s.io/apimachinery", "k8s.io/client-go", "sigs.k8s.io/yaml"},
	"internal/podupgrade": {"internal/contract", "internal/mesh/objects", "internal/pod/inject", "k8s.io/api", "k8s.io/apimachinery", "k8s.io/client-go"},
	"internal/rotate":     {"internal/controlplane/ca", "internal/controlplane/kube", "k8s.io/api", "k8s.io/apimachinery", "k8s.io/client-go"},
	"internal/install":    {"internal/manifest", "charts", "internal/check", "internal/contract", "internal/kubeclient", "helm.sh/helm/v3/pkg", "k8s.io/api", "k8s.io/apimachinery", "k8s.io/client-go"},

	"cmd/outrider": {"internal/diagnose/follow", "internal/diagnose/page", "internal/bugreport", "internal/codes", "internal/diagnose", "internal/evidence", "sigs.k8s.io/yaml", pflag, "internal/manifest", "internal/podrestart", "internal/rotate", "internal/replicas", "internal/report", "k8s.io/apimachinery/pkg/labels", "internal/check", "internal/install", "internal/podupgrade", "internal/kubeclient", "internal/cli", "internal/contract", "internal/view", "internal/capture", "internal/capture/iptables", "internal/capture/nftables", "internal/capture/setup", "internal/controlplane/debugapi", "internal/image/lookup", "internal/lint", "internal/lint/finding", "internal/lint/source", "internal/model/kubelet", "internal/model/scenario", "internal/model/simulate", "internal/model/verify",
		"internal/pod/inject", "internal/pod/offline", "internal/pod/plan", "internal/pod/podspec", "internal/run/demo", "internal/run/localpod", "internal/run/outside", "startup", "k8s.io/api", cobra},
	"internal/podrestart":         {"internal/pod/inject", "internal/contract", "internal/controlplane/webhook", "internal/podupgrade", "k8s.io/api", "k8s.io/apimachinery", "k8s.io/client-go"},
	"internal/bugreport":          {"internal/mask", "internal/controlplane/debugapi", "internal/kubeclient", "internal/podupgrade", "internal/replicas", "k8s.io/api", "k8s.io/apimachinery", "sigs.k8s.io/yaml"},
	"internal/mask":               {},
	"internal/evidence":           {"internal/contract", "internal/cli/visible", "internal/evidence/timestamp", "internal/manifest", "internal/mask", "startup", "k8s.io/api", "k8s.io/apimachinery", "k8s.io/client-go", "sigs.k8s.io/json"},
	"internal/evidence/timestamp": {},
	"internal/codes":              {"internal/check", "internal/diagnose", "internal/lint", "internal/lint/finding"},
	"internal/diagnose":           {"internal/manifest", "internal/capture", "internal/contract", "internal/evidence", "internal/lint", "internal/lint/finding", "internal/model/simulate", "internal/pod/podspec", "startup", "k8s.io/api"},
	"internal/diagnose/follow":    {"internal/cli/visible", "internal/diagnose", "internal/diagnose/page", "internal/evidence", "k8s.io/api", "k8s.io/apimachinery", "k8s.io/client-go"},
	"internal/diagnose/page":      {"internal/lint/finding", "internal/cli/visible", "internal/diagnose", "internal/evidence", "internal/model/chart", "sigs.k8s.io/yaml"},
	"cmd/outrider-agent": {"startup", "internal/wire", "internal/agent/config", "internal/agent/gate", "internal/agent/proxy", "internal/agent/readiness", "internal/agent/state", "internal/agent/status", "internal/capture", "internal/capture/iptables", "internal/capture/nftables",
		"internal/capture/setup", "internal/cli", "ready", cobra, pflag, sys},
	"cmd/outriderd": {"internal/controlplane/diagnoser", "github.com/KimMachineGun/automemlimit/memlimit", "internal/image/lookup", "internal/controlplane/kube", "internal/controlplane/webhook", "sigs.k8s.io/yaml", "internal/cli", "internal/controlplane", "internal/controlplane/ca", "internal/mesh", cobra},

	"bench/internal/figures":   {"test/process"},
	"bench/internal/benchtest": {},
	"bench/internal/tb":        {},
	"bench/diagnose":           {"bench/internal/figures", "internal/diagnose/page"},
	"bench/awesome":            {"bench/internal/figures", "test/awesome", "test/process"},                            // the same processes as the suite's
	"bench/agent":              {"bench/internal/figures", "bench/internal/tb", "test/agent/harness", "test/process"}, // the same world as the tests'
	"bench/capture":            {"bench/internal/figures", "bench/internal/tb", "build/commands", "internal/contract", "test/ns", nftables, sys},
	"bench/xds":                {"bench/internal/figures", "build/commands", "internal/controlplane/ca", "test/fleet"}, // the same proxies as the suite's
	"bench/wait":               {"bench/internal/figures", "build/commands", "internal/agent/readiness", "internal/agent/state", "internal/agent/status", "ready", "test/process"},
	"bench/cluster":            {"test/e2e/world"}, // the same world as the suite's
}

// tests is where packages live that only tests use. They may import anything, and no
// other package may import them but a bench: no other list above has them.
const tests = "test/"

// heavy must not be in the binaries that run in every pod and on every node.
var heavy = []string{"k8s.io/", "google.golang.org/grpc", "github.com/envoyproxy/", "sigs.k8s.io/"}

// A source is a package as its files say.
type source struct {
	imports map[string]bool
	doc     bool
}

// sources parses every package of the module itself: asking the go command would
// leave the test cached, and green, when a file changes.
func sources(t *testing.T) map[string]source {
	t.Helper()
	root := filepath.Join("..", "..")
	out := map[string]source{}
	err := filepath.WalkDir(root, func(file string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := d.Name()
		if d.IsDir() {
			_, mod := os.Stat(filepath.Join(file, "go.mod"))
			if file != root && (mod == nil || strings.HasPrefix(name, ".") || name == "testdata") {
				return fs.SkipDir // another module, or none
			}
			return nil
		}
		if !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			return nil
		}
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ImportsOnly|parser.ParseComments)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, filepath.Dir(file))
		if err != nil {
			return err
		}
		add(out, filepath.ToSlash(rel), f)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func add(out map[string]source, pkg string, f *ast.File) {
	s, ok := out[pkg]
	if !ok {
		s.imports = map[string]bool{}
	}
	s.doc = s.doc || f.Doc != nil
	for _, i := range f.Imports {
		p, _ := strconv.Unquote(i.Path.Value)
		s.imports[p] = true
	}
	out[pkg] = s
}

func standard(imported string) bool {
	first, _, _ := strings.Cut(imported, "/")
	return !strings.Contains(first, ".")
}

func TestArrows(t *testing.T) {
	all := sources(t)
	for _, pkg := range slices.Sorted(maps.Keys(all)) {
		allowed, ok := arrows[pkg]
		if strings.HasPrefix(pkg, tests) {
			continue
		}
		if !ok {
			t.Errorf("package %s has no place in the list of arrows", pkg)
			continue
		}
		for _, imported := range slices.Sorted(maps.Keys(all[pkg].imports)) {
			if standard(imported) || imported == module+"/internal/contract" { // which has only names
				continue
			}
			own, isOwn := strings.CutPrefix(imported, module+"/")
			if !slices.ContainsFunc(allowed, func(a string) bool {
				return isOwn && own == a || !isOwn && (imported == a || strings.HasPrefix(imported, a+"/"))
			}) {
				t.Errorf("%s must not import %s", pkg, imported)
			}
		}
	}
	for pkg := range arrows {
		if _, ok := all[pkg]; !ok {
			t.Errorf("the list of arrows has package %s, which is not there", pkg)
		}
	}
}

func TestEveryPackageSaysWhatItPromises(t *testing.T) {
	for pkg, s := range sources(t) {
		if !s.doc {
			t.Errorf("package %s has no comment", pkg)
		}
	}
}

func TestWhatRunsEverywhereStaysSmall(t *testing.T) {
	for _, command := range []string{"outrider-agent", "outrider-node"} {
		staysSmall(t, command)
	}
}

func staysSmall(t *testing.T, command string) {
	all := sources(t)
	seen := map[string]bool{}
	var visit func(pkg string)
	visit = func(pkg string) {
		if seen[pkg] {
			return
		}
		seen[pkg] = true
		for imported := range all[pkg].imports {
			if own, ok := strings.CutPrefix(imported, module+"/"); ok {
				visit(own)
			}
			for _, h := range heavy {
				if strings.HasPrefix(imported, h) {
					t.Errorf("%s links %s, by %s", command, imported, pkg)
				}
			}
		}
	}
	visit(path.Join("cmd", command))
	if len(seen) < 5 {
		t.Errorf("only %d packages seen: the test looks in the wrong place", len(seen))
	}
}

// The page that says where things are names every room, and only files that are there.
func TestArchitecturePageIsTrue(t *testing.T) {
	root := filepath.Join("..", "..")
	text, err := os.ReadFile(filepath.Join(root, "docs", "architecture.md"))
	if err != nil {
		t.Fatal(err)
	}
	named := regexp.MustCompile("`((?:startup|internal|cmd|test|bench|build)/[a-z0-9_/.-]*)`").FindAllStringSubmatch(string(text), -1)
	if len(named) < 30 {
		t.Errorf("the page names %d files and folders: the test looks for the wrong thing", len(named))
	}
	for _, m := range named {
		if _, err := os.Stat(filepath.Join(root, m[1])); err != nil {
			t.Errorf("docs/architecture.md names %s: %v", m[1], err)
		}
	}
	rooms, err := os.ReadDir(filepath.Join(root, "internal"))
	if err != nil {
		t.Fatal(err)
	}
	for _, room := range rooms {
		if name := "internal/" + room.Name() + "/"; !strings.Contains(string(text), name) {
			t.Errorf("docs/architecture.md does not name %s", name)
		}
	}
}

// Whatever decodes YAML counts first what it unfolds to: package manifest does, for everything.
func TestOneDecoderOfYAML(t *testing.T) {
	n := 0
	for _, dir := range []string{"charts", "cmd", "internal", "startup"} {
		err := filepath.WalkDir(filepath.Join("../..", dir), func(file string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(file, ".go") || strings.HasSuffix(file, "_test.go") {
				return err
			}
			fset := token.NewFileSet()
			parsed, err := parser.ParseFile(fset, file, nil, 0)
			if err != nil {
				return err
			}
			names := map[string]bool{} // by which the file has a package for YAML
			for _, spec := range parsed.Imports {
				path := strings.Trim(spec.Path.Value, `"`)
				if parts := strings.Split(path, "/"); !slices.ContainsFunc(parts, func(p string) bool { return p == "yaml" || strings.HasPrefix(p, "yaml.v") }) {
					continue
				}
				name := "yaml"
				if spec.Name != nil {
					name = spec.Name.Name
				}
				names[name] = true
			}
			ast.Inspect(parsed, func(node ast.Node) bool {
				call, ok := node.(*ast.SelectorExpr)
				if !ok {
					return true
				}
				of, ok := call.X.(*ast.Ident)
				if !ok || !names[of.Name] || !decodesYAML.MatchString(call.Sel.Name) {
					return true
				}
				if strings.HasPrefix(file, "../../internal/manifest/") {
					n++
				} else {
					t.Errorf("%s: %s.%s; want package manifest, or its limits", fset.Position(call.Pos()), of.Name, call.Sel.Name)
				}
				return true
			})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if n == 0 {
		t.Error("package manifest decodes nothing: this test does not see it")
	}
}

var decodesYAML = regexp.MustCompile(`^(Unmarshal|YAMLToJSON|NewDecoder|NewYAMLOrJSONDecoder|NewYAMLToJSONDecoder|ToJSON)`)
