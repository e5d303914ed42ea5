package main

import (
	"strings"
	"testing"
)

var sum = strings.Repeat("0123abcd", 8)

func TestRender(t *testing.T) {
	line := func(name string) string { return sum + "  " + name + "\n" }
	for name, tt := range map[string]struct{ sums, url, want, err string }{
		"two systems, and a bill": {line("outrider_1.2.3_linux_amd64.cdx.json") + line("outrider_1.2.3_linux_amd64.tar.gz") + line("outrider_1.2.3_linux_arm64.tar.gz"), "https://x.example/v{version}/",
			"    uri: https://x.example/v1.2.3/outrider_1.2.3_linux_arm64.tar.gz\n    sha256: " + sum + "\n    bin: outrider\n", ""},
		"Windows": {line("outrider_1.2.3_darwin_arm64.tar.gz") + line("outrider_1.2.3_windows_amd64.zip"), "https://x.example",
			"        os: windows\n        arch: amd64\n    uri: https://x.example/outrider_1.2.3_windows_amd64.zip\n    sha256: " + sum + "\n    bin: outrider.exe\n", ""},
		"before a release":       {line("outrider_1.2.3-rc.1_linux_amd64.tar.gz"), "https://x.example", "version: v1.2.3-rc.1\n", ""},
		"no archive":             {line("checksums.txt"), "https://x.example", "", "no line names an archive"},
		"two versions":           {line("outrider_1.2.3_linux_amd64.tar.gz") + line("outrider_1.2.4_linux_arm64.tar.gz"), "https://x.example", "", "versions 1.2.3 and 1.2.4"},
		"a commit's":             {line("outrider_devel-0123_linux_amd64.tar.gz"), "https://x.example", "", `version "devel-0123": must be like 1.2.3`},
		"an address without TLS": {line("outrider_1.2.3_linux_amd64.tar.gz"), "http://x.example", "", "-url"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := render(tt.sums, tt.url)
			switch {
			case tt.err != "" && (err == nil || !strings.Contains(err.Error(), tt.err)):
				t.Errorf("error %v, want %q", err, tt.err)
			case tt.err == "" && (err != nil || !strings.Contains(string(got), tt.want)):
				t.Errorf("%v\n%s\nhas no %q", err, got, tt.want)
			}
		})
	}
}
