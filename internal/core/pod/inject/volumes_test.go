package inject

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/core/pod/inject/containers"
)

// The roots are mounted from the ClusterTrustBundle if the mesh has one, else from the ConfigMap. The path is the
// same. This holds also if an injected pod is injected again.
func TestRootsOfAPod(t *testing.T) {
	pod := podOf(t, "{apiVersion: v1, kind: Pod, metadata: {name: app, namespace: shop}, spec: {containers: [{name: app, image: app}]}}")
	for _, signer := range []string{"", contract.TrustSigner, ""} {
		r, err := Pod(pod, Namespace{Name: "shop"}, Options{Manual: true, TrustSigner: signer})
		if err != nil || !r.Injected {
			t.Fatalf("%v, %+v", err, r.Reason)
		}
		pod = r.Pod
		var sources []corev1.VolumeSource
		for _, v := range pod.Spec.Volumes {
			if v.Name == contract.RootVolume {
				sources = append(sources, v.VolumeSource)
			}
		}
		if len(sources) != 1 {
			t.Fatalf("%d volumes %s", len(sources), contract.RootVolume)
		}
		var file string
		switch s := sources[0]; {
		case signer == "" && s.ConfigMap != nil && s.ConfigMap.Name == contract.RootConfigMap:
			file = contract.RootKey // each key of the ConfigMap becomes a file
		case signer != "" && s.Projected != nil && *s.Projected.Sources[0].ClusterTrustBundle.SignerName == signer:
			file = s.Projected.Sources[0].ClusterTrustBundle.Path
		}
		proxy := containers.Find(pod, contract.ProxyContainer)
		i := slices.IndexFunc(proxy.VolumeMounts, func(m corev1.VolumeMount) bool { return m.Name == contract.RootVolume })
		if i < 0 || proxy.VolumeMounts[i].MountPath+"/"+file != contract.RootFile {
			t.Errorf("with the bundle of %q: %+v, mounted at %+v", signer, sources[0], proxy.VolumeMounts)
		}
	}
}
