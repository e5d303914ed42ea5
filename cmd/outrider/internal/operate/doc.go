// Package operate has the commands for an installation in a cluster, except those of outrider-operate: they
// report versions, pods and the state of proxies, open the status page, and rotate the root certificate. The
// packages in internal/ops do the work.
package operate
