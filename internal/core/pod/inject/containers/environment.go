package containers

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// An Environment is the list of a container's environment variables.
type Environment struct{ List []corev1.EnvVar }

// Set adds a variable, unless the value is empty.
func (e *Environment) Set(name, value string) {
	if value != "" {
		e.List = append(e.List, corev1.EnvVar{Name: name, Value: value})
	}
}

// Replace sets a variable. If the list has it, the position does not change.
func (e *Environment) Replace(name, value string) {
	if i := slices.IndexFunc(e.List, func(v corev1.EnvVar) bool { return v.Name == name }); i >= 0 {
		e.List[i] = corev1.EnvVar{Name: name, Value: value}
		return
	}
	e.List = append(e.List, corev1.EnvVar{Name: name, Value: value})
}

// Field adds a variable whose value is a field of the pod.
func (e *Environment) Field(name, path string) {
	e.List = append(e.List, corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{
		FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: path}}})
}

var one = resource.MustParse("1")

// Limit adds a variable whose value is a resource limit of the container, in whole units.
func (e *Environment) Limit(name, of string) {
	e.List = append(e.List, corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{
		ResourceFieldRef: &corev1.ResourceFieldSelector{Resource: of, Divisor: one}}})
}
