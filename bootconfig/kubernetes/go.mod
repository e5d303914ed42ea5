module outrider.dev/bootconfig/kubernetes

go 1.25.0

require (
	k8s.io/api v0.34.4
	k8s.io/apimachinery v0.34.4
	k8s.io/client-go v0.34.4
	outrider.dev/bootconfig v0.0.0
)

replace outrider.dev/bootconfig => ..
