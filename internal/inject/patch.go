package inject

import (
	"reflect"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// An Operation is one step of a JSON patch (RFC 6902).
type Operation struct {
	Op    string `json:"op"` // add, remove or replace
	Path  string `json:"path"`
	Value any    `json:"value,omitempty"`
}

// Patch is what changes the pod that was given into the injected one. It is empty if
// nothing was changed.
func (r Result) Patch() ([]Operation, error) {
	if !r.Injected {
		return nil, nil
	}
	return Diff(r.given, r.Pod)
}

// Diff is a patch that makes after from before. Elements of lists are told by their
// names, so that a container that stays is not written anew.
func Diff(before, after *corev1.Pod) ([]Operation, error) {
	old, err := runtime.DefaultUnstructuredConverter.ToUnstructured(before)
	if err != nil {
		return nil, err
	}
	new, err := runtime.DefaultUnstructuredConverter.ToUnstructured(after)
	if err != nil {
		return nil, err
	}
	d := differ{}
	d.maps("", old, new)
	return d.ops, nil
}

type differ struct{ ops []Operation }

func (d *differ) add(op, path string, value any) {
	d.ops = append(d.ops, Operation{op, path, value})
}

func (d *differ) maps(path string, old, new map[string]any) {
	for _, key := range sortedKeys(old) {
		if _, stays := new[key]; !stays {
			d.add("remove", path+"/"+escape(key), nil)
		}
	}
	for _, key := range sortedKeys(new) {
		before, there := old[key]
		if !there {
			d.add("add", path+"/"+escape(key), new[key])
			continue
		}
		d.values(path+"/"+escape(key), before, new[key])
	}
}

func (d *differ) values(path string, old, new any) {
	switch new := new.(type) {
	case map[string]any:
		if old, ok := old.(map[string]any); ok {
			d.maps(path, old, new)
			return
		}
	case []any:
		if old, ok := old.([]any); ok && identified(old) && identified(new) {
			d.lists(path, old, new)
			return
		}
	}
	if !reflect.DeepEqual(old, new) {
		d.add("replace", path, new)
	}
}

// identities are the fields that tell elements of a pod's lists apart, in this order.
var identities = []string{"name", "mountPath", "containerPort"}

func identified(list []any) bool {
	return len(list) > 0 && !slices.ContainsFunc(list, func(v any) bool { return identity(v) == nil })
}

func identity(v any) any {
	m, ok := v.(map[string]any)
	if !ok {
		return nil
	}
	if p, ok := m["mountPath"]; ok {
		return p
	}
	for _, field := range identities {
		if id, ok := m[field]; ok {
			return id
		}
	}
	return nil
}

// lists takes out what goes or moves, from the end, then puts in what is new, from the
// beginning, so that each index is right at its time.
func (d *differ) lists(path string, old, new []any) {
	stays := common(old, new)
	for i := len(old) - 1; i >= 0; i-- {
		if stays[i] < 0 {
			d.add("remove", path+"/"+strconv.Itoa(i), nil)
		}
	}
	at := map[int]int{} // index in new -> in old
	for i, j := range stays {
		if j >= 0 {
			at[j] = i
		}
	}
	for j := range new {
		i, ok := at[j]
		here := path + "/" + strconv.Itoa(j)
		if !ok {
			d.add("add", here, new[j])
			continue
		}
		d.values(here, old[i], new[j])
	}
}

// common is, for each element of old, its place in new, or -1; those that stay keep
// their order (the longest such choice).
func common(old, new []any) []int {
	n, m := len(old), len(new)
	table := make([][]int, n+1)
	for i := range table {
		table[i] = make([]int, m+1)
	}
	for i := n - 1; i >= 0; i-- {
		for j := m - 1; j >= 0; j-- {
			if identity(old[i]) == identity(new[j]) {
				table[i][j] = table[i+1][j+1] + 1
			} else {
				table[i][j] = max(table[i+1][j], table[i][j+1])
			}
		}
	}
	out := make([]int, n)
	for i, j := 0, 0; i < n; i++ {
		out[i] = -1
		for jj := j; jj < m; jj++ {
			if identity(old[i]) == identity(new[jj]) && table[i][j] == table[i+1][jj+1]+1 {
				out[i], j = jj, jj+1
				break
			}
		}
	}
	return out
}

func escape(key string) string { return escaper.Replace(key) }

var escaper = strings.NewReplacer("~", "~0", "/", "~1")
