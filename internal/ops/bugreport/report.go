// Package bugreport writes an archive with the facts that a maintainer needs to find out why a mesh does not
// work: versions, checks, logs, the configuration that the control plane serves, and the Kubernetes objects
// of the control plane and of pods with a proxy.
//
// It changes nothing. The only Secret that it reads is the record of the Helm release, and it masks
// secrets in texts and objects ([mask.Masker]). Each read has its own limits of time and size; a failed
// read becomes a line in errors.txt. docs/troubleshooting.md describes the layout (archive.go), which
// tools may read.
package bugreport

import (
	"context"
	"encoding/json"
	"io"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/version"
	"sigs.k8s.io/yaml"

	"outrider.dev/internal/base/mask"
	"outrider.dev/internal/ops/kubeclient"
	"outrider.dev/internal/ops/replicas"
)

// Options of a report. A limit of zero means the default.
type Options struct {
	*kubeclient.Client
	ControlPlane string // namespace of the control plane
	Namespace    string // namespace of the pods with a proxy; empty: all namespaces
	Version      string // version of this command

	Checks func(context.Context) (any, error)            // the results as outrider check -o json prints them
	Values func(context.Context) (map[string]any, error) // values of the release; nil if there is no release

	Pods    int           // maximum number of pods with a proxy; default 20
	Timeout time.Duration // limit of all reads together; default 5m
	Log     int           // maximum bytes of one log; default 1 MiB
	Size    int           // maximum bytes of all files; default 128 MiB

	logs func(ctx context.Context, namespace, pod string, o *corev1.PodLogOptions) (io.ReadCloser, error)
	get  func(ctx context.Context, pod, path string) ([]byte, error) // requests a page of a replica
	now  time.Time
}

const (
	defaultPods    = 20
	defaultTimeout = 5 * time.Minute
	defaultLog     = 1 << 20
	defaultSize    = 128 << 20
	readTimeout    = 20 * time.Second // limit of one read
	maxEvents      = 1000             // events of a namespace
	maxAnswer      = 16 << 20         // bytes of one response of a replica; a longer one is truncated
)

// A report is the state while a report is being written.
type report struct {
	Options
	*archive
	ctx  context.Context // ends after Options.Timeout; the report is then completed with what was read
	mask *mask.Masker
	set  *replicas.Set
}

// Write writes a report. It fails only if w fails or ctx ends.
func Write(ctx context.Context, w io.Writer, o Options) error {
	o = o.defaults()
	reading, cancel := context.WithTimeout(ctx, o.Timeout)
	defer cancel()
	r := &report{Options: o, archive: newArchive(w, o.Version, o.now, o.Size), ctx: reading, mask: &mask.Masker{}, set: replicas.In(o.Client, o.ControlPlane)}
	defer r.set.Close()
	for _, part := range []struct {
		what string
		read func() error
	}{
		{"versions and checks", r.versions}, {"the release", r.release}, {"the cluster", r.cluster},
		{"the control plane", r.controlPlane}, {"pods with a proxy", r.pods},
	} {
		r.Progress.Wait("reading %s", part.what)
		if err := part.read(); err != nil {
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
	return r.archive.close()
}

func (o Options) defaults() Options {
	set := func(field *int, usual int) {
		if *field == 0 {
			*field = usual
		}
	}
	set(&o.Pods, defaultPods)
	set(&o.Log, defaultLog)
	set(&o.Size, defaultSize)
	if o.Timeout == 0 {
		o.Timeout = defaultTimeout
	}
	if o.now.IsZero() {
		o.now = time.Now()
	}
	if o.logs == nil {
		o.logs = func(ctx context.Context, namespace, pod string, lo *corev1.PodLogOptions) (io.ReadCloser, error) {
			return o.Core.CoreV1().Pods(namespace).GetLogs(pod, lo).Stream(ctx)
		}
	}
	return o
}

// read makes one read with its own timeout. If it fails, read records the error in errors.txt and returns false.
func read[T any](r *report, what string, from func(context.Context) (T, error)) (out T, ok bool) {
	ctx, cancel := context.WithTimeout(r.ctx, readTimeout)
	defer cancel()
	out, err := from(ctx)
	if err != nil {
		r.fail(what, err)
		return out, false
	}
	return out, true
}

// bounded calls a function that takes no context, and returns its result. If ctx ends before, bounded returns
// the error of ctx, and the function continues to run without effect.
func bounded[T any](ctx context.Context, what func() (T, error)) (T, error) {
	type answer struct {
		value T
		err   error
	}
	done := make(chan answer, 1)
	go func() {
		value, err := what()
		done <- answer{value, err}
	}()
	select {
	case a := <-done:
		return a.value, a.err
	case <-ctx.Done():
		var none T
		return none, ctx.Err()
	}
}

// json adds a file with a value in JSON.
func (r *report) json(f File, v any) error {
	v, err := r.plain(v)
	if err != nil {
		return err
	}
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	return r.add(f, append(text, '\n'))
}

// yaml adds a file with a value in YAML.
func (r *report) yaml(f File, v any) error {
	v, err := r.plain(v)
	if err != nil {
		return err
	}
	text, err := yaml.Marshal(v)
	if err != nil {
		return err
	}
	return r.add(f, text)
}

// plain converts a value to maps, slices and scalars as in JSON, and masks the secrets in it.
func (r *report) plain(v any) (any, error) {
	text, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	var out any
	if err := json.Unmarshal(text, &out); err != nil {
		return nil, err
	}
	return r.mask.Value(out), nil
}

func (r *report) versions() error {
	kubernetes, ok := read(r, "the version of Kubernetes", func(ctx context.Context) (*version.Info, error) {
		return bounded(ctx, r.Core.Discovery().ServerVersion)
	})
	all := map[string]any{"client": r.Version}
	if ok {
		all["kubernetes"] = kubernetes
	}
	if err := r.json(File{Path: "version.json", Kind: Version}, all); err != nil {
		return err
	}
	// This step needs no timeout, because each check has its own.
	if checks, err := r.Checks(r.ctx); err != nil {
		r.fail("checks", err)
	} else if err := r.json(File{Path: "check.json", Kind: Check}, checks); err != nil {
		return err
	}
	return nil
}

func (r *report) release() error {
	values, ok := read(r, "the release's values", func(ctx context.Context) (map[string]any, error) {
		return bounded(ctx, func() (map[string]any, error) { return r.Values(ctx) })
	})
	if !ok {
		return nil
	}
	if values == nil {
		r.leaveOut("values.yaml: namespace %s has no release of Helm", r.ControlPlane)
		return nil
	}
	return r.yaml(File{Path: "control-plane/values.yaml", Kind: Values, Namespace: r.ControlPlane}, values)
}

// tail returns the last lines of a text, up to a number of bytes, and whether it left any out.
func tail(text []byte, most int) (out []byte, cut bool) {
	if len(text) <= most {
		return text, false
	}
	text = text[len(text)-most:]
	for i, b := range text {
		if b == '\n' {
			return text[i+1:], true
		}
	}
	return text, true
}
