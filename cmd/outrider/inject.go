package main

import (
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"

	"outrider.dev/internal/base/cli"
	"outrider.dev/internal/core/pod/inject"
	"outrider.dev/internal/core/pod/inject/imagecmd"
	"outrider.dev/internal/core/pod/lookup"
)

type injectOptions struct {
	meshOptions
	rewritten
	files  []string
	kube   cli.KubeVersion
	images lookup.Flags

	resolver *lookup.Resolver // nil: images are not looked up
}

const injectExamples = `  # add the proxy, the capture and the order, and apply
  outrider inject -f app.yaml | kubectl apply -f -

  # what would change, and why
  outrider inject -f app.yaml --diff

  # every app starts after its proxy
  outrider inject -f app.yaml --set values.global.proxy.holdApplicationUntilProxyStarts=true

  # whether a namespace with these labels admits the pods: this one refuses them, unless they capture nothing
  outrider inject -f app.yaml --namespace shop --namespace-labels pod-security.kubernetes.io/enforce=baseline`

func newInject() *cobra.Command {
	o := &injectOptions{kube: 34}
	cmd := &cobra.Command{
		Use:     "inject -f FILE",
		Aliases: []string{"kube-inject"},
		Short:   "add the proxy, the capture and the start order to the pods of manifests",
		Long: `Reads manifests and prints them with the proxy in each pod and each pod template. Everything else
stays: documents without a pod byte for byte; in the others the comments, the order of fields, and
unknown fields.

It needs no cluster. Settings of the mesh come from --values, --set and --mesh-config. Labels
of the namespace come from its document, if a file has it, and from --namespace-labels. With
--resolve-images the commands of containers whose pod spec has none are read from the registries of
their images, so that these containers can wait behind a gate too; such an image is pinned to its
digest.

Pods that are not injected are listed on standard error, with the reason. The exit status is
1 if the settings of a pod are unsupported or conflict (then nothing is printed), 2 if the
input is unusable.`,
		Example: injectExamples,
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return o.run(cmd) },
	}
	fs := cmd.Flags()
	fs.StringArrayVarP(&o.files, "filename", "f", nil, cli.Manifest)
	o.rewritten.flags(fs)
	o.meshOptions.flags(cmd)
	fs.Var(&o.kube, "kube", "Kubernetes version of the nodes")
	fs.StringVar(&o.inject.Revision, "revision", "", "revision of the control plane (default of the values)")
	fs.StringVar(&o.inject.ControlPlane, "control-plane", "", "address of the control plane (default outriderd.outrider-system.svc:15012)")
	fs.StringVar(&o.inject.Images.Proxy, "proxy-image", "", "image of the proxy (default of the values)")
	fs.StringVar(&o.settings.ProbeKey, "probe-key", "", "file with a secret of 16 bytes or more, from which the keys in the probes' paths are derived: the agent then recognises the kubelet by these keys instead of by its address")
	o.images.Add(fs, 10*time.Second, lookup.Private)
	istioFlags(cmd, o)
	cli.CompleteFiles(cmd, "filename", "yaml", "yml", "json")
	cli.CompleteFiles(cmd, "registry-config", "json")
	cli.CompleteFiles(cmd, "probe-key")
	return cmd
}

// withoutEffect contains the flags of istioctl kube-inject that have no effect here, each with the reason.
var withoutEffect = map[string]string{
	"injectConfigFile":    "what is injected is built in",
	"injectConfigMapName": "what is injected is built in",
	"meshConfigMapName":   "no cluster is read; use --mesh-config",
	"webhookConfig":       "no cluster is read",
	"operatorFileName":    "use --values",
}

// istioFlags adds the flags of istioctl kube-inject that have another name here, or no effect. They are hidden.
func istioFlags(cmd *cobra.Command, o *injectOptions) {
	fs := cmd.Flags()
	fs.StringArrayVar(&o.settings.Values, "valuesFile", nil, "Istio's name of --values")
	fs.StringVar(&o.settings.Mesh, "meshConfigFile", "", "Istio's name of --mesh-config")
	for name, why := range withoutEffect {
		fs.String(name, "", "accepted, without effect: "+why)
	}
	for _, name := range []string{"valuesFile", "meshConfigFile", "injectConfigFile", "injectConfigMapName", "meshConfigMapName", "webhookConfig", "operatorFileName"} {
		fs.Lookup(name).Hidden = true
	}
}

func (o *injectOptions) run(cmd *cobra.Command) error {
	if len(o.files) == 0 {
		return errNothing
	}
	if err := o.configure(cmd); err != nil {
		return &cli.UsageError{Err: err}
	}
	files, err := readFiles(cmd, o.files)
	if err != nil {
		return &cli.UsageError{Err: err}
	}
	options := o.options()
	if o.resolver != nil {
		options.Pod = func(pod *corev1.Pod, ns inject.Namespace, io inject.Options) (inject.Result, error) {
			return inject.Resolving(pod, ns, io, func(images []string) map[string]imagecmd.Command {
				return o.resolver.Commands(cmd.Context(), images)
			})
		}
	}
	r, err := injectAll(cmd, files, options)
	if err != nil {
		return err
	}
	return o.write(cmd, r)
}

// configure checks the flags, and reads the values and the mesh's configuration.
func (o *injectOptions) configure(cmd *cobra.Command) error {
	for _, name := range slices.Sorted(maps.Keys(withoutEffect)) {
		if cmd.Flags().Changed(name) {
			cli.Note(cmd, "--%s has no effect: %s", name, withoutEffect[name])
		}
	}
	if err := o.read(cmd, o.kube); err != nil {
		return err
	}
	var err error
	o.resolver, err = o.images.Resolver(http.ProxyFromEnvironment)
	return err
}
