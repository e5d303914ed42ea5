module outrider.dev/bootconfig/consul

go 1.25.0

require outrider.dev/bootconfig v0.0.0

replace outrider.dev/bootconfig => ..
