// Package operate has the commands that operate an installation, by package ops: install and check, what
// runs and with which versions, running pods, the root certificate.
package operate
