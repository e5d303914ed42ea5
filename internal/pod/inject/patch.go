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
	Op    string `json:"op"`             // add, remove or move
	From  string `json:"from,omitempty"` // of a move
	Path  string `json:"path"`
	Value any    `json:"value,omitempty"`
}

// Patch returns the operations that make the injected pod of the given one. There are none
// if nothing was changed.
func (r Result) Patch() ([]Operation, error) {
	if r.Pod == r.given {
		return nil, nil
	}
	return Diff(r.given, r.Pod)
}

// Diff returns a patch that makes after of before. Containers, volumes and other elements of
// lists are identified by their names: one that stays is patched inside, and one that changes
// its place is moved, so that fields of a newer Kubernetes, which are not in our types, stay.
// Libraries that compare lists by position would write such an element anew, without them.
func Diff(before, after *corev1.Pod) ([]Operation, error) {
	old, err := runtime.DefaultUnstructuredConverter.ToUnstructured(before)
	if err != nil {
		return nil, err
	}
	new, err := runtime.DefaultUnstructuredConverter.ToUnstructured(after)
	if err != nil {
		return nil, err
	}
	var p patch
	p.moveContainers(old["spec"].(map[string]any), new["spec"].(map[string]any))
	p.object("", old, new)
	return p, nil
}

type patch []Operation

func (p *patch) add(path string, value any) {
	*p = append(*p, Operation{Op: "add", Path: path, Value: value})
}

func (p *patch) remove(path string) { *p = append(*p, Operation{Op: "remove", Path: path}) }

func (p *patch) move(from, path string) {
	*p = append(*p, Operation{Op: "move", From: from, Path: path})
}

var escaper = strings.NewReplacer("~", "~0", "/", "~1")

func at(list string, i int) string { return list + "/" + strconv.Itoa(i) }

// object compares two objects. An add also replaces a field.
func (p *patch) object(path string, old, new map[string]any) {
	for _, key := range sortedKeys(old) {
		if _, stays := new[key]; !stays {
			p.remove(path + "/" + escaper.Replace(key))
		}
	}
	for _, key := range sortedKeys(new) {
		field, was, is := path+"/"+escaper.Replace(key), old[key], new[key]
		oldObject, wasObject := was.(map[string]any)
		newObject, isObject := is.(map[string]any)
		oldList, _ := was.([]any)
		newList, _ := is.([]any)
		switch id := identity(oldList, newList); {
		// Empty resources may be missing in the API server's object.
		case wasObject && isObject && (len(oldObject) > 0 || key != "resources"):
			p.object(field, oldObject, newObject)
		case id != "":
			p.list(field, id, oldList, newList)
		case !reflect.DeepEqual(was, is):
			p.add(field, is)
		}
	}
}

// identity returns the field by which the elements of two lists are identified: the first
// that all have (patchMergeKey of k8s.io/api/core/v1); empty if there is none.
func identity(old, new []any) string {
	for _, key := range []string{"mountPath", "containerPort", "name"} {
		without := func(e any) bool {
			fields, _ := e.(map[string]any)
			return fields[key] == nil
		}
		if len(old) > 0 && len(new) > 0 && !slices.ContainsFunc(old, without) && !slices.ContainsFunc(new, without) {
			return key
		}
	}
	return ""
}

func with(id string, like any) func(any) bool {
	return func(e any) bool { return e.(map[string]any)[id] == like.(map[string]any)[id] }
}

// list first removes elements, from the end, then puts each one into its place, from the
// beginning, so that each index is right at its time.
func (p *patch) list(path, id string, old, new []any) {
	now, stay := slices.Clone(old), map[any]bool{}
	for _, e := range new {
		stay[e.(map[string]any)[id]] = true
	}
	for i := len(now) - 1; i >= 0; i-- {
		if !stay[now[i].(map[string]any)[id]] {
			p.remove(at(path, i))
			now = slices.Delete(now, i, i+1)
		}
	}
	for j, want := range new {
		i := slices.IndexFunc(now[min(j, len(now)):], with(id, want))
		if i < 0 {
			p.add(at(path, j), want)
			now = slices.Insert(now, j, want)
			continue
		}
		if i > 0 {
			p.move(at(path, i+j), at(path, j))
			e := now[i+j]
			now = slices.Insert(slices.Delete(now, i+j, i+j+1), j, e)
		}
		p.object(at(path, j), now[j].(map[string]any), want.(map[string]any))
	}
	for i := len(now) - 1; i >= len(new); i-- { // a second element of a name
		p.remove(at(path, i))
	}
}

// moveContainers moves containers between the two lists of a spec. It changes old.
func (p *patch) moveContainers(old, new map[string]any) {
	lists := []string{"initContainers", "containers"}
	for i, from := range lists {
		to := lists[1-i]
		stay, _ := new[from].([]any)
		come, _ := new[to].([]any)
		here, _ := old[from].([]any)
		for j := len(here) - 1; j >= 0; j-- {
			c := here[j]
			if slices.ContainsFunc(stay, with("name", c)) || !slices.ContainsFunc(come, with("name", c)) {
				continue
			}
			there, _ := old[to].([]any)
			if len(there) == 0 {
				p.add("/spec/"+to, []any{})
			}
			p.move(at("/spec/"+from, j), "/spec/"+to+"/0")
			old[to], here = slices.Insert(there, 0, c), slices.Delete(here, j, j+1)
		}
		if old[from] != nil {
			old[from] = here
		}
	}
}
