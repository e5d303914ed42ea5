package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"outrider.dev/internal/base/cli"
	"outrider.dev/internal/core/pod/offline"
	"outrider.dev/internal/core/pod/podfile"
	"outrider.dev/internal/doctor/scenario"
	"outrider.dev/startup"
)

// An input has the common flags of all commands that read pods from manifests.
type input struct {
	files  []string
	output string
	kube   cli.KubeVersion
}

// flags adds --filename, --output and --kube.
func (in *input) flags(cmd *cobra.Command, outputs []string) {
	in.kube = 34
	fs := cmd.Flags()
	fs.StringArrayVarP(&in.files, "filename", "f", nil, cli.Manifest)
	cli.CompleteFiles(cmd, "filename", "yaml", "yml", "json")
	cli.Choice(cmd, &in.output, "output", "o", "how to print", outputs...)
	fs.Var(&in.kube, "kube", "Kubernetes version of the nodes")
}

// A podInput has the flags of a command that reads pods and can inject them first.
type podInput struct {
	input
	injected
}

func (in *podInput) flags(cmd *cobra.Command, outputs []string) {
	in.input.flags(cmd, outputs)
	in.injected.flags(cmd)
}

var errNothing = &cli.UsageError{Err: errors.New("nothing to read"), Hint: "give -f FILE, or -f - for standard input"}

// objects reads the pods, and the objects with a pod template, of all files.
func (in *podInput) objects(cmd *cobra.Command) ([]podfile.Object, error) {
	if len(in.files) == 0 {
		return nil, errNothing
	}
	files, err := readFiles(cmd, in.files)
	if err != nil {
		return nil, &cli.UsageError{Err: err}
	}
	if files, err = in.apply(cmd, files, in.kube); err != nil {
		return nil, err
	}
	var out []podfile.Object
	for _, f := range files {
		objects, err := parse(cmd, f.Name, f.Data)
		if err != nil {
			return nil, &cli.UsageError{Err: err}
		}
		out = append(out, objects...)
	}
	return out, nil
}

func readFiles(cmd *cobra.Command, names []string) (out []offline.File, err error) {
	err = cli.ReadAll(cmd, names, func(name string, data []byte) error {
		out = append(out, offline.File{Name: name, Data: data})
		return nil
	})
	return out, err
}

// subjects reads the pods of all files in the form in which they will run.
func (in *podInput) subjects(cmd *cobra.Command) ([]scenario.Subject, error) {
	objects, err := in.objects(cmd)
	if err != nil {
		return nil, err
	}
	return ofEach(objects, func(o podfile.Object) (scenario.Subject, error) {
		return scenario.NewSubject(o, startup.Kubernetes(in.kube))
	})
}

// ofEach applies a function to each object. If it fails for some of them, ofEach returns all these errors.
func ofEach[T any](objects []podfile.Object, of func(podfile.Object) (T, error)) ([]T, error) {
	var out []T
	var errs []error
	for _, o := range objects {
		one, err := of(o)
		out, errs = append(out, one), append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, &cli.UsageError{Err: err}
	}
	return out, nil
}

// parse returns the pods, and the objects with a pod template, of a file.
func parse(cmd *cobra.Command, name string, data []byte) ([]podfile.Object, error) {
	objects, others, err := podfile.Parse(name, data)
	if err != nil {
		return nil, err
	}
	if len(objects) == 0 {
		found := ""
		if len(others) > 0 {
			found = ": found " + strings.Join(others, ", ")
		}
		return nil, fmt.Errorf("%s has no pod and no pod template%s", name, found)
	}
	for _, object := range objects {
		for _, field := range object.Unknown {
			cli.Note(cmd, "%s: %s: %s is an unknown field; it is ignored", name, object, field)
		}
	}
	return objects, nil
}
