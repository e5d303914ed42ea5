module outrider.dev/bootconfig

go 1.25.0
