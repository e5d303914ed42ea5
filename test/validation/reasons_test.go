package validation

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	_ "k8s.io/cri-api/pkg/errors" // its source is read

	"outrider.dev/internal/doctor/diagnose/states"
)

// setters lists the packages that set reasons in the status of pods and of Jobs; the packages below them belong to them.
var setters = []string{
	"k8s.io/kubernetes/pkg/kubelet", "k8s.io/kubernetes/pkg/scheduler", "k8s.io/kubernetes/pkg/util/node", "k8s.io/kubernetes/pkg/registry/core/pod",
	"k8s.io/kubernetes/pkg/controller/podgc", "k8s.io/kubernetes/pkg/controller/tainteviction", "k8s.io/kubernetes/pkg/controller/devicetainteviction",
	"k8s.io/kubernetes/pkg/controller/nodelifecycle", "k8s.io/kubernetes/pkg/controller/job", "k8s.io/kubernetes/pkg/controller/disruption",
	"k8s.io/api/core/v1", "k8s.io/api/batch/v1", "k8s.io/cri-api/pkg/errors",
}

// notShown names the reasons of Kubernetes that are no row, by why.
var notShown = map[string][]string{
	"the type of a condition: its reason and its message say what is wrong": {
		"ContainersReady", "DisruptionTarget", "Initialized", "PodReadyToStartContainers", "PodResizeInProgress", "PodResizePending", "PodScheduled", "Ready",
	},
	"of the conditions Ready, ContainersReady and Initialized, which repeat the states of containers and readiness gates": {
		"ContainersNotInitialized", "ContainersNotReady", "PodCompleted", "PodFailed", "ReadinessGatesNotReady", "UnknownContainerStatuses",
	},
	"of the conditions of a resize: the pod runs on with the resources that it has": {"Deferred", "Infeasible"},
	"of an event of the kubelet, or of the metric of a kill": {
		"Created", "Failed", "FailedPostStartHook", "FailedPreStopHook", "Killing", "LivenessProbe", "ProbeWarning", "Started", "StartupProbe", "Unhealthy",
	},
	"the beginning of a message, under the reason CreateContainerError": {"ImageVolumeMountFailed", "RROUnsupported"},
	"of a Job: its pods have reasons of their own": {
		"BackoffLimitExceeded", "CompletionsReached", "FailedIndexes", "JobResumed", "JobSuspended", "MaxFailedIndexesExceeded", "PodFailurePolicy", "SuccessPolicy",
	},
	"of a Node": {
		"KubeletHasDiskPressure", "KubeletHasInsufficientMemory", "KubeletHasInsufficientPID", "KubeletHasNoDiskPressure", "KubeletHasSufficientMemory",
		"KubeletHasSufficientPID", "KubeletNotReady", "KubeletReady", "NodeStatusNeverUpdated", "NodeStatusUnknown",
	},
	"of a PodDisruptionBudget": {"SyncFailed"},
	"of a Service":             {"LoadBalancerMixedProtocolNotSupported"},
}

// fromElsewhere names the rows whose reason no constant of this version of Kubernetes has, by the program that sets it.
var fromElsewhere = map[string][]string{
	"container runtimes, by CRI": {"Completed", "ContainerCannotRun", "OOMKilled", "StartError"},
	"older kubelets":             {"RunInitContainerError", "Shutdown"},
	"the kubelet from 1.35 on":   {"PodFeatureUnsupported"},
}

// Each reason that Kubernetes may write into the status of a pod is a row of a table of diagnose, or is named in
// notShown. The reasons are read from the source, so that a new one of the next version is noticed here.
func TestReasonsOfKubernetes(t *testing.T) {
	k := readReasons(t)
	if len(k) < 80 {
		t.Errorf("%d reasons found: the test looks in the wrong place", len(k))
	}
	rows := map[string]bool{}
	for _, table := range [][]states.Meaning{states.Waiting, states.Terminated, states.Pod, states.Disruption, states.Unscheduled} {
		for _, m := range table {
			rows[m.Reason] = true
		}
	}
	has := func(reason string) bool {
		return slices.ContainsFunc(slices.Collect(maps.Keys(rows)), func(row string) bool {
			begin, all := strings.CutSuffix(row, "*")
			return row == reason || all && strings.HasPrefix(reason, begin)
		})
	}
	left, others := whyOf(t, notShown), whyOf(t, fromElsewhere)
	for _, reason := range slices.Sorted(maps.Keys(k)) {
		switch why := left[reason]; {
		case why == "" && !has(reason):
			t.Errorf("%s of Kubernetes (%s) is in no table of diagnose/states: add a row, or to notShown", reason, strings.Join(k[reason], ", "))
		case why != "" && has(reason):
			t.Errorf("%s is a row, and in notShown", reason)
		}
	}
	for _, reason := range slices.Sorted(maps.Keys(left)) {
		if k[reason] == nil {
			t.Errorf("%s of notShown is no reason of Kubernetes", reason)
		}
	}
	for _, row := range slices.Sorted(maps.Keys(rows)) {
		begin, all := strings.CutSuffix(row, "*")
		known := k[row] != nil || all && slices.ContainsFunc(slices.Collect(maps.Keys(k)), func(reason string) bool { return strings.HasPrefix(reason, begin) })
		if known == (others[row] != "") {
			t.Errorf("row %s: that Kubernetes has the reason is %t, and fromElsewhere says %q", row, known, others[row])
		}
	}
}

// whyOf returns the key of each name of a list.
func whyOf(t *testing.T, list map[string][]string) map[string]string {
	out := map[string]string{}
	for _, why := range slices.Sorted(maps.Keys(list)) {
		for _, name := range list[why] {
			if out[name] != "" {
				t.Errorf("%s is listed twice", name)
			}
			out[name] = why
		}
	}
	return out
}

// A source reads reasons from Go source, by its syntax alone.
type source struct {
	t       *testing.T
	modules map[string]string            // folder of each module
	known   map[string]map[string]string // import path: name of a constant or error: its text
	reasons map[string][]string          // reason: where it is set
}

// readReasons returns the reasons that the setters declare or set, each with where.
func readReasons(t *testing.T) map[string][]string {
	s := &source{t, map[string]string{}, map[string]map[string]string{}, map[string][]string{}}
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Path}} {{.Dir}}", "k8s.io/kubernetes", "k8s.io/api", "k8s.io/cri-api").Output()
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(out)) {
		name, dir, _ := strings.Cut(strings.TrimSpace(line), " ")
		s.modules[name] = dir
	}
	skipped := []string{"testing", "testdata", "metrics", "events", "config", "apis"} // of the kubelet itself, not of pods
	for _, setter := range setters {
		root := s.dir(setter)
		err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
			switch {
			case err != nil || !d.IsDir():
				return err
			case slices.Contains(skipped, d.Name()):
				return fs.SkipDir
			}
			rel, err := filepath.Rel(root, p)
			s.find(path.Join(setter, filepath.ToSlash(rel)))
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return s.reasons
}

// dir returns the folder of a package; empty: it belongs to none of the modules.
func (s *source) dir(pkg string) string {
	for name, dir := range s.modules {
		if rest, in := strings.CutPrefix(pkg+"/", name+"/"); in {
			return filepath.Join(dir, rest)
		}
	}
	return ""
}

// parse returns the files of a package without tests and generated code.
func (s *source) parse(pkg string) (out []*ast.File) {
	files, err := filepath.Glob(filepath.Join(s.dir(pkg), "*.go"))
	for _, name := range files {
		if base := filepath.Base(name); strings.HasSuffix(base, "_test.go") || strings.Contains(base, "generated") {
			continue
		}
		f, bad := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if bad != nil {
			s.t.Fatal(bad)
		}
		out = append(out, f)
	}
	if err != nil {
		s.t.Fatal(err)
	}
	return out
}

// constants returns the constants and errors of a package that have a text.
func (s *source) constants(pkg string) map[string]string {
	if out, read := s.known[pkg]; read {
		return out
	}
	out := map[string]string{}
	s.known[pkg] = out
	if s.dir(pkg) == "" {
		return out
	}
	for _, f := range s.parse(pkg) {
		eachConstant(f, func(name, _ string, value ast.Expr, _ string) {
			if text := s.text(pkg, f, value); text != "" {
				out[name] = text
			}
		})
	}
	return out
}

// eachConstant calls do with each constant and variable that a file declares, with the name of its type and the comment
// beside it.
func eachConstant(f *ast.File, do func(name, kind string, value ast.Expr, comment string)) {
	for _, d := range f.Decls {
		g, is := d.(*ast.GenDecl)
		if !is || g.Tok != token.CONST && g.Tok != token.VAR {
			continue
		}
		for _, spec := range g.Specs {
			v := spec.(*ast.ValueSpec)
			kind, _ := v.Type.(*ast.Ident)
			for i := range min(len(v.Names), len(v.Values)) {
				do(v.Names[i].Name, fmt.Sprint(kind), v.Values[i], v.Comment.Text())
			}
		}
	}
}

// text returns the text of an expression: a literal, a constant, an error or its text, or the beginning of a formatted
// text, with a star. It returns "" if only a run of the program knows it.
func (s *source) text(pkg string, f *ast.File, e ast.Expr) string {
	switch e := e.(type) {
	case *ast.BasicLit:
		text, _ := strconv.Unquote(e.Value)
		return text
	case *ast.Ident:
		return s.constants(pkg)[e.Name]
	case *ast.SelectorExpr:
		if x, is := e.X.(*ast.Ident); is {
			if from := imported(f, x.Name); from != "" {
				return s.constants(from)[e.Sel.Name]
			}
			if e.Sel.Name == "Error" {
				return s.text(pkg, f, x)
			}
		}
		if e.Sel.Name == "Error" {
			return s.text(pkg, f, e.X)
		}
	case *ast.CallExpr:
		name, _ := e.Fun.(*ast.SelectorExpr)
		switch {
		case len(e.Args) == 0: // ErrX.Error()
			return s.text(pkg, f, e.Fun)
		case name != nil && name.Sel.Name == "Sprintf":
			if begin, _, formatted := strings.Cut(s.text(pkg, f, e.Args[0]), "%"); formatted && begin != "" {
				return begin + "*"
			}
		case len(e.Args) == 1: // errors.New, a conversion
			return s.text(pkg, f, e.Args[0])
		}
	}
	return ""
}

// imported returns the path of the package that has a name in a file; empty: none has.
func imported(f *ast.File, name string) string {
	for _, i := range f.Imports {
		from, _ := strconv.Unquote(i.Path.Value)
		if i.Name != nil && i.Name.Name == name || i.Name == nil && path.Base(from) == name {
			return from
		}
	}
	return ""
}

// word matches a reason: one word in camel case, as the API wants it. A star ends what is the beginning of some.
var word = regexp.MustCompile(`^[A-Z][A-Za-z]{2,}[A-Za-z0-9-]*\*?$`)

// isReason reports whether a name is of a reason.
func isReason(name string) bool { return strings.Contains(strings.ToLower(name), "reason") }

// find adds the reasons of a package: declared as a constant or an error, written into a field or a variable for one, or
// passed as one.
func (s *source) find(pkg string) {
	add := func(f *ast.File, e ast.Expr) {
		if text := s.text(pkg, f, e); word.MatchString(text) && !slices.Contains(s.reasons[text], pkg) {
			s.reasons[text] = append(s.reasons[text], pkg)
		}
	}
	files := s.parse(pkg)
	takes := map[string]int{} // functions of the package with a parameter that is a reason: its index
	for _, f := range files {
		for _, d := range f.Decls {
			if fn, is := d.(*ast.FuncDecl); is {
				n := 0
				for _, p := range fn.Type.Params.List {
					for _, name := range p.Names {
						if isReason(name.Name) {
							takes[fn.Name.Name] = n
						}
						n++
					}
				}
			}
		}
	}
	for _, f := range files {
		eachConstant(f, func(name, kind string, value ast.Expr, _ string) {
			if isReason(name) || isReason(kind) || strings.HasPrefix(name, "Err") || kind == "PodConditionType" {
				add(f, value)
			}
		})
		ast.Inspect(f, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.KeyValueExpr:
				if key, is := n.Key.(*ast.Ident); is && isReason(key.Name) {
					add(f, n.Value)
				}
			case *ast.AssignStmt:
				for i := range min(len(n.Lhs), len(n.Rhs)) {
					if isReason(nameOf(n.Lhs[i])) {
						add(f, n.Rhs[i])
					}
				}
			case *ast.CompositeLit: // the kubelet takes names of the scheduler's plugins as reasons
				if nameOf(n.Type) == "AdmissionResult" || nameOf(n.Type) == "PredicateFailureError" {
					for _, e := range n.Elts {
						if pair, is := e.(*ast.KeyValueExpr); is {
							e = pair.Value
						}
						add(f, e)
					}
				}
			case *ast.CallExpr:
				if i, is := takes[nameOf(n.Fun)]; is && i < len(n.Args) {
					add(f, n.Args[i])
				}
			}
			return true
		})
	}
}

// nameOf returns the name of a variable, a field or a function.
func nameOf(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		return e.Sel.Name
	}
	return ""
}
