module outrider.dev/examples/awesome-app

go 1.25.0

require outrider.dev/bootconfig v0.0.0

// In this repository the library is in a folder; an application of your own requires a release.
replace outrider.dev/bootconfig => ../../../bootconfig
