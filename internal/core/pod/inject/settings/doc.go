// Package settings has Istio's settings of injection, and ours beside them: values of the charts, a
// MeshConfig with its ProxyConfig, and the annotations and labels of a pod. They mean what they mean in
// Istio.
//
// Tables list all that are known, and what becomes of each: keys.go and annotations.go. [ParseValues] and
// [ParseMesh] read what holds for the mesh, [CheckAnnotations] and [CheckLabels] what a pod has. A setting
// without effect gets a warning that says why, a misspelt one the name that was probably meant, and an
// invalid one an error that says what would be right. The package knows no pod.
package settings
