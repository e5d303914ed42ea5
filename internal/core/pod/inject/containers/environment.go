package containers

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// An Environment is a list of variables of a container.
type Environment struct{ List []corev1.EnvVar }

// Set adds a variable, unless it is empty.
func (e *Environment) Set(name, value string) {
	if value != "" {
		e.List = append(e.List, corev1.EnvVar{Name: name, Value: value})
	}
}

// Replace sets a variable, and keeps its position if it is there already.
func (e *Environment) Replace(name, value string) {
	if i := slices.IndexFunc(e.List, func(v corev1.EnvVar) bool { return v.Name == name }); i >= 0 {
		e.List[i] = corev1.EnvVar{Name: name, Value: value}
		return
	}
	e.List = append(e.List, corev1.EnvVar{Name: name, Value: value})
}

// Field adds a variable with a field of the pod.
func (e *Environment) Field(name, path string) {
	e.List = append(e.List, corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{
		FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: path}}})
}

var one = resource.MustParse("1")

// Limit adds a variable with a limit of the container.
func (e *Environment) Limit(name, of string) {
	e.List = append(e.List, corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{
		ResourceFieldRef: &corev1.ResourceFieldSelector{Resource: of, Divisor: one}}})
}
