package calls

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"outrider.dev/internal/doctor/evidence"
)

func TestTmp(t *testing.T) {
	for _, f := range []string{"wordings-captured", "wordings-loopback"} {
		raw, _ := os.ReadFile("/work/shared/cases/diagnose/" + f + ".json")
		var in struct{ Texts map[string]string }
		json.Unmarshal(raw, &in)
		for _, k := range slices.Sorted(maps.Keys(in.Texts)) {
			text := in.Texts[k]
			got := ""
			for i, line := range strings.Split(text, "\n") {
				for _, p := range wordings {
					for _, a := range p.Any {
						if strings.Contains(strings.ToLower(line), a) && (p.Only == nil || p.Only([]byte(line))) {
							var after []evidence.Line
							for _, l := range strings.Split(text, "\n")[i+1:] {
								after = append(after, evidence.Line{Text: []byte(l)})
							}
							got += fmt.Sprintf(" [%d %s %s]", i, p.Name, destinationOf(evidence.Hit{Line: evidence.Line{Text: []byte(line)}, After: after}))
							break
						}
					}
				}
			}
			fmt.Printf("%-9s %-16s%s\n      %q\n", f[9:], k, got, text)
		}
	}
}
