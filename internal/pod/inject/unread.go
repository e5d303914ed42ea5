package inject

// Unread are the strings of a pod on which nothing in a [Result] depends: what pods made
// after one template differ in. A path has the steps to it, "*" for each element of a list.
// property_test.go holds it to that.
func Unread(o Options) [][]string {
	out := [][]string{
		{"spec", "hostname"},
		{"spec", "volumes", "*", "persistentVolumeClaim", "claimName"},                                                                                      // a StatefulSet's
		{"spec", "affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution", "nodeSelectorTerms", "*", "matchFields", "*", "values", "*"}, // a DaemonSet's
		{"metadata", "annotations", indexLabel},                                                                                                             // an indexed Job's
	}
	if len(o.Values.Injector.NeverInjectSelector)+len(o.Values.Injector.AlwaysInjectSelector) > 0 {
		return out // which may ask for any label
	}
	return append(out,
		[]string{"metadata", "labels", "statefulset.kubernetes.io/pod-name"},
		[]string{"metadata", "labels", "apps.kubernetes.io/pod-index"},
		[]string{"metadata", "labels", indexLabel})
}

const indexLabel = "batch.kubernetes.io/job-completion-index"

// UnreadName is the path of one more, if the pod has a controller: without one it is the
// name of the workload.
var UnreadName = []string{"metadata", "name"}
