package lint

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
	corev1 "k8s.io/api/core/v1"

	"outrider.dev/internal/base/finding"
	"outrider.dev/internal/base/manifest"
	"outrider.dev/internal/core/pod/inject/verdict"
	"outrider.dev/internal/core/pod/podfile"
	"outrider.dev/internal/doctor/lint/kinds"
	"outrider.dev/internal/doctor/lint/text"
	"outrider.dev/startup"
)

// A File is text with manifests.
type File struct {
	Name string
	Data []byte
}

// Options of [Lint]. The zero value of a field means its default.
type Options struct {
	Kubernetes startup.Kubernetes // version of the nodes; default 1.34
	Namespace  string             // namespace of objects without one; default "default"
	Injected   bool               // treat all pods as injected, independently of labels
	Inputs     []string           // files and folders, or [Cluster], that a remedy's command must name; default: the file of the finding
}

// A Report contains the findings, and the number of objects that were checked.
type Report struct {
	Findings []finding.Finding
	Pods     int // pods and pod templates
	Services int
	Unknown  int // pods whose injection was not checked, because the files do not show whether they are injected
}

// NotChecked returns a sentence about the checks that were not made, and how to make them. It is empty if all were
// made.
func (r Report) NotChecked() string {
	if r.Unknown == 0 {
		return ""
	}
	pods := "1 pod"
	if r.Unknown > 1 {
		pods = fmt.Sprintf("%d pods", r.Unknown)
	}
	return fmt.Sprintf("not checked: injection of %s, since nothing in the files requests it; --injected assumes it, or add the file with the labels of the namespace", pods)
}

// Lint returns the findings about all objects in the files. The files belong together: a Namespace in one file
// applies to a pod in another. An error is a *podfile.InputError.
func Lint(files []File, o Options) (Report, error) {
	w := world{Options: o, namespaces: map[string]namespace{}}
	w.Kubernetes = cmp.Or(w.Kubernetes, defaultKubernetes)
	w.Namespace = cmp.Or(o.Namespace, corev1.NamespaceDefault)
	for _, f := range files {
		if err := w.read(f); err != nil {
			return Report{}, err
		}
	}
	var out []finding.Finding
	check := func(l located, template path, rules func(*builder)) {
		b := builder{world: &w, located: l, template: template}
		rules(&b)
		out = append(out, b.found...)
	}
	unknown := 0
	for i := range w.subjects {
		s := &w.subjects[i]
		s.findProxy(&w)
		if s.proxy == "" && s.reason.Code == verdict.NotRequested && s.ns.at == nil || s.ofOtherMesh() && s.mayBeside() {
			unknown++
		}
	}
	for _, s := range w.subjects {
		check(s.located, s.template, func(b *builder) {
			for _, rule := range podRules {
				rule(s, b)
			}
			injectionRefuses(s, b)
		})
	}
	for _, s := range w.services {
		check(s.located, nil, func(b *builder) {
			serverFirst(s, b)
			fieldsOfService(s, b)
			localGaps(s, b)
		})
	}
	for _, o := range w.ignored {
		check(o.located, nil, func(b *builder) { withoutEffect(o, b) })
	}
	for _, o := range w.meshObjects {
		check(o.located, nil, func(b *builder) {
			refusedObject(o, b)
			selectsEverything(o, b)
			neverMatches(o, b)
		})
	}
	out = once(out)
	finding.Sort(out)
	return Report{Findings: out, Pods: len(w.subjects), Services: len(w.services), Unknown: unknown}, nil
}

// once leaves one finding first-start-only of all pods, at the first of them: its remedy is one for all.
func once(all []finding.Finding) []finding.Finding {
	pods := 0
	out := slices.DeleteFunc(all, func(f finding.Finding) bool {
		if f.Code == onlyFirst {
			pods++
		}
		return f.Code == onlyFirst && pods > 1
	})
	if first := slices.IndexFunc(out, func(f finding.Finding) bool { return f.Code == onlyFirst }); pods > 1 {
		out[first].Title = fmt.Sprintf("%d pods and their proxies are in order at the first start only, and this is one of them", pods)
	}
	return out
}

const defaultKubernetes startup.Kubernetes = 34

// A world contains the objects of all files.
type world struct {
	Options
	subjects    []subject
	services    []service
	slices      []slice
	ignored     []ignored
	meshObjects []meshObject
	namespaces  map[string]namespace
}

// A located is an object in a file.
type located struct {
	at  *text.Object
	Ref finding.Object
}

// A namespace has the labels and annotations that the files set on a Namespace.
type namespace struct {
	labels, annotations map[string]string
	at                  *text.Object // nil: the Namespace is not in the files
}

// A service is a Service with its position in a file.
type service struct {
	*corev1.Service
	located
}

// read adds the objects of a file.
func (w *world) read(f File) error {
	pods, _, err := podfile.Parse(f.Name, f.Data)
	if err != nil {
		return err
	}
	file := text.Read(f.Name, f.Data)
	for _, o := range file.Objects {
		l := located{o, finding.Object{Kind: manifest.Text(o.Node, "kind"), Name: manifest.Text(o.Node, "metadata", "name"), Namespace: manifest.Text(o.Node, "metadata", "namespace")}}
		raw, err := yaml.Marshal(o.Node)
		switch {
		case l.Ref.Kind == "Namespace":
			w.namespace(l)
		case err != nil:
		case l.Ref.Kind == "Service":
			w.service(l, raw)
		default:
			if raw, err = manifest.JSON(raw); err == nil { // JSON turns numeric keys, such as ports, into strings
				w.addIgnored(l, raw)
				w.addMeshObject(l, raw)
			}
		}
	}
	for _, o := range pods {
		w.subjects = append(w.subjects, w.subject(o, file))
	}
	return nil
}

func (w *world) namespace(l located) {
	n := namespace{labels: map[string]string{}, at: l.at}
	if labels := manifest.Field(l.at.Node, "metadata", "labels"); labels != nil {
		_ = labels.Decode(&n.labels) // labels that are not strings are ignored
	}
	if annotations := manifest.Field(l.at.Node, "metadata", "annotations"); annotations != nil {
		_ = annotations.Decode(&n.annotations)
	}
	w.namespaces[l.Ref.Name] = n
}

// service adds a Service of Kubernetes. Services of Knative are left out. So are objects that cannot be
// decoded: the API server refuses them.
func (w *world) service(l located, raw []byte) {
	var out corev1.Service
	if manifest.Text(l.at.Node, "apiVersion") == "v1" && manifest.Decode(raw, &out) == nil {
		w.services = append(w.services, service{&out, l})
	}
}

// A builder collects the findings of one rule about one object.
type builder struct {
	*world
	located
	template path
	found    []finding.Finding
}

// A clue is a finding in the form in which a rule reports it. field is relative to the pod.
type clue struct {
	code     finding.Code
	severity finding.Severity // empty: the severity of the kind
	title    string
	field    path
	evidence string
	why      string
	do       string
	run      string // the command that fixes the problem, or shows more about it; may be empty
	source   string
	fix      *change
}

// add adds a finding about the builder's object, for example a pod.
func (b *builder) add(c clue) {
	c.field = b.template.plus(c.field...)
	b.addAt(b.at, c)
}

// addAt adds a finding whose field is in the given object.
func (b *builder) addAt(at *text.Object, c clue) {
	kind, _ := kinds.Of(string(c.code)) // a test checks that the catalogue contains every code
	f := finding.Finding{Code: c.code, Severity: cmp.Or(c.severity, kind.Severity), Title: c.title, Object: b.Ref, Place: at.Place(c.field, c.evidence),
		Field: c.field.String(), Evidence: c.evidence, Why: c.why, Source: c.source, Remedy: finding.Remedy{Sentence: c.do, Command: c.run}}
	if c.fix != nil {
		f.Fix, _ = b.at.Patch(c.fix.before, c.fix.after) // nil if the style of the text does not allow it
	}
	switch {
	case f.Fix != nil:
		f.Remedy.Command = b.fixCommand(c.code)
	case f.Remedy.Command == "":
		f.Remedy.Command = "outrider lint --explain " + string(c.code)
	}
	b.found = append(b.found, f)
}

// Values of [Options.Inputs] that are not files.
const (
	Stdin   = "standard input"
	Cluster = "the cluster" // a namespace of the cluster
)

// fixCommand returns the command that fixes a finding. It has the same inputs and flags as this call of lint,
// because a finding in one file may depend on another file.
func (b *builder) fixCommand(code finding.Code) string {
	inputs := b.Inputs
	if len(inputs) == 0 {
		inputs = []string{b.at.Name}
	}
	cmd, cluster := "outrider lint", slices.Contains(inputs, Cluster)
	for _, name := range inputs {
		if name != Cluster {
			cmd += " " + b.input(name)
		}
	}
	if cluster || b.Namespace != corev1.NamespaceDefault {
		cmd += " -n " + shellWord(b.Namespace)
	}
	if b.Kubernetes != defaultKubernetes {
		cmd += fmt.Sprintf(" --kube 1.%d", b.Kubernetes)
	}
	if b.Injected {
		cmd += " --injected"
	}
	cmd += " --only " + string(code) + " --fix"
	switch {
	case cluster:
		return cmd + " | kubectl apply -f -"
	case slices.ContainsFunc(inputs, isStdin):
		return cmd
	}
	return cmd + " --write"
}

func isStdin(name string) bool { return name == Stdin || name == "-" }

// input returns the flag that makes a command read a file.
func (b *builder) input(file string) string {
	if isStdin(file) {
		return "-f -"
	}
	return "-f " + shellWord(file)
}

func shellWord(s string) string {
	if plainWord(s) {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

func plainWord(s string) bool {
	return s != "" && strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./=:,") == ""
}
