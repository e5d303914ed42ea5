package main

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/diff"
	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"outrider.dev/internal/cli"
	"outrider.dev/internal/image/lookup"
	"outrider.dev/internal/manifest"
	"outrider.dev/internal/pod/inject"
	"outrider.dev/internal/pod/podspec"
	"outrider.dev/startup"
)

type injectOptions struct {
	files     []string
	output    string
	diff      bool
	values    []string
	set       []string
	mesh      string
	namespace string
	labels    map[string]string
	kube      kubeVersion
	images    lookup.Flags
	inject    inject.Options

	resolver *lookup.Resolver // nil: nobody looks images up
}

const injectExamples = `  # add the proxy, the capture and the order, and apply
  outrider inject -f app.yaml | kubectl apply -f -

  # what would change, and why
  outrider inject -f app.yaml --diff

  # the app starts after its proxy, everywhere
  outrider inject -f app.yaml --set values.global.proxy.holdApplicationUntilProxyStarts=true

  # as this namespace would have it
  outrider inject -f app.yaml --namespace shop --namespace-labels pod-security.kubernetes.io/enforce=baseline`

func newInject() *cobra.Command {
	o := &injectOptions{kube: 34}
	cmd := &cobra.Command{
		Use:     "inject -f FILE",
		Aliases: []string{"kube-inject"},
		Short:   "add the proxy, the capture and the start order to the pods of manifests",
		Long: `Reads manifests and prints them with the proxy in each pod, and in each object that has a
pod template. Everything else passes through: documents without a pod byte for byte, in the
others comments, the order of what is written, and fields that nobody knows.

It needs no cluster. What the mesh says comes from --values, --set and --mesh-config; what
the namespace says from its document, if the files have it, or from --namespace-labels.
With --resolve-images registries are asked what the images of containers without a command
run, so that these can wait behind a gate too; such an image is pinned to its digest.

What is not injected is said on standard error, with the reason. The exit status is 1 if a
pod asks for what cannot be had (nothing is printed then), 2 if the input cannot be used.`,
		Example: injectExamples,
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return o.run(cmd) },
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.StringArrayVarP(&o.files, "filename", "f", nil, "file with manifests, YAML or JSON; '-' is standard input; may be repeated")
	fs.StringVarP(&o.output, "output", "o", "", "file for the result (default standard output)")
	fs.BoolVar(&o.diff, "diff", false, "print what changes and why, instead of the result")
	fs.StringArrayVar(&o.values, "values", nil, "file with values, as of Istio's charts; may be repeated")
	fs.StringArrayVar(&o.set, "set", nil, "one value, as global.proxy.logLevel=info, in Helm's form; may be repeated")
	fs.StringVar(&o.mesh, "mesh-config", "", "file with the mesh's configuration, as Istio's")
	fs.StringVarP(&o.namespace, "namespace", "n", "default", "namespace of what does not name one")
	fs.StringToStringVar(&o.labels, "namespace-labels", nil, "labels of that namespace, as NAME=VALUE,NAME=VALUE")
	fs.Var(&o.kube, "kube", "Kubernetes version of the nodes")
	fs.StringVar(&o.inject.Revision, "revision", "", "revision of the control plane (default of the values)")
	fs.StringVar(&o.inject.ControlPlane, "control-plane", "", "address of the control plane (default outriderd.outrider-system.svc:15012)")
	fs.StringVar(&o.inject.Images.Proxy, "proxy-image", "", "image of the proxy (default of the values)")
	o.images.Add(fs, 10*time.Second)
	istioFlags(cmd, o)
	// Each fails for a flag that does not exist only.
	_ = cmd.MarkFlagFilename("filename", "yaml", "yml", "json")
	_ = cmd.MarkFlagFilename("values", "yaml", "yml", "json")
	_ = cmd.MarkFlagFilename("mesh-config", "yaml", "yml", "json")
	_ = cmd.MarkFlagFilename("registry-config", "json")
	return cmd
}

// withoutEffect are flags of istioctl kube-inject that have none here, and why.
var withoutEffect = map[string]string{
	"injectConfigFile":    "what is injected is built in",
	"injectConfigMapName": "what is injected is built in",
	"meshConfigMapName":   "no cluster is asked; use --mesh-config",
	"webhookConfig":       "no cluster is asked",
	"operatorFileName":    "use --values",
}

// istioFlags are those of istioctl kube-inject that are not also ours.
func istioFlags(cmd *cobra.Command, o *injectOptions) {
	fs := cmd.Flags()
	fs.StringArrayVar(&o.values, "valuesFile", nil, "Istio's name of --values")
	fs.StringVar(&o.mesh, "meshConfigFile", "", "Istio's name of --mesh-config")
	for name, why := range withoutEffect {
		fs.String(name, "", "accepted, without effect: "+why)
	}
	for _, name := range []string{"valuesFile", "meshConfigFile", "injectConfigFile", "injectConfigMapName", "meshConfigMapName", "webhookConfig", "operatorFileName"} {
		fs.Lookup(name).Hidden = true
	}
}

func (o *injectOptions) run(cmd *cobra.Command) error {
	if len(o.files) == 0 {
		return &cli.UsageError{Err: errors.New("nothing to read"), Hint: "give -f FILE, or -f - for standard input"}
	}
	if err := o.configure(cmd); err != nil {
		return &cli.UsageError{Err: err}
	}
	p := &injected{o: o, cmd: cmd, namespaces: map[string]inject.Namespace{}}
	if err := p.read(); err != nil {
		return &cli.UsageError{Err: err}
	}
	if err := p.rewrite(); err != nil {
		return err
	}
	text := p.joined()
	if o.diff {
		text = p.diff()
	}
	if o.output != "" {
		if err := os.WriteFile(o.output, text, 0o644); err != nil {
			return &cli.UsageError{Err: fmt.Errorf("--output: %w", err)}
		}
		return nil
	}
	_, err := cmd.OutOrStdout().Write(text)
	return err
}

// configure reads what the mesh says.
func (o *injectOptions) configure(cmd *cobra.Command) error {
	note := func(format string, args ...any) {
		fmt.Fprintf(cmd.ErrOrStderr(), "outrider: note: "+format+"\n", args...)
	}
	for name, why := range withoutEffect {
		if cmd.Flags().Changed(name) {
			note("--%s has no effect: %s", name, why)
		}
	}
	if err := inject.NamespaceName(o.namespace); err != nil {
		return fmt.Errorf("--namespace: %w", err)
	}
	if err := o.inject.Check(); err != nil {
		return err
	}
	all := map[string]any{}
	for _, file := range o.values {
		data, err := os.ReadFile(file)
		if err != nil {
			return fmt.Errorf("--values: %w", err)
		}
		var one map[string]any
		if err := yaml.Unmarshal(data, &one); err != nil {
			return fmt.Errorf("--values: %s: %w", file, err)
		}
		all = inject.Overlay(all, one)
	}
	for _, s := range o.set {
		if err := inject.SetValue(all, s); err != nil {
			return fmt.Errorf("--set: %w", err)
		}
	}
	text, err := yaml.Marshal(all)
	if err != nil {
		return err
	}
	values, warnings, err := inject.ParseValues(text)
	if err != nil {
		return fmt.Errorf("values: %w", err)
	}
	for _, w := range warnings {
		note("%s", w)
	}
	if o.resolver, err = o.images.Resolver(http.ProxyFromEnvironment); err != nil {
		return err
	}
	o.inject.Values, o.inject.Manual, o.inject.Kubernetes = values, true, startup.Kubernetes(o.kube)
	if o.mesh == "" {
		return nil
	}
	data, err := os.ReadFile(o.mesh)
	if err != nil {
		return fmt.Errorf("--mesh-config: %w", err)
	}
	if o.inject.Mesh, err = inject.ParseMesh(data); err != nil {
		return fmt.Errorf("--mesh-config: %s: %w", o.mesh, err)
	}
	for _, n := range o.inject.Mesh.Notes {
		note("--mesh-config: %s", n)
	}
	return nil
}

// injected is what becomes of the files.
type injected struct {
	o          *injectOptions
	cmd        *cobra.Command
	namespaces map[string]inject.Namespace
	names      []string
	texts      [][]byte
	out        [][]byte
	changes    []podspec.Change
	why        map[string][]string // by object of a document
	refused    int
}

// read reads all files before anything is decided: a namespace may come last.
func (p *injected) read() error {
	for _, file := range p.o.files {
		name, data, err := readText(p.cmd, file)
		if err != nil {
			return err
		}
		p.names, p.texts = append(p.names, name), append(p.texts, data)
		for _, ns := range manifest.Namespaces(data) {
			p.namespaces[ns.Name] = inject.Namespace{Name: ns.Name, Labels: ns.Labels, Annotations: ns.Annotations}
		}
	}
	if len(p.o.labels) > 0 {
		ns := p.namespaces[p.o.namespace]
		ns.Name, ns.Labels = p.o.namespace, maps.Clone(ns.Labels)
		if ns.Labels == nil {
			ns.Labels = map[string]string{}
		}
		maps.Copy(ns.Labels, p.o.labels)
		p.namespaces[ns.Name] = ns
	}
	return nil
}

// rewrite injects every pod. One that is refused is said, and ends it after the others
// have been looked at too.
func (p *injected) rewrite() error {
	p.why = map[string][]string{}
	for i, data := range p.texts {
		out, changes, err := podspec.Rewrite(p.names[i], data, p.pod)
		if err != nil {
			return &cli.UsageError{Err: err}
		}
		p.out, p.changes = append(p.out, out), append(p.changes, changes...)
	}
	switch {
	case p.refused == 1:
		return errors.New("a pod cannot be injected as it asks; nothing is printed")
	case p.refused > 1:
		return fmt.Errorf("%d pods cannot be injected as they ask; nothing is printed", p.refused)
	}
	return nil
}

func (p *injected) say(kind string, o podspec.Object, format string, args ...any) {
	fmt.Fprintf(p.cmd.ErrOrStderr(), "outrider: %s: %s: document %d: %s: %s\n", kind, o.File, o.Document, o, fmt.Sprintf(format, args...))
}

// pod injects one; nil leaves it.
func (p *injected) pod(o podspec.Object) (*corev1.Pod, error) {
	for _, field := range o.Unknown {
		p.say("note", o, "%s is not a field that this version knows; it stays", field)
	}
	name := o.Namespace
	if name == "" {
		name = p.o.namespace
	}
	ns, known := p.namespaces[name]
	if !known {
		ns.Name = name
	}
	options := p.o.inject
	if o.Kind != "Pod" {
		options.Workload = inject.Workload{APIVersion: o.APIVersion, Kind: o.Kind, Name: o.Name}
	}
	r, err := p.inject(&o.Pod, ns, options)
	for _, w := range r.Warnings {
		p.say("warning", o, "%s", w)
	}
	var refusal *inject.Refusal
	switch {
	case errors.As(err, &refusal):
		p.refused++
		p.say("error", o, "%s (%s)", refusal.Sentence, refusal.Code)
		if refusal.Hint != "" {
			p.say("hint", o, "%s", refusal.Hint)
		}
		return nil, nil
	case err != nil:
		return nil, err
	case !r.Injected:
		p.say("note", o, "not injected: %s (%s)", r.Reason.Sentence, r.Reason.Code)
		if r.Pod == &o.Pod {
			return nil, nil
		}
		return r.Pod, nil // without what was ours
	}
	p.why[key(o.File, o.Document, o.String())] = append([]string{"injected: " + r.Reason.Sentence}, r.Notes...)
	return r.Pod, nil
}

func (p *injected) inject(pod *corev1.Pod, ns inject.Namespace, o inject.Options) (inject.Result, error) {
	if p.o.resolver == nil {
		return inject.Pod(pod, ns, o)
	}
	return inject.Resolving(pod, ns, o, func(images []string) map[string]inject.ImageCommand {
		return p.o.resolver.Commands(p.cmd.Context(), images)
	})
}

// key is an object of a document.
func key(file string, document int, object string) string {
	return fmt.Sprintf("%s/%d/%s", file, document, object)
}

// joined is all files as one, each a document of its own.
func (p *injected) joined() []byte {
	var b bytes.Buffer
	for i, text := range p.out {
		if i > 0 {
			if b.Len() > 0 && !bytes.HasSuffix(b.Bytes(), []byte("\n")) {
				b.WriteByte('\n')
			}
			if !bytes.HasPrefix(text, []byte("---")) {
				b.WriteString("---\n")
			}
		}
		b.Write(text)
	}
	return b.Bytes()
}

// diff is what changes, document by document, and why.
func (p *injected) diff() []byte {
	var b bytes.Buffer
	for _, c := range p.changes {
		for _, object := range c.Objects {
			fmt.Fprintf(&b, "# %s: document %d: %s\n", c.File, c.Document, object)
			for _, line := range p.why[key(c.File, c.Document, object)] {
				fmt.Fprintf(&b, "#   %s\n", line)
			}
		}
		name := strings.Join(strings.Fields(c.File), "-")
		b.Write(diff.Diff(name, []byte(c.Before), name+" (injected)", []byte(c.After)))
	}
	return b.Bytes()
}
