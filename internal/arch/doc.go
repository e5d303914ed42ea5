// Package arch holds the test that keeps the arrows between packages.
package arch
