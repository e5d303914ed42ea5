// Package images holds the test of the container images: both are made twice, of real parts, and
// compared with what they need and with build/Containerfile.
package images
