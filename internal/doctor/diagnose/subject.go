package diagnose

import (
	"outrider.dev/internal/doctor"
	"outrider.dev/internal/doctor/diagnose/chain"
	"outrider.dev/internal/doctor/diagnose/witness"
)

// Short names for the answers to a question that the evidence may leave open.
const (
	no      = doctor.No
	perhaps = doctor.Perhaps
	yes     = doctor.Yes
)

// A subject is a case that the rules look at.
type subject struct {
	*chain.Case
	options Options
	beside  *witness.Record
}
