// Package arch tests which packages may import which.
package arch
