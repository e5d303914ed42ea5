package state

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"outrider.dev/startup"
)

func TestARecordIsReadAsItWasWritten(t *testing.T) {
	want := Record{Version: version, Container: "app", Sandbox: "s", Phase: Running, Healthy: true, Stopping: true, Completed: true, Starts: 3,
		After: []string{"cache"}, PreStop: true, Restart: startup.OnFailure, Since: time.Unix(1, 2).UTC(), Waited: []Wait{{For: "cache is healthy", Took: time.Second, By: "state"}}}
	b, err := want.encode()
	if err != nil {
		t.Fatal(err)
	}
	got, err := decode(b)
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("decode (-want +got): %v\n%s", err, diff)
	}
}

func TestWhatIsNoRecordIsRefused(t *testing.T) {
	tests := map[string]struct{ text, want string }{
		"nothing":                      {"", "no state"},
		"half a file":                  {`{"version":1,"phase":"run`, "no state"},
		"another version":              {`{"version":2,"phase":"running"}`, "version is 2, want 1"},
		"a phase that is none":         {`{"version":1,"phase":"ready"}`, `phase is "ready", want waiting, running or ended`},
		"healthy before it runs":       {`{"version":1,"phase":"waiting","healthy":true}`, `healthy, and phase is "waiting"`},
		"a number of starts below 0":   {`{"version":1,"phase":"running","starts":-1}`, "starts is -1"},
		"a second record after it":     {`{"version":1,"phase":"running"}{}`, "something follows"},
		"a number that is far too big": {`{"version":1,"phase":"ended","code":1e99}`, "no state"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := decode([]byte(tt.text))
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("decode: %v, want %q", err, tt.want)
			}
		})
	}
}

func TestWhatCanBeKnownOfAContainer(t *testing.T) {
	type facts struct{ Runs, Failed, Started, Healthy, Completed, Gone, ForGood, Held bool }
	alive := func(r Record) Seen { return Seen{Record: r, Known: true, Alive: true} }
	dead := func(r Record) Seen { return Seen{Record: r, Known: true} }
	tests := map[string]struct {
		seen Seen
		want facts
	}{
		"it published nothing":              {Seen{}, facts{Gone: true}},
		"it waits":                          {alive(Record{Phase: Waiting}), facts{Held: true}},
		"it waits again, having completed":  {alive(Record{Phase: Waiting, Completed: true}), facts{Started: true, Completed: true, Held: true}},
		"it was killed while it waited":     {dead(Record{Phase: Waiting}), facts{Failed: true, Gone: true}},
		"it runs":                           {alive(Record{Phase: Running}), facts{Runs: true, Started: true}},
		"it starts up":                      {alive(Record{Phase: Running, StartingUp: true}), facts{Runs: true, Started: true, Held: true}},
		"it is healthy":                     {alive(Record{Phase: Running, Healthy: true}), facts{Runs: true, Started: true, Healthy: true}},
		"it was killed when it was healthy": {dead(Record{Phase: Running, Healthy: true}), facts{Failed: true, Gone: true}},
		"killed, and never restarted":       {dead(Record{Phase: Running, Restart: startup.Never}), facts{Failed: true, Gone: true, ForGood: true}},
		"killed, and to be restarted":       {dead(Record{Phase: Running, Restart: startup.OnFailure}), facts{Failed: true, Gone: true}},
		"it completed":                      {dead(Record{Phase: Ended, Completed: true, Restart: startup.OnFailure}), facts{Started: true, Completed: true, Gone: true, ForGood: true}},
		"it completed, and its writer still lives": {alive(Record{Phase: Ended, Completed: true, Restart: startup.OnFailure}),
			facts{Started: true, Completed: true, Gone: true, ForGood: true}},
		"it completed, and is restarted always": {dead(Record{Phase: Ended, Completed: true}), facts{Started: true, Completed: true, Gone: true}},
		"it failed":                             {dead(Record{Phase: Ended, Code: 1, Restart: startup.OnFailure}), facts{Failed: true, Gone: true}},
		"it failed for good":                    {dead(Record{Phase: Ended, Code: 1, Restart: startup.Never}), facts{Failed: true, Gone: true, ForGood: true}},
		"it failed after it had completed":      {dead(Record{Phase: Ended, Code: 1, Completed: true}), facts{Failed: true, Completed: true, Gone: true}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			s := tt.seen
			st := s.Status()
			got := facts{s.Runs(), st.Failed, st.Reached(startup.Started), st.Reached(startup.Healthy), st.Reached(startup.Completed), s.Gone(), s.EndedForGood(), s.Held()}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"version":1,"container":"app","phase":"running","healthy":true,"waited":[{"for":"x","took":1}]}`))
	f.Add([]byte(`{"version":1,"phase":"ended","code":-1}` + "\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := decode(b)
		if err != nil {
			return
		}
		again, err := r.encode()
		if err != nil {
			return // Since is outside of RFC 3339's years, or the record is too long
		}
		if back, err := decode(again); err != nil || !cmp.Equal(back, r, cmpopts.EquateEmpty()) {
			t.Errorf("%q is read back as %q: %v\n%s", b, again, err, cmp.Diff(r, back))
		}
	})
}
