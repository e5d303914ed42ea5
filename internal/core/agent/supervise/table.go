package supervise

// A State is where the life of the child stands.
type State string

// The states.
const (
	Idle       State = "idle"       // nothing was started
	Starting   State = "starting"   // the first child runs, and has never been ready
	Serving    State = "serving"    // the child is ready
	Restarting State = "restarting" // the child is dead, the next one waits for its turn
	Reviving   State = "reviving"   // a next child runs, and is not ready
	Draining   State = "draining"   // stopping; the child runs until it is no longer needed
	DrainDown  State = "drain-down" // stopping; the child died, and is still needed
	Stopping   State = "stopping"   // the child is being killed
	Stopped    State = "stopped"    // the end
)

// An Event is what has happened.
type Event string

// The events.
const (
	Begin          Event = "begin"
	ChildReady     Event = "child ready"
	ChildEnded     Event = "child ended" // it ended, or did not start, and is worth another try
	ChildLost      Event = "child lost"  // it ended, or did not start, and no try is left or would help
	BackoffElapsed Event = "back-off elapsed"
	Terminate      Event = "terminate" // SIGTERM: drain, then stop
	Quit           Event = "quit"      // stop now
	Drained        Event = "drained"   // the child is no longer needed
	GraceOver      Event = "grace over"
)

// An Action is what to do.
type Action string

// The actions.
const (
	OpenStandby  Action = "open standby"  // take the connections that the child cannot
	CloseStandby Action = "close standby" // hand over to the child
	StartChild   Action = "start child"
	KillChild    Action = "kill child"
	WaitBackoff  Action = "wait back-off"
	ArmGrace     Action = "arm grace"
	DrainChild   Action = "drain child"
	AwaitDrained Action = "await drained" // find out when no child is needed any longer
	ExitOK       Action = "exit ok"       // as requested
	ExitFailed   Action = "exit failed"   // with the child's status, and never 0
)

// A Step is an entry of the table.
type Step struct {
	To State
	Do []Action
}

// table is the whole policy. What is absent is ignored: a second SIGTERM while draining
// changes nothing. The test lists each absent pair with its reason.
//
// The standby is open whenever no child is ready, from before the first start to the
// hand-over or the end. While draining, a child that dies is started again, and drains
// again: the application's last calls go through it. This holds for a child that was never
// ready, too: AwaitDrained finds out whether a client waits for it.
var table = map[State]map[Event]Step{
	Idle: {
		Begin:     {Starting, []Action{OpenStandby, StartChild}},
		Terminate: {Stopped, []Action{ExitOK}},
		Quit:      {Stopped, []Action{ExitOK}},
	},
	Starting: {
		ChildReady: {Serving, []Action{CloseStandby}},
		ChildEnded: {Restarting, []Action{WaitBackoff}},
		ChildLost:  {Stopped, []Action{CloseStandby, ExitFailed}},
		// The application may run beside it, and what it has called waits in the standby.
		Terminate: {Draining, []Action{ArmGrace, AwaitDrained}},
		Quit:      {Stopping, []Action{KillChild}},
	},
	Serving: {
		ChildEnded: {Restarting, []Action{OpenStandby, WaitBackoff}},
		ChildLost:  {Stopped, []Action{ExitFailed}},
		Terminate:  {Draining, []Action{ArmGrace, DrainChild, AwaitDrained}},
		Quit:       {Stopping, []Action{KillChild}},
	},
	Restarting: {
		BackoffElapsed: {Reviving, []Action{StartChild}},
		Terminate:      {DrainDown, []Action{ArmGrace, AwaitDrained}},
		Quit:           {Stopped, []Action{CloseStandby, ExitOK}},
	},
	Reviving: {
		ChildReady: {Serving, []Action{CloseStandby}},
		ChildEnded: {Restarting, []Action{WaitBackoff}},
		ChildLost:  {Stopped, []Action{CloseStandby, ExitFailed}},
		Terminate:  {Draining, []Action{ArmGrace, AwaitDrained}},
		Quit:       {Stopping, []Action{KillChild}},
	},
	Draining: {
		ChildReady: {Draining, []Action{CloseStandby, DrainChild}}, // one that was started while draining
		ChildEnded: {DrainDown, []Action{OpenStandby, WaitBackoff}},
		ChildLost:  {Stopped, []Action{CloseStandby, ExitFailed}},
		Drained:    {Stopping, []Action{KillChild}},
		GraceOver:  {Stopping, []Action{KillChild}},
		Quit:       {Stopping, []Action{KillChild}},
	},
	DrainDown: {
		BackoffElapsed: {Draining, []Action{StartChild}},
		Drained:        {Stopped, []Action{CloseStandby, ExitOK}},
		GraceOver:      {Stopped, []Action{CloseStandby, ExitOK}},
		Quit:           {Stopped, []Action{CloseStandby, ExitOK}},
	},
	Stopping: {
		// However it ended: it was killed.
		ChildEnded: {Stopped, []Action{CloseStandby, ExitOK}},
		ChildLost:  {Stopped, []Action{CloseStandby, ExitOK}},
	},
	Stopped: {},
}

// Next returns where event leads from state and what to do on the way. ok is false for
// an event that changes nothing.
//
// OpenStandby and CloseStandby may come when the standby is as wanted already: they say
// how it shall be.
func Next(state State, event Event) (step Step, ok bool) {
	step, ok = table[state][event]
	return step, ok
}
