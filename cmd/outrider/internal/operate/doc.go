// Package operate has commands for an installation in a cluster. They report versions, pods and the state of proxies,
// open the status page, and rotate the root certificate. All other commands for an installation are in
// outrider-operate. The packages in internal/ops do the work.
package operate
