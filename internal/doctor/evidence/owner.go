package evidence

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// OwnsPods has the kinds of objects that own pods.
var OwnsPods = map[string]bool{"Job": true, "CronJob": true, "Deployment": true, "ReplicaSet": true, "StatefulSet": true, "DaemonSet": true, "ReplicationController": true}

// NotCreated are the reasons of events that say that pods, or what creates them, cannot be created.
var NotCreated = []string{"FailedCreate", "ReplicaSetCreateError", "FailedCreatePod"}

// Controller returns the owner that manages an object: the one with controller: true, or the only one.
func Controller(refs []metav1.OwnerReference) (kind, name string) {
	for _, r := range refs {
		if r.Controller != nil && *r.Controller {
			return r.Kind, r.Name
		}
	}
	if len(refs) == 1 {
		return refs[0].Kind, refs[0].Name
	}
	return "", ""
}

// NameOfLog returns the words for a log in the list of what is missing.
func NameOfLog(container string, previous bool) string {
	if previous {
		return "previous log of container " + container
	}
	return "log of container " + container
}
