package state

import (
	"testing"
	"time"

	"outrider.dev/startup"
	"outrider.dev/test/formats"
)

// The proxy of one version writes this, and a gate of another one reads it, because only the proxy is replaced. Fields that
// the previous version does not have, which it ignores, are left out here until it has them: Called, StopBegan.
func TestFormat(t *testing.T) {
	r := Record{
		Container: "app", Sandbox: "b0c4:4026532", Phase: Running, Healthy: true, StartingUp: true, StartedUp: true, Early: true, Stopping: true,
		Code: 3, Completed: true, Starts: 2, After: []string{"cache"}, PreStop: true, Restart: startup.OnFailure, Since: time.Date(2026, 3, 2, 13, 0, 0, 0, time.UTC),
		Waited: []Wait{{For: "cache is healthy", Took: time.Second, By: "cache"}},
	}
	encoded := func(r Record) (string, error) {
		text, err := r.encode()
		return string(text), err
	}
	text, err := encoded(r)
	if err != nil {
		t.Fatal(err)
	}
	formats.Check(t, "record", text, func(text string) (string, error) {
		r, err := decode([]byte(text))
		if err != nil {
			return "", err
		}
		return encoded(r)
	})
	// A later version may add a field.
	if _, err := decode([]byte(text[:1] + `"of a later version":{},` + text[1:])); err != nil {
		t.Error(err)
	}
}
