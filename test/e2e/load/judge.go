package load

import "time"

// A Kill is the end of a process under load.
type Kill struct {
	What    string
	Pod     string    // of the process
	Service string    // host name by which the pod is called
	Before  time.Time // the process ran
	After   time.Time // it was gone, with its connections
}

// Excuses reports whether f was in flight in the process: made by its pod or to its service,
// and under way when the process ended.
func (k Kill) Excuses(f Failure) bool {
	f = f.Root()
	underWay := f.Sent <= k.After.UnixNano() && f.Ended >= k.Before.UnixNano()
	return underWay && (f.From == k.Pod || f.To == k.Service) && !f.TimedOut
}

// Unexcused are the failures that no kill explains.
func Unexcused(all []Failure, kills []Kill) (left []Failure) {
	for _, f := range all {
		excused := false
		for _, k := range kills {
			excused = excused || k.Excuses(f)
		}
		if !excused {
			left = append(left, f)
		}
	}
	return left
}
