// Package described reads what kubectl prints for people: the text of kubectl describe, of pods and of the workloads
// that own them, and the tables of kubectl get events and kubectl get pods. The text may be cut off at both ends,
// indented or quoted, and may have prose around it. It makes the same objects of it that kubectl get -o yaml prints, as
// far as the text shows their fields.
//
// The text shows no time of its own. Ages of events stay ages; see package evidence, which places them by the starts of
// containers.
//
// Where to read:
//
//	text.go        the parts of a text
//	object.go      the fields of a pod or of a workload
//	container.go   the fields of a container
//	values.go      probes, variables, volumes
//	table.go       tables: events, lines of pods
package described
