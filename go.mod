module outrider.dev

go 1.26
