package settings

import (
	"strconv"
	"strings"

	"outrider.dev/internal/base/contract"
)

// Annotations with which OpenShift gives each namespace ranges of user and group IDs, as START/SIZE or START-END.
// The pods of the namespace may use no other IDs.
const (
	userRange  = "openshift.io/sa.scc.uid-range"
	groupRange = "openshift.io/sa.scc.supplemental-groups"
)

// ProxyUser returns the proxy's user and group. The default is 1337. In a namespace with OpenShift's annotations
// it is the last ID of the first range, which no application uses by default (Istio does the same).
func ProxyUser(namespace map[string]string) (uid, gid int64) {
	uid, gid = contract.ProxyUser, contract.ProxyUser
	if last, ok := lastOf(namespace[userRange]); ok {
		uid, gid = last, last
	}
	if last, ok := lastOf(namespace[groupRange]); ok {
		gid = last
	}
	return uid, gid
}

// lastOf returns the last ID of the first range in a list of ranges.
func lastOf(text string) (int64, bool) {
	text, _, _ = strings.Cut(text, ",")
	first, second, isSize := strings.Cut(text, "/")
	if !isSize {
		first, second, _ = strings.Cut(text, "-")
	}
	from, err := strconv.ParseInt(first, 10, 64)
	last, err2 := strconv.ParseInt(second, 10, 64)
	if err != nil || err2 != nil || from <= 0 {
		return 0, false
	}
	if isSize {
		last += from - 1
	}
	return last, last >= from && last < 1<<31
}
