package page

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"outrider.dev/internal/doctor/diagnose"
	"outrider.dev/internal/doctor/diagnose/result"
	"outrider.dev/internal/doctor/evidence/gather"
)

// secrets has texts that must not be shown as its keys, and log lines that contain these texts as its values. A
// report quotes the lines.
var secrets = map[string]string{
	"s3cr3t-bearer-0123456789":   "sent Authorization: Bearer s3cr3t-bearer-0123456789",
	"hunter2-in-a-url":           "GET https://reader:hunter2-in-a-url@log-config-server:12345/logback.xml",
	"MIIEvQIBADANBgkqhkiG9w0BAQ": `key "-----BEGIN PRIVATE KEY-----\\nMIIEvQIBADANBgkqhkiG9w0BAQ==\\n-----END PRIVATE KEY-----"`,
	"hunter2-as-a-value":         "password=hunter2-as-a-value",
}

// withSecret diagnoses an incident in which the lines about a refused call contain a secret.
func withSecret(t *testing.T, line string, show bool) result.Report {
	t.Helper()
	folder := t.TempDir()
	from := filepath.Join(incidents, "awesome-app")
	if err := os.CopyFS(folder, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
	const marker = "java.net.ConnectException: "
	found := 0
	err := fs.WalkDir(os.DirFS(folder), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(name, ".log") {
			return err
		}
		text, err := os.ReadFile(filepath.Join(folder, name))
		if err != nil {
			return err
		}
		found += bytes.Count(text, []byte(marker))
		return os.WriteFile(filepath.Join(folder, name), bytes.ReplaceAll(text, []byte(marker), []byte(marker+line+": ")), 0o600)
	})
	if err != nil || found == 0 {
		t.Fatalf("%d lines are changed: %v", found, err)
	}
	set, err := gather.Read(t.Context(), gather.Options{}, folder)
	if err != nil {
		t.Fatal(err)
	}
	r, err := diagnose.Diagnose(t.Context(), set.Pods[0], diagnose.Options{ShowSecrets: show})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// No format shows a secret from a log. With --show-secrets, each format that quotes the line shows the secret.
func TestSecretsAreMasked(t *testing.T) {
	for secret, line := range secrets {
		for _, show := range []bool{false, true} {
			reports := []result.Report{withSecret(t, line, show)}
			for _, format := range Formats {
				for _, fleet := range []bool{false, true} {
					o := Options{Format: format, Fleet: fleet, Columns: 1000}
					if o.Check() != nil {
						continue
					}
					var b bytes.Buffer
					if err := Write(&b, reports, o); err != nil {
						t.Fatal(err)
					}
					quotes := !fleet || format == "json" || format == "yaml"
					switch has := strings.Contains(b.String(), secret); {
					case has && !show:
						t.Errorf("-o %s, fleet %v: shows %s", format, fleet, secret)
					case !has && show && quotes:
						t.Errorf("-o %s, fleet %v: does not quote %s with --show-secrets: the test looks in the wrong place", format, fleet, secret)
					}
				}
			}
		}
	}
}
