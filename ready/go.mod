module outrider.dev/ready

go 1.25.0
