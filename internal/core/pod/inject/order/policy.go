package order

import (
	"fmt"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/core/pod/inject/containers"
	"outrider.dev/internal/core/pod/inject/verdict"
	"outrider.dev/internal/core/pod/request"
	"outrider.dev/startup"
)

// A policy holds the settings of pod and mesh for the order of the start. A more specific setting overrides the
// less specific ones; from most to least specific:
//
//	by: of an edge, outrider.dev/start          a mechanism; the pod is refused if it does not fit
//	sidecar.istio.io/nativeSidecar              the position of the proxy
//	holdApplicationUntilProxyStarts             whether there is an order, by any mechanism:
//	  of the pod, of the mesh, of the values      true and unset are the default strategy
type policy struct {
	start   startup.Mechanism
	order   bool              // the app must wait for the proxy
	sidecar bool              // the proxy is a restartable init container
	by      startup.Mechanism // mechanism of the edges from the proxy; empty: the strategy decides
	avoid   []startup.Mechanism
}

// policyOf returns the policy, and reports the settings that have no effect.
func policyOf(in Request, r *verdict.Report) (policy, error) {
	start, err := request.Start(in.Pod.Annotations)
	if err != nil {
		return policy{}, verdict.Refuse(verdict.InvalidAnnotation, "", "%v", err)
	}
	w := policy{start: start, order: start != request.Off}
	w.applyHold(in, r)
	old := in.Kubernetes < 29
	w.applyNative(in, old, r)
	w.sidecar = w.sidecar || w.start == startup.Native && !old
	if in.Proxy != nil && !w.sidecar && !old && w.start != startup.Hold && len(w.avoid) == 0 {
		w.sidecar = firstInList(in, r)
	}
	return w, nil
}

// firstInList reports whether the proxy must be a restartable init container, which the kubelet starts before all
// others.
func firstInList(in Request, r *verdict.Report) bool {
	switch {
	case containers.EndsOnce(in.Pod):
		r.Note("restartPolicy: %s: the proxy is a restartable init container, so that the kubelet ends it when the others have ended", in.Pod.Spec.RestartPolicy)
	case in.Captured && len(in.Pod.Spec.InitContainers) > 0:
		r.Note("the proxy is a restartable init container, the first one, so that the pod's own init containers are in the mesh")
	default:
		return false
	}
	return true
}

// applyHold applies holdApplicationUntilProxyStarts to the policy, or reports why it has no effect.
func (w *policy) applyHold(in Request, r *verdict.Report) {
	hold, at := in.Hold.Value, in.Hold.At
	switch {
	case hold == nil:
		return
	case w.start != "":
		if in.Hold.OfPod {
			r.Ignored(contract.ProxyConfig, "holdApplicationUntilProxyStarts: annotation "+contract.Start+": "+string(w.start)+" is more specific")
		}
		r.Note("%s: %t has no effect: annotation %s: %s is more specific", at, *hold, contract.Start, w.start)
	case *hold:
		w.order = true
		r.Note("%s: true: the app starts after the proxy", at)
	default:
		w.order = false
		r.Note("%s: false: no container waits for the proxy; early connections are parked", at)
	}
}

// applyNative applies Istio's switches for native sidecars. If another mesh provides the proxy, the switches
// concern that proxy, so they are ignored.
func (w *policy) applyNative(in Request, old bool, r *verdict.Report) {
	native, at := nativeOf(in, r)
	switch {
	case native == "" || in.Alongside:
	case w.start == startup.Hold || w.start == startup.Native && native == "false":
		r.Ignored(contract.NativeSidecar, "annotation "+contract.Start+": "+string(w.start)+" is more specific")
		r.Note("%s: %s has no effect: annotation %s: %s is more specific", at, native, contract.Start, w.start)
	case native == "false":
		w.avoid = []startup.Mechanism{startup.Native}
	case old:
		r.Ignored(contract.NativeSidecar, fmt.Sprintf("restartable init containers need Kubernetes 1.29, and this is 1.%d", in.Kubernetes))
		r.Warn("%s: true has no effect: restartable init containers need Kubernetes 1.29, and this is 1.%d", at, in.Kubernetes)
	default:
		w.sidecar = true
		if w.start == "" && w.order {
			w.by = startup.Native
		}
	}
}

// nativeOf returns "true", "false" or an empty string, and the name of the setting with that value.
func nativeOf(in Request, r *verdict.Report) (native, at string) {
	at = "annotation " + contract.NativeSidecar
	switch v, ok := in.Pod.Annotations[contract.NativeSidecar]; {
	case ok && (v == "true" || v == "false"):
		return v, at
	case ok:
		r.Ignored(contract.NativeSidecar, fmt.Sprintf("%q is neither \"true\" nor \"false\"", v))
		r.Warn("%s is %q, which is neither \"true\" nor \"false\": it has no effect", at, v)
	}
	if v := in.Native; v != "auto" {
		return v, "value pilot.env.ENABLE_NATIVE_SIDECARS"
	}
	return "", ""
}
