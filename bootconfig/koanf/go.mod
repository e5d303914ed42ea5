module outrider.dev/bootconfig/koanf

go 1.25.0

require (
	github.com/go-viper/mapstructure/v2 v2.4.0
	github.com/knadh/koanf/parsers/yaml v1.1.0
	github.com/knadh/koanf/providers/confmap v1.0.0
	github.com/knadh/koanf/v2 v2.4.1
	outrider.dev/bootconfig v0.0.0
)

replace outrider.dev/bootconfig => ..
