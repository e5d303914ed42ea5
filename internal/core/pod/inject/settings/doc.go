// Package settings reads the settings of injection, Istio's and our own: values of the charts, a MeshConfig with
// its ProxyConfig, and the annotations and labels of a pod. Istio's settings have the same meaning as in Istio.
//
// The tables in keys.go and annotations.go list all known settings and how each is treated. [ParseValues] and
// [ParseMesh] read the mesh's settings; [CheckAnnotations] and [CheckLabels] check those of a pod. A setting
// without effect causes a warning with the reason. The warning about an unknown name suggests the most similar
// known one. An invalid setting is an error that says what would be valid. The package does not change pods.
package settings
