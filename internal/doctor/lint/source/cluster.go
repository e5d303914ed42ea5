package source

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"outrider.dev/internal/core/mesh"
	"outrider.dev/internal/core/mesh/foreign"
	"outrider.dev/internal/doctor/lint"
)

// kinds lists the namespaced resources that lint reads, as an argument of kubectl get.
const kinds = "pods,deployments,statefulsets,daemonsets,replicasets,jobs,cronjobs,services"

// An AccessError means that a namespace cannot be read. Help is advice for the user, and may be empty.
type AccessError struct {
	Err  error
	Help string
}

func (e *AccessError) Error() string { return e.Err.Error() }

func (e *AccessError) Unwrap() error { return e.Err }

// Hint returns the text that a command prints after the error.
func (e *AccessError) Hint() string { return e.Help }

// Namespace returns the objects of a namespace, each as a separate manifest, and the Namespace
// itself, because its labels decide about injection. It leaves out objects that a controller has
// created, because their template in the controller is read. The note names objects that could not be
// read.
//
// It runs kubectl with the given flags, which choose the cluster and the user. So it uses the user's
// contexts, credentials and permissions.
func Namespace(ctx context.Context, flags []string, namespace string) (files []lint.File, note string, err error) {
	objects, err := get(ctx, flags, "namespace", namespace)
	switch {
	case errors.Is(err, errForbidden):
		note = fmt.Sprintf("the labels of namespace %s may not be read, so only pods with labels of their own count as injected; --injected assumes all", namespace)
	case err != nil:
		return nil, "", err
	}
	more, err := get(ctx, flags, kinds, "--namespace="+namespace)
	if errors.Is(err, errForbidden) {
		err = &AccessError{err, "ask for a role that may list them, or give files: outrider lint -f FILE"}
	}
	if err != nil {
		return nil, "", err
	}
	ignored, err := ignoredObjects(ctx, flags, namespace)
	if err != nil {
		note = strings.TrimPrefix(note+"; some objects of other meshes are not looked at: "+strings.ReplaceAll(err.Error(), "\n", "; "), "; ")
	}
	for _, u := range slices.Concat(objects, more, ignored) {
		if owner := metav1.GetControllerOf(&u); owner != nil && isRead(owner.Kind) {
			continue
		}
		removeServerFields(&u)
		text, err := yaml.Marshal(u.Object)
		if err != nil {
			return nil, "", err
		}
		files = append(files, lint.File{Name: strings.ToLower(u.GetKind()) + "/" + u.GetName(), Data: text})
	}
	return files, note, nil
}

// ignoredObjects returns the objects that lint reports because Outrider does not support their kinds. It reads the
// namespace, and the root namespaces, whose objects apply to the whole mesh.
func ignoredObjects(ctx context.Context, flags []string, namespace string) ([]unstructured.Unstructured, error) {
	names, err := kubectl(ctx, flags, "api-resources", "--output=name", "--namespaced", "--request-timeout=30s")
	if err != nil {
		return nil, err
	}
	reported := foreign.Resources()
	there := slices.DeleteFunc(strings.Fields(string(names)), func(name string) bool { return reported[name] == "" })
	if len(there) == 0 {
		return nil, nil
	}
	var out []unstructured.Unstructured
	var failed error
	for _, n := range append(slices.DeleteFunc(mesh.RootNamespaces(), func(n string) bool { return n == namespace }), namespace) {
		list, err := get(ctx, flags, strings.Join(there, ","), "--namespace="+n)
		out, failed = append(out, list...), errors.Join(failed, err)
	}
	return out, failed
}

// isRead reports whether [Namespace] reads the objects of a kind, and so their pod templates.
func isRead(kind string) bool {
	return strings.Contains(","+kinds+",", ","+strings.ToLower(kind)+"s,")
}

// removeServerFields removes the fields that the API server adds to a manifest.
func removeServerFields(u *unstructured.Unstructured) {
	unstructured.RemoveNestedField(u.Object, "status")
	for _, field := range []string{"creationTimestamp", "generation", "managedFields", "resourceVersion", "selfLink", "uid"} {
		unstructured.RemoveNestedField(u.Object, "metadata", field)
	}
}

var errForbidden = errors.New("forbidden")

// get returns the objects that "kubectl get" prints.
func get(ctx context.Context, flags []string, args ...string) ([]unstructured.Unstructured, error) {
	args = append([]string{"get", "--output=json", "--request-timeout=30s"}, args...)
	out, err := kubectl(ctx, flags, args...)
	if err != nil {
		return nil, err
	}
	u := unstructured.Unstructured{}
	if err := u.UnmarshalJSON(out); err != nil {
		return nil, fmt.Errorf("output of kubectl %s: %w", strings.Join(args, " "), err)
	}
	if !u.IsList() {
		return []unstructured.Unstructured{u}, nil
	}
	list, err := u.ToList()
	if err != nil {
		return nil, fmt.Errorf("output of kubectl %s: %w", strings.Join(args, " "), err)
	}
	return list.Items, nil
}

// kubectl runs kubectl and returns its output.
func kubectl(ctx context.Context, flags []string, args ...string) ([]byte, error) {
	args = slices.Concat(args, flags)
	var stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, "kubectl", args...)
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	switch {
	case errors.Is(err, exec.ErrNotFound):
		return nil, &AccessError{errors.New("kubectl is not in the PATH, and reading a namespace needs it"), "install it, or give files: outrider lint -f FILE"}
	case err != nil && strings.Contains(stderr.String(), "(Forbidden)"):
		return nil, fmt.Errorf("%w: %s", errForbidden, lastLine(stderr.String()))
	case err != nil:
		return nil, &AccessError{Err: fmt.Errorf("kubectl %s: %s", strings.Join(args, " "), cmp.Or(lastLine(stderr.String()), err.Error()))}
	}
	return out, nil
}

// lastLine returns the last line of kubectl's standard error, which is the error; client-go logs lines before it.
func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return lines[len(lines)-1]
}
