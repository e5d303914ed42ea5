// Package images holds the test of the container images: all are made, in the nightly run twice, of real
// parts, and compared with what they need.
package images
