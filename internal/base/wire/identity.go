package wire

import (
	"fmt"
	"net/url"
	"strings"
)

// A WorkloadID names a workload of a mesh, as Istio writes it:
// spiffe://<trust domain>/ns/<namespace>/sa/<service account>.
type WorkloadID struct {
	TrustDomain    string
	Namespace      string
	ServiceAccount string
}

// String returns the SPIFFE ID as a string.
func (id WorkloadID) String() string { return id.URL().String() }

// URL returns the SPIFFE ID in the form that a certificate contains.
func (id WorkloadID) URL() *url.URL {
	return &url.URL{Scheme: "spiffe", Host: id.TrustDomain, Path: "/ns/" + id.Namespace + "/sa/" + id.ServiceAccount}
}

// Check reports which part is not allowed in a SPIFFE ID (the standard's sections 2.1 and 2.2). The control
// plane parses with go-spiffe; its tests show that the two agree.
func (id WorkloadID) Check() error {
	const letters = "abcdefghijklmnopqrstuvwxyz"
	const marks = "0123456789.-_"
	if !made(id.TrustDomain, letters+marks) {
		return fmt.Errorf("trust domain %q: use lower case letters, digits, dots, dashes and underscores", id.TrustDomain)
	}
	for _, part := range []struct{ name, value string }{{"namespace", id.Namespace}, {"service account", id.ServiceAccount}} {
		if !made(part.value, letters+strings.ToUpper(letters)+marks) || part.value == "." || part.value == ".." {
			return fmt.Errorf("%s %q: use letters, digits, dots, dashes and underscores", part.name, part.value)
		}
	}
	return nil
}

// made reports whether s is not empty and consists only of the given characters.
func made(s, of string) bool { return s != "" && strings.Trim(s, of) == "" }
