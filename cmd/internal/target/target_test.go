package target

import (
	"testing"
	"time"

	"github.com/spf13/cobra"
)

// A refused --timeout names the usual one as an example.
func TestExampleOfATimeout(t *testing.T) {
	for usual, example := range map[time.Duration]string{30 * time.Second: "30s", 2 * time.Minute: "2m", 10 * time.Minute: "10m", time.Hour: "1h0m"} {
		var value time.Duration
		cmd := &cobra.Command{}
		Timeout(cmd, &value, usual, "")
		want := "--timeout=-1s: must be more than nothing, such as " + example
		if err := cmd.Flags().Lookup("timeout").Value.Set("-1s"); err == nil || err.Error() != want || value != usual {
			t.Errorf("%v, want %q; the value is %s, want %s", err, want, value, usual)
		}
	}
}
