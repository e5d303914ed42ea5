package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"outrider.dev/internal/base/cli"
	"outrider.dev/internal/core/pod/inject"
	"outrider.dev/internal/core/pod/inject/settings"
	"outrider.dev/internal/core/pod/offline"
	"outrider.dev/startup"
)

// meshOptions has the flags of commands that inject pods: settings of the mesh and of the namespace.
type meshOptions struct {
	settings  offline.Settings
	namespace string
	labels    map[string]string
	inject    inject.Options
}

func (o *meshOptions) flags(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.StringArrayVar(&o.settings.Values, "values", nil, "file with the values of Istio's charts; may be repeated")
	fs.StringArrayVar(&o.settings.Set, "set", nil, "one value in Helm's form, like global.proxy.logLevel=info; may be repeated")
	fs.StringVar(&o.settings.Mesh, "mesh-config", "", "file with the mesh configuration, in Istio's format")
	fs.StringVarP(&o.namespace, "namespace", "n", "default", "namespace of objects that do not name one")
	fs.StringToStringVar(&o.labels, "namespace-labels", nil, "labels of that namespace, as NAME=VALUE,NAME=VALUE")
	cli.CompleteFiles(cmd, "values", "yaml", "yml", "json")
	cli.CompleteFiles(cmd, "mesh-config", "yaml", "yml", "json")
}

// read checks the flags, and reads the values and the mesh's configuration.
func (o *meshOptions) read(cmd *cobra.Command, kube cli.KubeVersion) error {
	if err := settings.NamespaceName(o.namespace); err != nil {
		return fmt.Errorf("--namespace: %w", err)
	}
	if err := o.inject.Check(); err != nil {
		return err
	}
	notes, err := o.settings.Read(&o.inject)
	if err != nil {
		return err
	}
	for _, n := range notes {
		cli.Note(cmd, "%s", n)
	}
	o.inject.Manual, o.inject.Kubernetes = true, startup.Kubernetes(kube)
	return nil
}

func (o *meshOptions) options() offline.Options {
	return offline.Options{Inject: o.inject, Namespace: o.namespace, Labels: o.labels}
}

// injectAll injects the pods of all files and prints the messages about them. It returns an error if a pod
// is refused.
func injectAll(cmd *cobra.Command, files []offline.File, o offline.Options) (offline.Result, error) {
	r, err := offline.Inject(files, o, func(m offline.Message) { fmt.Fprintf(cmd.ErrOrStderr(), "outrider: %s\n", m) })
	switch {
	case err != nil:
		return r, &cli.UsageError{Err: err}
	case r.Refused == 1:
		return r, errors.New("a pod cannot be injected as it is configured; nothing is printed")
	case r.Refused > 1:
		return r, fmt.Errorf("%d pods cannot be injected as they are configured; nothing is printed", r.Refused)
	}
	return r, nil
}

// An injected has the flag --injected of commands that read pods, and the settings for that injection.
type injected struct {
	meshOptions
	on bool
}

func (o *injected) flags(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&o.on, "injected", false, "inject the pods first, as 'outrider inject' does, with the settings below")
	o.meshOptions.flags(cmd)
}

// settingsOfInjection lists the flags that have no effect without --injected.
var settingsOfInjection = []string{"values", "set", "mesh-config", "namespace", "namespace-labels"}

// apply returns the files. If --injected is set, their pods are injected.
func (o *injected) apply(cmd *cobra.Command, files []offline.File, kube cli.KubeVersion) ([]offline.File, error) {
	if !o.on {
		for _, name := range settingsOfInjection {
			if cmd.Flags().Changed(name) {
				return nil, &cli.UsageError{Err: fmt.Errorf("--%s is a setting of the injection, and the pods are not injected", name), Hint: "add --injected"}
			}
		}
		return files, nil
	}
	if err := o.read(cmd, kube); err != nil {
		return nil, &cli.UsageError{Err: err}
	}
	r, err := injectAll(cmd, files, o.options())
	return r.Files, err
}
