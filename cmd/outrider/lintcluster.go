package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"outrider.dev/internal/cli"
	"outrider.dev/internal/lint"
)

// lintedKinds are what lint looks at, in kubectl's words.
const lintedKinds = "pods,deployments,statefulsets,daemonsets,replicasets,jobs,cronjobs,services"

// A kubectl reads a cluster for us: it knows the user's contexts, credentials and their
// plugins, and the user may do by us what the user may do by it, and no more.
type kubectl struct{ context string }

// clusterFiles are a namespace's objects, each as a manifest of its own, and the namespace
// itself, whose labels say who is injected. What a controller made is left out: its
// template is there.
func (o *lintOptions) clusterFiles(ctx context.Context) (files []lint.File, note string, err error) {
	k := kubectl{o.context}
	objects, err := k.get(ctx, "namespace", o.namespace)
	switch {
	case errors.Is(err, errForbidden):
		note = fmt.Sprintf("the labels of namespace %s may not be read, so only pods count as injected whose own labels ask for it; --injected supposes all", o.namespace)
	case err != nil:
		return nil, "", err
	}
	more, err := k.get(ctx, lintedKinds, "--namespace="+o.namespace)
	if errors.Is(err, errForbidden) {
		err = &cli.UsageError{Err: err, Hint: "ask for a role that may list them, or give files: outrider lint -f FILE"}
	}
	if err != nil {
		return nil, "", err
	}
	for _, u := range append(objects, more...) {
		if owner := metav1.GetControllerOf(&u); owner != nil && isLinted(owner.Kind) {
			continue
		}
		asManifest(&u)
		text, err := yaml.Marshal(u.Object)
		if err != nil {
			return nil, "", err
		}
		files = append(files, lint.File{Name: strings.ToLower(u.GetKind()) + "/" + u.GetName(), Data: text})
	}
	return files, note, nil
}

// isLinted says whether objects of a kind are read, and so their templates.
func isLinted(kind string) bool {
	return strings.Contains(","+lintedKinds+",", ","+strings.ToLower(kind)+"s,")
}

// asManifest takes away what the API server adds.
func asManifest(u *unstructured.Unstructured) {
	unstructured.RemoveNestedField(u.Object, "status")
	for _, field := range []string{"creationTimestamp", "generation", "managedFields", "resourceVersion", "selfLink", "uid"} {
		unstructured.RemoveNestedField(u.Object, "metadata", field)
	}
}

var errForbidden = errors.New("forbidden")

// get returns what "kubectl get" finds.
func (k kubectl) get(ctx context.Context, args ...string) ([]unstructured.Unstructured, error) {
	args = append([]string{"get", "--output=json", "--request-timeout=30s"}, args...)
	if k.context != "" {
		args = append(args, "--context="+k.context)
	}
	var stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, "kubectl", args...)
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	switch {
	case errors.Is(err, exec.ErrNotFound):
		return nil, &cli.UsageError{Err: errors.New("kubectl is not in the PATH, and a namespace is read by it"),
			Hint: "install it, or give files: outrider lint -f FILE"}
	case err != nil && strings.Contains(stderr.String(), "(Forbidden)"):
		return nil, fmt.Errorf("%w: %s", errForbidden, lastLine(stderr.String()))
	case err != nil:
		return nil, &cli.UsageError{Err: fmt.Errorf("kubectl %s: %s", strings.Join(args, " "), cmp.Or(lastLine(stderr.String()), err.Error()))}
	}
	u := unstructured.Unstructured{}
	if err := u.UnmarshalJSON(out); err != nil {
		return nil, fmt.Errorf("what kubectl %s printed: %w", strings.Join(args, " "), err)
	}
	if !u.IsList() {
		return []unstructured.Unstructured{u}, nil
	}
	list, err := u.ToList()
	if err != nil {
		return nil, fmt.Errorf("what kubectl %s printed: %w", strings.Join(args, " "), err)
	}
	return list.Items, nil
}

// lastLine is what a program says in the end, without what its library logged before.
func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return lines[len(lines)-1]
}
