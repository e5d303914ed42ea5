package main

import (
	"context"
	"fmt"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
)

// stepsOf returns the steps of a tier.
func stepsOf(ctx context.Context, tier string) ([]step, error) {
	switch tier {
	case "quick":
		return quick(ctx)
	case "test":
		return test(ctx)
	case "check":
		return check(), nil
	case "e2e":
		return e2e(), nil
	case "nightly":
		return nightly(ctx)
	}
	return nil, fmt.Errorf("tier %q: want quick, test, check, e2e or nightly", tier)
}

// libraries are the modules for applications, which do not depend on the main module. All but the first three are
// adapters with more dependencies.
var libraries = []string{"ready", "resilience", "bootconfig",
	"ready/grpcready", "resilience/grpcresilience", "resilience/otelresilience",
	"bootconfig/consul", "bootconfig/koanf", "bootconfig/kubernetes", "bootconfig/nacos"}

// example is a module without tests; test/awesome tests it.
const example = "examples/awesome-app/go"

// plainLibraries is the number of libraries that are not adapters. racing is the number of libraries that are
// tested with the race detector. The dependencies of the adapters would take minutes to build with it, and in
// bootconfig the detector itself fails in two of four runs ("tsan_rtl.cpp:346: CHECK failed") for an unknown
// reason.
const plainLibraries, racing = 3, 2

// waiting lists the suites that mostly wait for the kernel, and for programs to start and to end. They run
// together with suites that need the processors.
var waiting = []string{"test/awesome", "test/mesh", "test/netns", "test/ready"}

// clustered lists the packages of the tier e2e.
var clustered = []string{"test/cluster", "test/e2e", "test/kube"}

// quick returns the steps of the unit tests. They run without "-count=1", so the go command runs only tests of
// packages that changed or depend on a change. Three groups of packages are omitted because they take minutes
// to compile: bench/, whose programs depend on everything; build/ if it has no uncommitted changes; and the
// adapters of a library without uncommitted changes. The tested packages are compiled first, because otherwise
// tests that build commands would compile them at the same time.
func quick(ctx context.Context) ([]step, error) {
	all, err := packages(ctx, "./...")
	if err != nil {
		return nil, err
	}
	without := []string{"bench"}
	if changes, err := changed(ctx, "build"); err != nil {
		return nil, err
	} else if !changes {
		without = append(without, "build")
	}
	units := slices.DeleteFunc(all.units, func(p string) bool { return within(p, without) })
	steps := []step{{name: "build", command: append(words("go build"), units...)}, goTest("units", units, "-p", "4")}
	for i, m := range libraries {
		library, _, _ := strings.Cut(m, "/")
		changes, err := changed(ctx, library)
		if err != nil {
			return nil, err
		}
		if i >= plainLibraries && !changes {
			continue
		}
		s := goTest(m, []string{"./..."})
		s.dir = m
		steps = append(steps, s)
	}
	return steps, nil
}

// changed reports whether a folder has uncommitted changes.
func changed(ctx context.Context, dir string) (bool, error) {
	out, err := output(ctx, "git", "status", "--porcelain", "--", dir)
	return out != "", err
}

// test returns the steps that run the tests of each package once. Packages whose code shares memory between
// goroutines are tested with the race detector, the others without it, which is five times as fast.
func test(ctx context.Context) ([]step, error) {
	all, err := packages(ctx, "./...")
	if err != nil {
		return nil, err
	}
	var raced, plain []string
	for _, p := range all.units {
		shared, err := concurrent(p)
		if err != nil {
			return nil, err
		}
		if shared {
			raced = append(raced, p)
		} else {
			plain = append(plain, p)
		}
	}
	suites := slices.DeleteFunc(all.suites, func(p string) bool {
		return within(p, waiting) || within(p, clustered) || p == module+"test/agent"
	})
	// test/agent comes first, because it takes longest, and also builds the commands with the race detector.
	race := goTest("race", append([]string{module + "test/agent"}, raced...), "-race", "-count=1", "-p", "3")
	race.env = []string{"CGO_ENABLED=1"}
	wait := goTest("waiting", full(waiting), "-count=1", "-p", "2")
	real := goTest("suites", suites, "-count=1", "-p", "2")
	wait.beside, real.beside = true, true
	steps := []step{
		{name: "deps", command: []string{"make", "--no-print-directory", "test-deps"}, soft: true},
		race, wait,
		goTest("units", plain, "-count=1", "-p", "2"), real,
	}
	for i, m := range append([]string{"test/validation"}, libraries...) {
		s := goTest(m, []string{"./..."}, "-count=1")
		if i--; i >= 0 && i < racing {
			s = goTest(m, []string{"./..."}, "-count=1", "-race")
			s.env = []string{"CGO_ENABLED=1"}
		}
		s.dir = m
		steps = append(steps, s)
	}
	return steps, nil
}

// check returns the steps that check the code without running it.
func check() []step {
	const staticcheck = "go tool -modfile=%sbuild/tools/go.mod staticcheck ./..."
	steps := []step{
		{name: "house", command: words("go run ./build/house")},
		shell("format", `unformatted=$(gofmt -l $(git ls-files '*.go')); test -z "$unformatted" || { echo "gofmt: $unformatted"; exit 1; }`),
		{name: "vet", command: words("go vet ./...")},
		// Windows is the least similar to Linux; "make release" builds for all systems.
		{name: "windows", command: words("go build -o /dev/null ./cmd/outrider ./cmd/outrider-operate"), env: []string{"GOOS=windows"}},
		{name: "staticcheck", command: words(fmt.Sprintf(staticcheck, ""))},
		{name: "tidy", command: words("go mod tidy -diff")},
	}
	for i, m := range append(slices.Clone(libraries), example) {
		up := strings.Repeat("../", 1+strings.Count(m, "/"))
		script := "go vet ./... && go mod tidy -diff && " + fmt.Sprintf(staticcheck, up)
		if i < plainLibraries {
			script += " && GOOS=windows go build ./..."
		}
		s := shell(m, script)
		s.dir = m
		steps = append(steps, s)
	}
	return steps
}

// e2e returns the steps of the suites in clusters. Each step after the first starts a cluster with another
// container runtime.
func e2e() []step {
	own := goTest("cluster", full([]string{"test/cluster"}), "-count=1") // runs alone, because it checks that a cluster leaves nothing on the machine
	own.env = []string{"OUTRIDER_E2E=1"}
	// Tests of this step kill and restart the node's plugins, and reboot the node, while pods need them.
	node := inCluster("kube and node", "containerd-2", "./test/kube", "-run 'TestOrder/(default|native|hold)$|TestNode|TestRuntimeRestarts' ./test/e2e")
	node.beside = true
	return []step{own, inCluster("pods", "containerd", "./test/e2e"), node}
}

// inCluster returns a step that runs suites in a new cluster, one after the other, because each of them installs
// a control plane.
func inCluster(name, runtime string, suites ...string) step {
	script := "status=0"
	for _, suite := range suites {
		script += "; go test -json -vet=off -ldflags=-w -count=1 -parallel 4 -timeout 90m " + suite + " || status=1"
	}
	return step{name: name, tests: true, env: []string{"OUTRIDER_E2E=1"}, command: append(words("go run ./test/cluster/cmd run --features ClusterTrustBundle,ClusterTrustBundleProjection"+
		" --apis certificates.k8s.io/v1beta1/clustertrustbundles --runtime "+runtime+" -- sh -c"), script+"; exit $status")}
}

// nightly returns the steps that run everything once: the tests with all cases instead of a sample, the tests
// that take too long for every change, and the tests with many pods. The minutes are estimates for two
// processors, to balance parts.
func nightly(ctx context.Context) ([]step, error) {
	steps, err := test(ctx)
	if err != nil {
		return nil, err
	}
	if i := slices.IndexFunc(steps, func(s step) bool { return s.name == "suites" }); i >= 0 { // the step attack runs these tests in their long form
		steps[i].command = slices.DeleteFunc(steps[i].command, func(p string) bool { return p == module+"test/attack" })
	}
	node := inCluster("kube and node", "containerd-2", "./test/kube", "-skip 'TestRollouts|UnderLoad' ./test/e2e")
	young := inCluster("pods v1.36", "containerd-2", "-run 'TestOrder|TestGraph|TestEnds|TestTheProxyIsLate|TestFaults|TestNode' ./test/e2e")
	young.env = append(young.env, "KUBE=v1.36")
	const calls = "OUTRIDER_CALLS=1000" // number of calls for each of the five strategies, the roll-outs without a mesh, and both kinds of applications
	pods := e2e()[:2]
	pods[1].env, node.env = append(pods[1].env, calls), append(node.env, calls)
	steps = slices.Concat(steps, []step{
		makes("attack"), makes("campaign"), makes("fuzz"), makes("istio-names"),
		makes("centres"), makes("reproducible"), makes("conformance"), makes("e2e-skew"),
	}, pods, []step{node, young})
	minutes := map[string]int{"race": 25, "waiting": 10, "units": 12, "suites": 10, "test/validation": 6,
		"attack": 20, "campaign": 15, "fuzz": 80, "istio-names": 1, "centres": 10, "reproducible": 15, "conformance": 10, "e2e-skew": 20,
		"cluster": 5, "pods": 50, "kube and node": 45, "pods v1.36": 30}
	for i := range steps {
		s := &steps[i]
		s.beside, s.minutes = false, minutes[s.name]
		s.env = append(slices.Clone(s.env), "OUTRIDER_NIGHTLY=1")
		if n := slices.Index(s.command, testLimit); n >= 0 { // with all cases, test/agent alone takes 20 minutes of it
			s.command[n] = "60m"
		}
		if s.name == "waiting" {
			s.env = append(s.env, "OUTRIDER_PAIRS=2000")
		}
	}
	return steps, nil
}

// makes returns a step that runs a target of the Makefile.
func makes(target string) step {
	return step{name: target, command: words("make --no-print-directory " + target)}
}

const module = "outrider.dev/"

// testLimit is the time that the tests of one package may take.
const testLimit = "30m"

// goTest returns a step that runs "go test" on packages. It runs without vet, which the tier check runs once, and
// links without debugging information, which would take a third of the linking time.
func goTest(name string, packages []string, flags ...string) step {
	return step{name: name, tests: true, command: slices.Concat(words("go test -vet=off -ldflags=-w -timeout "+testLimit), flags, packages)}
}

func shell(name, script string) step {
	return step{name: name, command: []string{"bash", "-euo", "pipefail", "-c", script}}
}

func words(line string) []string { return strings.Fields(line) }

func full(paths []string) (out []string) {
	for _, p := range paths {
		out = append(out, module+p)
	}
	return out
}

// within reports whether a package is one of the paths or below one.
func within(pkg string, paths []string) bool {
	return slices.ContainsFunc(full(paths), func(p string) bool { return pkg == p || strings.HasPrefix(pkg, p+"/") })
}

// A set holds the packages that have tests: those with unit tests and the suites.
type set struct {
	units  []string
	suites []string // packages below test/, which use real programs
}

func packages(ctx context.Context, pattern string) (set, error) {
	out, err := output(ctx, "go", "list", "-f", "{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}}{{end}}", pattern)
	if err != nil {
		return set{}, err
	}
	var s set
	for _, p := range strings.Fields(out) {
		if strings.HasPrefix(p, module+"test/") {
			s.suites = append(s.suites, p)
		} else {
			s.units = append(s.units, p)
		}
	}
	return s, nil
}

// sharing matches files that probably share memory between goroutines.
var sharing = regexp.MustCompile(`(?m)^\s*go [a-z(]|"sync"|"sync/atomic"|"net/http"|"google.golang.org/grpc"`)

// concurrent reports whether the race detector may find something in a package, because its code shares memory
// between goroutines. It is false for packages that run only on a user's machine or in builds.
func concurrent(pkg string) (bool, error) {
	dir := strings.TrimPrefix(pkg, module)
	if !slices.Contains([]string{"startup", "cmd/outrider-agent", "cmd/outriderd"}, dir) && !strings.HasPrefix(dir, "internal/") {
		return false, nil
	}
	files, err := os.ReadDir(dir)
	if err != nil {
		return false, err
	}
	for _, f := range files {
		if !strings.HasSuffix(f.Name(), ".go") || strings.HasSuffix(f.Name(), "_test.go") {
			continue
		}
		text, err := os.ReadFile(path.Join(dir, f.Name()))
		if err != nil {
			return false, err
		}
		if sharing.Match(text) {
			return true, nil
		}
	}
	return false, nil
}
