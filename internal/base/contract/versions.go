package contract

// EnvoyVersion is the version of Envoy that this version of Outrider is built and tested with: the version
// in build/envoy.txt.
const EnvoyVersion = "1.40.0"

// A Version is a control plane's answer at /version.
type Version struct {
	Version string `json:"version"`
	Envoy   string `json:"envoy,omitempty"` // version that its proxies should have; empty for older control planes
}
