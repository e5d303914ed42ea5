package gather

import (
	"cmp"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"outrider.dev/internal/doctor/evidence"
	"outrider.dev/internal/doctor/evidence/pasted"
)

// A name is the information that the path of a log contains. A field is empty if the path does not contain it.
type name struct {
	namespace, pod, uid, container string
	previous                       bool
	run                            int    // number of the run; -1: not in the path
	base                           string // base name of the file without the parts that were recognized
	whole                          string // base name of the file without its extension
	heading                        string // of a part of a text, instead of a name
}

func (n name) describe() string {
	if n.pod != "" {
		return cmp.Or(n.namespace, "(any namespace)") + "/" + n.pod
	}
	return "in its folder or above"
}

const label = `([a-z0-9](?:[-a-z0-9.]*[a-z0-9])?)`

// Layouts of folders in which the path of a log identifies the pod and the container.
var (
	// OpenShift's must-gather and oc adm inspect.
	mustGather = regexp.MustCompile(`(?:^|/)namespaces/` + label + `/pods/` + label + `/` + label + `/[^/]+/logs/(current|previous|previous\.insecure)\.log$`)
	// A node's /var/log/pods and /var/log/containers.
	nodePods       = regexp.MustCompile(`(?:^|/)` + label + `_` + label + `_([-0-9a-f]{32,36})/` + label + `/(\d+)\.log$`)
	nodeContainers = regexp.MustCompile(`(?:^|/)` + label + `_` + label + `_` + label + `-[0-9a-f]{64}\.log$`)
)

// nameOf returns the information that the path of a log contains.
func nameOf(file string) name {
	n := name{run: -1}
	file = strings.ReplaceAll(file, ":", "/") // path in an archive
	if m := mustGather.FindStringSubmatch(file); m != nil {
		n.namespace, n.pod, n.container, n.previous = m[1], m[2], m[3], m[4] != "current"
		return n
	}
	if m := nodePods.FindStringSubmatch(file); m != nil {
		n.namespace, n.pod, n.uid, n.container = m[1], m[2], m[3], m[4]
		n.run, _ = strconv.Atoi(m[5])
		return n
	}
	if m := nodeContainers.FindStringSubmatch(file); m != nil {
		n.pod, n.namespace, n.container = m[1], m[2], m[3]
		return n
	}
	n.base = path.Base(file)
	for end := path.Ext(n.base); end != "" && slices.Contains(logEnds, end); end = path.Ext(n.base) { // app.log.txt has two
		n.base = strings.TrimSuffix(n.base, end)
	}
	n.whole = n.base
	n.base, n.previous = pasted.Unmarked(n.base)
	return n
}

// means reports whether the name may refer to a log of the pod. A namespace or a UID that the name or the pod lacks
// is not compared.
func (n name) means(p *corev1.Pod) bool {
	agree := func(a, b string) bool { return a == "" || b == "" || a == b }
	return n.pod == p.Name && agree(n.namespace, p.Namespace) && agree(n.uid, string(p.UID))
}

// containerIn returns the container of pod p to which the name refers, or nil.
func (n name) containerIn(p *evidence.Pod) *evidence.Container {
	switch {
	case n.container != "" && n.base != "" && !strings.HasPrefix(p.Object.Name, n.base+"-"): // of another workload
		return nil
	case n.container != "":
		return p.Container(n.container)
	case n.heading != "":
		return nil
	}
	if c := p.Container(n.base); c != nil {
		return c
	}
	for _, between := range []string{"_", "-", "."} {
		if rest, ok := strings.CutPrefix(n.base, p.Object.Name+between); ok {
			return p.Container(rest)
		}
	}
	all := p.Object.Spec.Containers
	of := n.base == p.Object.Name || n.base == "" || strings.HasPrefix(p.Object.Name, n.base+"-") // kubectl logs deploy/NAME > NAME.log
	switch usual, has := p.Object.Annotations["kubectl.kubernetes.io/default-container"]; {
	case !of:
	case len(all) == 1:
		return p.Container(all[0].Name)
	case has: // the one whose log kubectl prints
		return p.Container(usual)
	}
	return nil
}

// section matches the lines before and after a log in the output of kubectl cluster-info dump.
var section = regexp.MustCompile(`^==== (START|END) logs for container (\S+) of pod ([^/\s]*)/(\S+) ====$`)
