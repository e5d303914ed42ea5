package result

import (
	"fmt"
	"time"

	"outrider.dev/internal/doctor/evidence"
)

// A Track contains all that is known of the history of one container. Pictures are drawn from it.
type Track struct {
	Container string `json:"container"`
	Role      Role   `json:"role"`
	Runs      []Span `json:"runs,omitempty"`
	Marks     []Mark `json:"marks,omitempty"` // by time
	LeftOut   int    `json:"leftOut,omitempty"`
}

// A Role is the purpose of a container.
type Role string

// The roles.
const (
	ProxyRole Role = "proxy"
	AppRole   Role = "application"
	InitRole  Role = "init"
	OtherRole Role = "other" // belongs to a mesh, or is another sidecar
)

// A Span is one run of a container.
type Span struct {
	Number   int           `json:"number"`
	Started  evidence.Time `json:"started,omitzero"`
	Finished evidence.Time `json:"finished,omitzero"`
	Running  bool          `json:"running,omitempty"`
	Failed   bool          `json:"failed,omitempty"`
	Ended    string        `json:"ended,omitempty"` // how the run ended
}

// A MarkKind is the kind of event that a mark shows.
type MarkKind string

// The kinds.
const (
	MarkReady  MarkKind = "ready"       // the proxy became ready
	MarkCall   MarkKind = "failed call" // a line about a failed call
	MarkedLine MarkKind = "log"         // another line about the state of the proxy
)

// A Mark is an event of a container, with the quote that shows it.
type Mark struct {
	Kind MarkKind `json:"kind"`
	evidence.Quote
	About string `json:"about,omitempty"` // the meaning of the line
}

// A Moment is a line of the timeline.
type Moment struct {
	At        evidence.Time `json:"at"`
	Container string        `json:"container,omitempty"`
	Text      string        `json:"text"`
}

// Since formats the time between two instants, in whole seconds if its error is half a second or more. It is empty
// if the instants are from different clocks or not known.
func Since(t, from evidence.Time) string {
	least, most, ok := t.Since(from)
	middle := (least + most) / 2
	switch {
	case !ok:
		return ""
	case most-least >= time.Second:
		return fmt.Sprintf("+%d s", (middle+time.Second/2)/time.Second)
	}
	return fmt.Sprintf("+%.2f s", middle.Seconds())
}
