package contract

// EnvoyVersion is the version of Envoy that this version of Outrider is built and tested with: that
// of build/envoy.txt.
const EnvoyVersion = "1.40.0"

// A Version is the answer of a control plane at /version.
type Version struct {
	Version string `json:"version"`
	Envoy   string `json:"envoy,omitempty"` // that its proxies should have; empty: an older control plane
}
