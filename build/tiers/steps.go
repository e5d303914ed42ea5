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

// libraries are the modules for applications. They do not depend on the main module. The first three are
// not adapters.
var libraries = []string{"ready", "resilience", "bootconfig",
	"ready/grpcready", "resilience/grpcresilience", "resilience/otelresilience",
	"bootconfig/consul", "bootconfig/koanf", "bootconfig/kubernetes", "bootconfig/nacos"}

// example has no tests of its own: test/awesome has them.
const example = "examples/awesome-app/go"

// The first two modules are tested with the race detector. With it, the adapters' dependencies take minutes
// to build, and in bootconfig the detector itself fails in two of four runs ("tsan_rtl.cpp:346: CHECK
// failed") for an unknown reason.
const plainLibraries, racing = 3, 2

// waiting lists the suites that mostly wait: for the kernel, and for programs to start and to end. They run
// beside suites that need the processors.
var waiting = []string{"test/awesome", "test/mesh", "test/netns", "test/ready"}

// clustered lists the packages of the tier e2e.
var clustered = []string{"test/cluster", "test/e2e", "test/kube"}

// quick runs without "-count=1": the go command reruns only packages that changed, or that depend on a
// change. The programs of bench/ depend on everything. Nothing depends on the programs of build/, and their
// dependencies and those of a library's adapters take minutes to compile. So these run only if they, or the
// library, have uncommitted changes. The tested packages are compiled first, because tests that build
// commands would compile them at the same time.
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

// test runs each package once: with the race detector if the package's own code shares memory between
// goroutines, and otherwise without, which is five times as fast.
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
	// The first package of the race pass takes longest, and also builds the commands with the detector.
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

// check inspects the code without running it.
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

// e2e starts a cluster for each container runtime, which the suites share.
func e2e() []step {
	own := goTest("cluster", full([]string{"test/cluster"}), "-count=1") // checks for remains of a cluster on the machine
	own.env = []string{"OUTRIDER_E2E=1"}
	// The node's plugins are killed and restarted, and the node is rebooted, while pods need them.
	node := inCluster("kube and node", "containerd-2", "./test/kube", "-run 'TestOrder/(default|native|hold)$|TestNode|TestRuntimeRestarts' ./test/e2e")
	node.beside = true
	return []step{own, inCluster("pods", "containerd", "./test/e2e"), node}
}

// inCluster runs suites one after the other in a new cluster. Both install a control plane, so they cannot
// use it at the same time.
func inCluster(name, runtime string, suites ...string) step {
	script := "status=0"
	for _, suite := range suites {
		script += "; go test -json -vet=off -ldflags=-w -count=1 -parallel 4 -timeout 90m " + suite + " || status=1"
	}
	return step{name: name, tests: true, env: []string{"OUTRIDER_E2E=1"}, command: append(words("go run ./test/cluster/cmd run --features ClusterTrustBundle,ClusterTrustBundleProjection"+
		" --apis certificates.k8s.io/v1beta1/clustertrustbundles --runtime "+runtime+" -- sh -c"), script+"; exit $status")}
}

// nightly runs everything once: the tests without samples, the tests that take too long for every change,
// and the tests with many pods. Parts take about the same time, based on estimates for two processors.
func nightly(ctx context.Context) ([]step, error) {
	steps, err := test(ctx)
	if err != nil {
		return nil, err
	}
	if i := slices.IndexFunc(steps, func(s step) bool { return s.name == "suites" }); i >= 0 { // make attack runs the long form
		steps[i].command = slices.DeleteFunc(steps[i].command, func(p string) bool { return p == module+"test/attack" })
	}
	node := inCluster("kube and node", "containerd-2", "./test/kube", "-skip 'TestRollouts|UnderLoad' ./test/e2e")
	young := inCluster("pods v1.36", "containerd-2", "-run 'TestOrder|TestGraph|TestEnds|TestTheProxyIsLate|TestFaults|TestNode' ./test/e2e")
	young.env = append(young.env, "KUBE=v1.36")
	const calls = "OUTRIDER_CALLS=2000" // for each of the five strategies
	pods := e2e()[:2]
	pods[1].env, node.env = append(pods[1].env, calls), append(node.env, calls)
	steps = slices.Concat(steps, []step{
		makes("attack"), makes("campaign"), makes("fuzz"), makes("istio-names"),
		makes("centres"), makes("reproducible"), makes("conformance"),
	}, pods, []step{node, young})
	minutes := map[string]int{"race": 25, "waiting": 10, "units": 12, "suites": 10, "test/validation": 6,
		"attack": 20, "campaign": 15, "fuzz": 60, "istio-names": 1, "centres": 10, "reproducible": 15, "conformance": 10,
		"cluster": 5, "pods": 40, "kube and node": 45, "pods v1.36": 30}
	for i := range steps {
		s := &steps[i]
		s.beside, s.minutes = false, minutes[s.name]
		s.env = append(slices.Clone(s.env), "OUTRIDER_NIGHTLY=1")
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

// goTest returns a step that runs "go test" on packages. It skips vet, which the tier check runs once, and
// the debugging information, which nothing reads and which takes a third of the linking time.
func goTest(name string, packages []string, flags ...string) step {
	return step{name: name, tests: true, command: slices.Concat(words("go test -vet=off -ldflags=-w -timeout 30m"), flags, packages)}
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

// A set lists the packages that have tests.
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

// sharing matches a file that shares memory between goroutines.
var sharing = regexp.MustCompile(`(?m)^\s*go [a-z(]|"sync"|"sync/atomic"|"net/http"|"google.golang.org/grpc"`)

// concurrent reports whether a package's own code shares memory between goroutines: only there can the race
// detector find anything. Packages that run only on a person's machine, as commands or in builds, are
// excluded.
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
