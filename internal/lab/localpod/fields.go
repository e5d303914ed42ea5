package localpod

import (
	"fmt"
	"maps"
	"math"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// facts are the options and addresses of a pod, from which the specs of its containers are computed.
type facts struct {
	*Options
	node  string
	host  []netip.Addr
	addrs []netip.Addr
}

func (f facts) hostname() string {
	if h := f.Pod.Spec.Hostname; h != "" {
		return h
	}
	return f.Pod.Name[:min(len(f.Pod.Name), 63)]
}

// field returns the value of a field of the pod, whose path is given as in a fieldRef.
func (f facts) field(at, path string) (string, error) {
	if key, ok := inBrackets(path, "metadata.annotations"); ok {
		return f.Pod.Annotations[key], nil
	}
	if key, ok := inBrackets(path, "metadata.labels"); ok {
		return f.Pod.Labels[key], nil
	}
	fields := map[string]string{
		"metadata.name":           f.Pod.Name,
		"metadata.namespace":      f.Pod.Namespace,
		"metadata.uid":            string(f.Pod.UID),
		"metadata.annotations":    quoted(f.Pod.Annotations),
		"metadata.labels":         quoted(f.Pod.Labels),
		"spec.nodeName":           f.node,
		"spec.serviceAccountName": f.Pod.Spec.ServiceAccountName,
		"status.hostIP":           list(f.host[:1]),
		"status.hostIPs":          list(f.host),
		"status.podIP":            list(f.addrs[:1]),
		"status.podIPs":           list(f.addrs),
	}
	value, ok := fields[path]
	if !ok {
		return "", refuse(at, "%q is not a field that a container can be given", path).but("those are %s, and metadata.labels['KEY']", known(fields))
	}
	return value, nil
}

func inBrackets(path, of string) (string, bool) {
	rest, ok := strings.CutPrefix(path, of+"['")
	key, closed := strings.CutSuffix(rest, "']")
	return key, ok && closed
}

// quoted formats a map as the downward API does.
func quoted(m map[string]string) string {
	var lines []string
	for _, k := range slices.Sorted(maps.Keys(m)) {
		lines = append(lines, fmt.Sprintf("%s=%q", k, m[k]))
	}
	return strings.Join(lines, "\n")
}

func list(addrs []netip.Addr) string {
	var out []string
	for _, a := range addrs {
		out = append(out, a.String())
	}
	return strings.Join(out, ",")
}

// resource returns a container's limit or request in units of the divisor, rounded up. A limit that is not set is
// the capacity of this machine.
func (f facts) resource(at string, c carrier, ref *corev1.ResourceFieldSelector) (string, error) {
	if ref.ContainerName != "" && ref.ContainerName != c.Name {
		found := slices.IndexFunc(containersOf(&f.Pod), func(o carrier) bool { return o.Name == ref.ContainerName })
		if found < 0 {
			return "", refuse(at+".containerName", "no container %q", ref.ContainerName)
		}
		c = containersOf(&f.Pod)[found]
	}
	which, name, _ := strings.Cut(ref.Resource, ".")
	lists := map[string]corev1.ResourceList{"limits": c.Resources.Limits, "requests": c.Resources.Requests}
	from, ok := lists[which]
	if !ok || name == "" {
		return "", refuse(at+".resource", "%q", ref.Resource).but("write it like limits.cpu")
	}
	quantity, set := from[corev1.ResourceName(name)]
	if !set && which == "limits" {
		quantity = machineHas(corev1.ResourceName(name))
	}
	divisor := ref.Divisor
	if divisor.IsZero() {
		divisor = resource.MustParse("1")
	}
	value, unit := float64(quantity.Value()), float64(divisor.Value())
	if name == string(corev1.ResourceCPU) {
		value, unit = float64(quantity.MilliValue()), float64(divisor.MilliValue())
	}
	return strconv.FormatInt(int64(math.Ceil(value/unit)), 10), nil
}

func machineHas(name corev1.ResourceName) resource.Quantity {
	switch name {
	case corev1.ResourceCPU:
		return *resource.NewQuantity(int64(runtime.NumCPU()), resource.DecimalSI)
	case corev1.ResourceMemory:
		return *resource.NewQuantity(memory(), resource.BinarySI)
	}
	return resource.Quantity{}
}

// memory returns MemTotal of /proc/meminfo in bytes, or 0 if it cannot be read.
func memory() int64 {
	data, _ := os.ReadFile("/proc/meminfo")
	var kB int64
	_, _ = fmt.Sscanf(string(data), "MemTotal: %d kB", &kB)
	return kB << 10
}

// configMap returns the ConfigMap with that name, or an empty one if it is optional and missing.
func (f facts) configMap(field, name string, optional *bool) (corev1.ConfigMap, error) {
	all := map[string]corev1.ConfigMap{}
	for _, m := range f.ConfigMaps {
		all[m.Name] = m
	}
	return find(field, "ConfigMap", name, all, optional)
}

func (f facts) secret(field, name string, optional *bool) (corev1.Secret, error) {
	all := map[string]corev1.Secret{}
	for _, s := range f.Secrets {
		all[s.Name] = s
	}
	return find(field, "Secret", name, all, optional)
}

func find[T any](field, kind, name string, all map[string]T, optional *bool) (T, error) {
	found, ok := all[name]
	if !ok && (optional == nil || !*optional) {
		return found, refuse(field, "no %s %q", kind, name).but("add it to the file as a document of its own (known: %s)", known(all))
	}
	return found, nil
}
