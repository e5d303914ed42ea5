// Package settings reads the settings of injection, Istio's and our own: values of the charts, a MeshConfig
// with its ProxyConfig, and the annotations and labels of a pod. Istio's settings mean the same as in Istio.
//
// Tables list all known settings, and what happens to each: keys.go and annotations.go. [ParseValues] and
// [ParseMesh] read the mesh's settings, [CheckAnnotations] and [CheckLabels] check those of a pod. A setting
// without effect gets a warning with the reason. The warning for a misspelt one has the name that was
// probably meant. An invalid one is an error that says what would be valid. The package does not handle pods
// themselves.
package settings
