package arch

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const module = "outrider.dev"

// layers has a line for each folder with packages below it. The line lists these packages and subfolders, the
// lowest layer first. A name before a "<" may be imported by the names after it; names between two "<" do not
// import each other. "." is the folder's own package. A folder without a line has one package.
//
// Whether one package may import another is decided by the line of the deepest folder that contains both. So one
// line decides about imports between the main folders, another about those between the subfolders of one of them,
// and so on.
const layers = `
/: startup ready charts < internal < build cmd < test < bench

internal: arch base < core < doctor ops < lab

internal/base: . atomicfile contract latest wire telemetry mask cli manifest < finding
internal/base/cli: visible < .
internal/base/manifest: decodeerror limits < .

internal/core: . capture mesh < agent node xds < pod < controlplane
internal/core/capture: netlink . < commandline ipset nftables trace < iptables < setup
internal/core/agent: config dns envoy identity relay sockets state supervise < gate readiness standby < status < proxy
internal/core/node: cniconf hostfile kubenode nri socket states validator watch < captures cni < daemon
internal/core/mesh: persistent < . < build foreign < objects
internal/core/xds: . message names networks < mtls observe rbac retry < features routes < clusters listeners < resource
internal/core/pod/inject: containers injectors settings verdict < imagecmd merge < changes order < .
internal/core/pod: knownproxy kubelet patch podfile podstart request shell startcost validation < gates mechanism podspec < inject podrun < plan < lookup offline
internal/core/controlplane: ca conns debugapi < files kube webhook < .

internal/doctor: . < chart evidence lint < simulate verify < diagnose scenario < diagnoser
internal/doctor/evidence: archive described timestamp < pasted why < . < attribution decoded meant partial < cluster < gather
internal/doctor/lint: kinds text < . < source
internal/doctor/diagnose: kinds states < calls capturescope facts remedies result < beside chain history node nopod phases replay unnamed unready witness < . < groups page < follow

internal/ops: . installation kubeclient < replicas < check install podupgrade rotate < bugreport podrestart report

internal/lab: . localpod < outside < demo
internal/lab/localpod: containerinit probe < .

build: image parts tiers < commands < house images release
build/commands: . < cmd
cmd: internal < outrider outrider-agent outrider-node outrider-operate outriderd
cmd/internal: handoff target view
cmd/outrider: internal < .
cmd/outrider/internal: codes operate
`

// highest is the maximum length of a chain of imports within this module, below a program.
const highest = 8

// free lists folders whose packages may import each other in any order, because they are not shipped.
var free = []string{"test/", "bench/"}

// libraries maps each external module to the packages that may import it: one package, or all below
// a folder ("internal/core/..."). The longest path that matches an import counts.
var libraries = map[string][]string{
	"github.com/spf13/cobra": {"cmd/...", "internal/base/cli"},
	"github.com/spf13/pflag": {"cmd/...", "internal/base/cli", "internal/core/capture/commandline", "internal/core/node/captures", "internal/core/pod/lookup", "internal/ops/..."},
	"golang.org/x/sys":       {"cmd/outrider-agent", "internal/base/cli", "internal/base/wire", "internal/core/...", "internal/lab/..."},

	"go.yaml.in/yaml/v3":                   {"internal/base/manifest/...", "internal/core/agent/config", "internal/core/controlplane/files", "internal/core/pod/podfile", "internal/doctor/lint", "internal/doctor/lint/text"},
	"sigs.k8s.io/yaml":                     {"cmd/...", "internal/base/manifest", "internal/core/pod/...", "internal/doctor/...", "internal/ops/..."},
	"sigs.k8s.io/json":                     {"internal/core/controlplane/webhook", "internal/core/mesh/objects", "internal/core/pod/...", "internal/doctor/evidence/gather"},
	"github.com/rogpeppe/go-internal/diff": {"internal/base/manifest", "internal/core/pod/offline", "internal/doctor/lint"},

	// Kubernetes types. Only the control plane's cluster source and the user's command have Kubernetes clients.
	"k8s.io/api":                  {"cmd/outrider/...", "internal/core/controlplane/...", "internal/core/mesh/objects", "internal/core/pod/...", "internal/doctor/...", "internal/lab/...", "internal/ops/..."},
	"k8s.io/apimachinery":         {"cmd/internal/target", "internal/core/controlplane/...", "internal/core/mesh/objects", "internal/core/pod/...", "internal/doctor/...", "internal/lab/...", "internal/ops/..."},
	"k8s.io/utils":                {"internal/core/controlplane/kube", "internal/core/mesh/objects"},
	"k8s.io/client-go":            {"internal/core/controlplane/kube", "internal/doctor/diagnose/follow", "internal/doctor/diagnoser", "internal/doctor/evidence/cluster", "internal/ops/..."},
	"k8s.io/klog/v2":              {"internal/core/controlplane/kube", "internal/ops/kubeclient"},
	"k8s.io/cli-runtime":          {"internal/ops/kubeclient"},
	"sigs.k8s.io/gateway-api":     {"internal/core/controlplane/kube", "internal/core/mesh/objects"},
	"helm.sh/helm/v3":             {"internal/ops/install"},
	"helm.sh/helm/v3/pkg/strvals": {"internal/core/pod/inject/settings", "internal/ops/install"},

	"google.golang.org/grpc":                       {"internal/core/controlplane", "internal/core/controlplane/ca", "internal/core/controlplane/conns", "internal/core/xds", "internal/lab/localpod/probe", "ready/grpcready"},
	"google.golang.org/protobuf":                   {"internal/core/controlplane/ca", "internal/core/xds/..."},
	"google.golang.org/genproto/googleapis/rpc":    {"internal/core/xds"},
	"github.com/envoyproxy/go-control-plane/envoy": {"internal/core/controlplane", "internal/core/xds/..."},
	"github.com/prometheus/client_golang":          {"internal/core/controlplane"},
	"golang.org/x/time/rate":                       {"internal/core/controlplane/conns", "internal/core/xds", "internal/doctor/diagnoser"},
	"golang.org/x/net/http2":                       {"internal/core/controlplane/conns"},
	"golang.org/x/net/dns/dnsmessage":              {"internal/core/agent/dns"},
	"github.com/oklog/run":                         {"internal/core/controlplane", "internal/core/node/daemon"},
	"github.com/fsnotify/fsnotify":                 {"internal/core/controlplane/files", "internal/core/node/...", "internal/lab/localpod"},
	"github.com/KimMachineGun/automemlimit":        {"cmd/outriderd"},
	"github.com/spiffe/go-spiffe/v2":               {"internal/core/controlplane/ca"},
	"github.com/go-jose/go-jose/v4":                {"internal/core/controlplane/ca"},

	"github.com/vishvananda/netlink": {"internal/lab/localpod"},
	"github.com/moby/sys/mountinfo":  {"internal/lab/localpod"},

	"github.com/containerd/nri":          {"internal/core/node/nri"},
	"github.com/containernetworking/cni": {"internal/core/node/cni"},
	"github.com/BurntSushi/toml":         {"internal/core/node/validator"},

	"mvdan.cc/sh/v3":                         {"internal/core/pod/shell"},
	"github.com/distribution/reference":      {"internal/core/pod/..."},
	"github.com/google/go-containerregistry": {"build/image", "internal/core/pod/lookup"},
	"github.com/opencontainers":              {"internal/core/pod/lookup"},
	"github.com/CycloneDX/cyclonedx-go":      {"build/parts"},
	"golang.org/x/tools":                     {"build/house"},
}

// A layering maps a folder to the rank of each name in it.
type layering map[string]map[string]int

func parseLayers(text string) layering {
	out := layering{}
	for line := range strings.Lines(text) {
		folder, names, ok := strings.Cut(line, ":")
		if !ok {
			continue
		}
		ranks := map[string]int{}
		for rank, of := range strings.Split(names, "<") {
			for _, name := range strings.Fields(of) {
				ranks[name] = rank
			}
		}
		out[strings.TrimPrefix(folder, "/")] = ranks
	}
	return out
}

// part returns the deepest folder that contains both packages, and the next path element of each of them.
func part(a, b string) (folder, first, second string) {
	as, bs := strings.Split(a, "/"), strings.Split(b, "/")
	n := 0
	for n < len(as) && n < len(bs) && as[n] == bs[n] {
		n++
	}
	name := func(parts []string) string {
		if n == len(parts) {
			return "."
		}
		return parts[n]
	}
	return strings.Join(as[:n], "/"), name(as), name(bs)
}

// forbids returns why the first package may not import the second one, or "" if it may.
func (l layering) forbids(importer, imported string) string {
	folder, upper, lower := part(importer, imported)
	ranks := l[folder]
	for _, name := range []string{upper, lower} {
		if _, ok := ranks[name]; !ok {
			return "the layers of " + folder + "/ do not have " + name
		}
	}
	if ranks[lower] >= ranks[upper] {
		return lower + " is not below " + upper + " in the layers of " + folder + "/"
	}
	return ""
}

func isFree(pkg string) bool {
	return slices.ContainsFunc(free, func(f string) bool { return strings.HasPrefix(pkg, f) })
}

func TestLayers(t *testing.T) {
	all, order := sources(t), parseLayers(layers)
	for _, pkg := range slices.Sorted(maps.Keys(all)) {
		for _, imported := range slices.Sorted(maps.Keys(all[pkg].imports)) {
			own, ok := strings.CutPrefix(imported, module+"/")
			if !ok || isFree(pkg) && isFree(own) {
				continue
			}
			if why := order.forbids(pkg, own); why != "" {
				t.Errorf("%s must not import %s: %s", pkg, own, why)
			}
		}
	}
}

// Every package is in layers, and every name in layers is a package or folder.
func TestLayersNameEveryPackage(t *testing.T) {
	all, order := sources(t), parseLayers(layers)
	seen := map[string]bool{}
	for pkg := range all {
		if isFree(pkg) {
			pkg, _, _ = strings.Cut(pkg, "/")
		}
		folder, rest := "", pkg
		for rest != "" {
			name, after, _ := strings.Cut(rest, "/")
			if _, ok := order[folder][name]; !ok && order[folder] != nil {
				t.Errorf("%s has no place in the layers of %s/", pkg, folder)
			} else if !ok {
				t.Errorf("%s: no line of the layers has the folder %s/", pkg, folder)
			}
			seen[folder+":"+name] = true
			folder, rest = strings.TrimPrefix(folder+"/"+name, "/"), after
		}
		if order[folder] != nil {
			seen[folder+":."] = true
		}
	}
	for folder, ranks := range order {
		for name := range ranks {
			_, module := os.Stat(filepath.Join("../..", folder, name, "go.mod"))
			if !seen[folder+":"+name] && module != nil {
				t.Errorf("the layers of %s/ have %s, which is not there", folder, name)
			}
		}
	}
}

// No chain of imports within this module is longer than highest.
func TestHeight(t *testing.T) {
	all := sources(t)
	heights := map[string][]string{}
	var chain func(pkg string) []string
	chain = func(pkg string) []string {
		if c, ok := heights[pkg]; ok {
			return c
		}
		var longest []string
		for imported := range all[pkg].imports {
			if own, ok := strings.CutPrefix(imported, module+"/"); ok {
				if c := chain(own); len(c) > len(longest) {
					longest = c
				}
			}
		}
		heights[pkg] = append([]string{pkg}, longest...)
		return heights[pkg]
	}
	top := 0
	for pkg := range all {
		if isFree(pkg) || strings.HasPrefix(pkg, "cmd/") && strings.Count(pkg, "/") == 1 {
			continue
		}
		c := chain(pkg)
		top = max(top, len(c))
		if len(c) > highest {
			t.Errorf("%d packages above each other, and %d are the most: %s", len(c), highest, strings.Join(c, " > "))
		}
	}
	if top < highest {
		t.Errorf("the longest chain of imports has %d packages: lower the limit, which is %d", top, highest)
	}
}

// An external module is imported only by the packages that libraries names.
func TestLibraries(t *testing.T) {
	all := sources(t)
	used := map[string]bool{}
	for _, pkg := range slices.Sorted(maps.Keys(all)) {
		if isFree(pkg) {
			continue
		}
		for _, imported := range slices.Sorted(maps.Keys(all[pkg].imports)) {
			if standard(imported) || strings.HasPrefix(imported, module+"/") {
				continue
			}
			library := ""
			for prefix := range libraries {
				if (imported == prefix || strings.HasPrefix(imported, prefix+"/")) && len(prefix) > len(library) {
					library = prefix
				}
			}
			used[library] = true
			if !slices.ContainsFunc(libraries[library], func(place string) bool {
				below, all := strings.CutSuffix(place, "/...")
				return pkg == below || all && strings.HasPrefix(pkg, below+"/")
			}) {
				t.Errorf("%s must not import %s", pkg, imported)
			}
		}
	}
	for library := range libraries {
		if !used[library] {
			t.Errorf("the list of libraries has %s, which nothing imports", library)
		}
	}
}

// [layering.forbids] refuses forbidden imports. Without this test, the tests above might pass because it refuses
// nothing.
func TestForbids(t *testing.T) {
	order := parseLayers("/: a b < c\na: x < . < y\n")
	for _, test := range []struct {
		importer, imported string
		allowed            bool
	}{
		{"c", "a/y", true},
		{"a/y", "a", true},
		{"a/y", "a/x", true},
		{"a", "a/x", true},
		{"a", "a/y", false},
		{"a/x", "a", false},
		{"a", "b", false},
		{"b", "c", false},
		{"c", "d", false},
	} {
		if why := order.forbids(test.importer, test.imported); (why == "") != test.allowed {
			t.Errorf("%s imports %s: %q", test.importer, test.imported, why)
		}
	}
}
