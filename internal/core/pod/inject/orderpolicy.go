package inject

import (
	"fmt"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/core/pod/inject/containers"
	"outrider.dev/internal/core/pod/inject/verdict"
	"outrider.dev/internal/core/pod/podspec"
	"outrider.dev/startup"
)

// An orderPolicy is the settings of pod and mesh for the order of the start. Of several settings
// the most specific counts:
//
//	by: of an edge, outrider.dev/start          a mechanism; the pod is refused if it does not fit
//	sidecar.istio.io/nativeSidecar              where the proxy stands
//	holdApplicationUntilProxyStarts             whether there is an order, by any mechanism:
//	  of the pod, of the mesh, of the values      true and unset are the default strategy
type orderPolicy struct {
	start   podspec.Start
	order   bool              // the app waits for the proxy
	sidecar bool              // the proxy is a restartable init container
	by      startup.Mechanism // of the edges from the proxy; empty: the strategy decides
	avoid   []startup.Mechanism
}

// policyOf also reports which of the settings have no effect.
func policyOf(in input, s effective, r *verdict.Report) (orderPolicy, error) {
	start, err := podspec.ParseStart(in.pod.Annotations)
	if err != nil {
		return orderPolicy{}, verdict.Refuse(verdict.BadAnnotation, "", "%v", err)
	}
	w := orderPolicy{start: start, order: start != podspec.StartOff}
	w.applyHold(in, s, r)
	old := in.o.kubernetes() < 29
	w.applyNative(in, old, r)
	w.sidecar = w.sidecar || w.start == podspec.StartNative && !old
	if s.proxy && !w.sidecar && !old && w.start != podspec.StartHold && len(w.avoid) == 0 {
		w.sidecar = firstInList(in, s, r)
	}
	return w, nil
}

// firstInList reports whether the pod needs a proxy that the kubelet starts before all others.
func firstInList(in input, s effective, r *verdict.Report) bool {
	switch {
	case containers.EndsOnce(in.pod):
		r.Note("restartPolicy: %s: the proxy is a restartable init container, so that the kubelet ends it when the others have ended", in.pod.Spec.RestartPolicy)
	case s.capture && len(in.pod.Spec.InitContainers) > 0:
		r.Note("the proxy is a restartable init container, the first one, so that the pod's own init containers are in the mesh")
	default:
		return false
	}
	return true
}

// applyHold applies holdApplicationUntilProxyStarts.
func (w *orderPolicy) applyHold(in input, s effective, r *verdict.Report) {
	const name = "holdApplicationUntilProxyStarts"
	hold, at := s.podHold, "annotation "+contract.ProxyConfig+": "+name
	if hold == nil {
		hold, at = s.config.Hold, "the mesh's defaultConfig."+name
	}
	if hold == nil {
		hold, at = in.o.Values.Global.Proxy.Hold, "value global.proxy."+name
	}
	switch {
	case hold == nil:
		return
	case w.start != podspec.StartDefault:
		if s.podHold != nil {
			r.Ignored(contract.ProxyConfig, name+": annotation "+contract.Start+": "+string(w.start)+" is more specific")
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

// applyNative applies Istio's switches for native sidecars. Alongside another mesh they are
// about that mesh's proxy.
func (w *orderPolicy) applyNative(in input, old bool, r *verdict.Report) {
	native, at := nativeOf(in, r)
	switch {
	case native == "" || in.alongside:
	case w.start == podspec.StartHold || w.start == podspec.StartNative && native == "false":
		r.Ignored(contract.NativeSidecar, "annotation "+contract.Start+": "+string(w.start)+" is more specific")
		r.Note("%s: %s has no effect: annotation %s: %s is more specific", at, native, contract.Start, w.start)
	case native == "false":
		w.avoid = []startup.Mechanism{startup.Native}
	case old:
		r.Ignored(contract.NativeSidecar, fmt.Sprintf("restartable init containers need Kubernetes 1.29, and this is 1.%d", in.o.kubernetes()))
		r.Warn("%s: true has no effect: restartable init containers need Kubernetes 1.29, and this is 1.%d", at, in.o.kubernetes())
	default:
		w.sidecar = true
		if w.start == podspec.StartDefault && w.order {
			w.by = startup.Native
		}
	}
}

// nativeOf returns "true", "false" or nothing, and the setting that it is from.
func nativeOf(in input, r *verdict.Report) (native, at string) {
	at = "annotation " + contract.NativeSidecar
	switch v, ok := in.pod.Annotations[contract.NativeSidecar]; {
	case ok && (v == "true" || v == "false"):
		return v, at
	case ok:
		r.Ignored(contract.NativeSidecar, fmt.Sprintf("%q is neither \"true\" nor \"false\"", v))
		r.Warn("%s is %q, which is neither \"true\" nor \"false\": it has no effect", at, v)
	}
	if v := in.o.Values.Native(); v != "auto" {
		return v, "value pilot.env.ENABLE_NATIVE_SIDECARS"
	}
	return "", ""
}
