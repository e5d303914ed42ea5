package routes

import (
	"fmt"

	faults "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/common/fault/v3"
	fault "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/fault/v3"
	hcm "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"

	"outrider.dev/internal/core/mesh"
	"outrider.dev/internal/core/xds/message"
	"outrider.dev/internal/core/xds/names"
)

// faultFilter is the name of the filter, and of its configuration in routes.
const faultFilter = "envoy.filters.http.fault"

// InjectsFaults returns a filter that has no faults itself, because routes configure them. Its
// statistics do not depend on a header, which callers could fill with any number of names.
func InjectsFaults() *hcm.HttpFilter {
	return message.HTTPFilter(faultFilter, &fault.HTTPFault{DisableDownstreamClusterStats: true})
}

// faultsOf returns the configuration of the faults for requests to a target; nil if it has none.
func faultsOf(t names.Target) map[string]*anypb.Any {
	f := t.Policy().Faults
	if f == (mesh.Faults{}) || !MayBeHTTP(t.Port.Protocol) {
		return nil
	}
	out := &fault.HTTPFault{DisableDownstreamClusterStats: true}
	if f.Delay > 0 {
		out.Delay = &faults.FaultDelay{
			FaultDelaySecifier: &faults.FaultDelay_FixedDelay{FixedDelay: durationpb.New(f.Delay)}, Percentage: message.Share(f.DelayPercent),
		}
	}
	switch {
	case f.HTTPStatus > 0:
		out.Abort = &fault.FaultAbort{ErrorType: &fault.FaultAbort_HttpStatus{HttpStatus: f.HTTPStatus}, Percentage: message.Share(f.AbortPercent)}
	case f.GRPCStatus > 0:
		out.Abort = &fault.FaultAbort{ErrorType: &fault.FaultAbort_GrpcStatus{GrpcStatus: f.GRPCStatus}, Percentage: message.Share(f.AbortPercent)}
	}
	return map[string]*anypb.Any{faultFilter: message.Typed(out)}
}

// Routed reports whether requests from clients in a namespace to a service's port go through the
// internal listener, because there are routes for them, or faults.
func Routed(t names.Target, namespace string) bool {
	return len(t.Service.RoutesFor(namespace, t.Port.Number)) > 0 || faultsOf(t) != nil
}

// faultsKey returns the faults as a part of a policy's key.
func faultsKey(t names.Target) string {
	if faultsOf(t) == nil {
		return ""
	}
	return fmt.Sprint(t.Policy().Faults)
}

// MayBeHTTP reports whether HTTP is detected on a port.
func MayBeHTTP(p mesh.Protocol) bool { return p.IsHTTP() || p == mesh.Unknown }
